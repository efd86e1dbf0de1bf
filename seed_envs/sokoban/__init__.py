"""Sokoban: rules, rooms, plans, pictures and the environment."""
