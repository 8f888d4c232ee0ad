"""Prices of participation laws: check-in windows, one record replaced, k steps of a window."""
