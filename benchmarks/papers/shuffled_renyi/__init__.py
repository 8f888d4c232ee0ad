"""Rényi divergences of blanket pairs, from above."""

from shuffled_renyi.divergence import (
    blanket_renyi,
    blanket_renyi_formula,
)

__all__ = ["blanket_renyi", "blanket_renyi_formula"]
