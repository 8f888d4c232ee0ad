"""Randomness."""
