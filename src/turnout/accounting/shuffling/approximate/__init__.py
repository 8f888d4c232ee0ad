"""Shuffled messages of (ε₀, δ₀)-randomizers, Gaussian noise among them."""
