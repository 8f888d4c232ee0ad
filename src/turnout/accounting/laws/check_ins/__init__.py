"""One uniform step of a window: the law of the average likelihood ratio, and its block."""
