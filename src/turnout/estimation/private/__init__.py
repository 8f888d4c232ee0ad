"""Private estimates of a column of values: mechanism, messages and price chosen together."""
