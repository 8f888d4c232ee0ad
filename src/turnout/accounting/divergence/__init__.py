"""Divergences of one step and of a run: dominating pairs, privacy curves, and composition."""
