"""Participation: one sampler for each law, and the expectations that follow from the laws."""
