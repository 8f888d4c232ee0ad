"""Errors, checks and bounds: what every other package stands on."""
