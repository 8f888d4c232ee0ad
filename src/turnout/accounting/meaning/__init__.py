"""Meaning of a guarantee: privacy profile, trade-off, membership inference, Gaussian DP."""
