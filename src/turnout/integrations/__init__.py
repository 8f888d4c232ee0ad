"""Adapters to other libraries, each with its own extra; ``import turnout`` loads no adapter."""
