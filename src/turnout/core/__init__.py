"""Errors, checks, bounds, files and arrays, on which every other package builds."""
