"""Figures from run folders: reading them, one look for all, and the figures themselves."""
