"""Participations: each file defines one, with its name, parameters and normal form."""
