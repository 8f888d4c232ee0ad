"""Shuffles of some of the clients: a uniform subset, self-sampling, averaged check-ins."""
