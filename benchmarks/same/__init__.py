"""Commands that `same_numbers.py` runs on two versions, and the comparison of their output."""
