"""Sweeps: a grid of methods, environments, models, data fractions and seeds, run by ordinary commands."""
