"""Blanket pairs: what a shuffle of pure messages is worth, and what bounds it."""
