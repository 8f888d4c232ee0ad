"""Divergences of pairs and of runs: curves, grids, sums, composition; no participation law."""
