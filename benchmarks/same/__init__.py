"""What `same_numbers.py` runs on two versions, and how it compares what they say."""
