"""Participations, one a file: name, parameters and normal form of each."""
