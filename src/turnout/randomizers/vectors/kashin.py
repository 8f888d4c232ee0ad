"""Kashin's representation: more coordinates than needed, all of about the same size.

Notation: x in R^d, U the D×d frame of `CosineRotation` (UᵀU = 1), a in R^D with Uᵀa = x, ρ = D/d,
K the level: |a_j| ≤ K‖x‖/√D.

A rotation has normal coordinates, the largest of which is far above the typical one, and either
noise pays for it or clipping does. With ρ > 1 many a stand for the same x, and one of them has
K² ≈ π/2·(1 + 1.15/(ρ − 1)^0.6): 3.4 at ρ = 2, 2.5 at ρ = 4, where clipping a rotation at three
deviations costs 9. Of 64 coordinates or more nothing is clipped, so nothing is biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.vectors.rotations import CosineRotation

FloatArray = NDArray[np.float64]
_TOLERANCE = 1e-7  # of what Uᵀa may miss of x, relative to the radius
_ITERATIONS = 300
_STEP = 1.8  # beyond 1, the projection is passed; it converges up to 2


def level_of(redundancy: float) -> float:
    """A K that `KashinFrame.bounded` reaches in about 50 steps.

    Args:
        redundancy: ρ > 1.
    """
    if not redundancy > 1:
        raise ParameterError("redundancy", redundancy, "a number above 1")
    return math.sqrt(math.pi / 2 * (1 + 1.15 / (redundancy - 1) ** 0.6))


@dataclass(frozen=True)
class KashinFrame(CosineRotation):
    """Representations whose coordinates are all at most a bound.

    Source: Kashin 1977 and Lyubarskii and Vershynin 2010 for their existence. They truncate and
    take what is left again; here the cube and the representations of x are projected onto in turn,
    which needs a smaller cube.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count(self.dimension + 1, width=self.width)

    def bounded(self, vectors: FloatArray, bound: float) -> FloatArray:
        """A of each row, within ±bound, shape (n, D).

        Uᵀa is x to 1e-7 of the longest vector; where the bound is too small for a vector, as near
        as 300 steps came.
        """
        spread = self.forward(vectors)
        result = np.clip(spread, -bound, bound)
        limit = _TOLERANCE * bound * math.sqrt(self.width)
        open_ = np.arange(len(vectors))
        for _ in range(_ITERATIONS):
            missing = vectors[open_] - self.backward(result[open_])
            wrong = np.linalg.norm(missing, axis=1) > limit
            open_, missing = open_[wrong], missing[wrong]
            if not len(open_):
                break
            moved = result[open_] + _STEP * self.forward(missing)
            result[open_] = np.clip(moved, -bound, bound)
        return result
