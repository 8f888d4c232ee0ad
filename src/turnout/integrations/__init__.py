"""Adapters to other libraries, each with its own extra; ``import turnout`` loads none of them."""
