"""Divergences of pairs and of runs: dominating pairs, privacy curves, grids, and composition."""
