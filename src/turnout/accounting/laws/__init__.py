"""What participation laws cost: check-in windows, one record replaced, k steps of a window."""
