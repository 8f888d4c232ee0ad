"""Randomizers that are known: their shuffles exactly or in brackets, and what is attained."""
