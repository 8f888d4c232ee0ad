"""Meaning of (ε, δ) for a client: privacy profile, trade-off, membership inference, Gaussian DP."""
