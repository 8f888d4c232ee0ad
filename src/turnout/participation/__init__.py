"""Participation: one sampler for each kind of draw, and the expectations of each participation."""
