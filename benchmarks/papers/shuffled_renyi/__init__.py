"""Upper bounds on Rényi divergences of blanket pairs."""

from shuffled_renyi.divergence import (
    blanket_renyi,
    blanket_renyi_formula,
)

__all__ = ["blanket_renyi", "blanket_renyi_formula"]
