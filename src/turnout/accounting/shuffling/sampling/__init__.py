"""Shuffles of some of the clients: a uniform subset, own coins, averaged check-ins."""
