"""Participation laws, one a file: what a law is called, its parameters and its normal form."""
