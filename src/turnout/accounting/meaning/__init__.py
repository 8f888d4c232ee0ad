"""Meaning of a guarantee: its privacy profile, trade-off, membership inference and Gaussian DP."""
