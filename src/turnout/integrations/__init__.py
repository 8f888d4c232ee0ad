"""Adapters to other libraries, each with an extra of its own; none is loaded by ``turnout``."""
