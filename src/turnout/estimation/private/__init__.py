"""Private estimates of a column of values, with automatic choice of the mechanism."""
