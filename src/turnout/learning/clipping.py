"""Clipping of an update: the one place that bounds a client's contribution."""

from __future__ import annotations

import torch
from torch import Tensor

MARGIN = 2.0**-20
"""Updates are scaled to C·(1 − MARGIN), so that float32 rounding cannot lift one above C.

Norms come in float64 from the very float32 numbers that are added (relative error below
1e-12). What is left is the rounding of the factor to float32 and of factor · coordinate, at
most 2⁻²⁴ each, and for an outer product one more for its two factors: together below 2⁻²². The
margin is four times that and costs a millionth of C.
"""

LARGEST_NORM = 1e30
"""Updates above this count as not finite: their factor would leave float32's normal range."""


def is_usable(squared_norms: Tensor) -> Tensor:
    """Which updates are finite, bool, (c,). The others are replaced by zero; NaN fails."""
    return squared_norms <= LARGEST_NORM**2


def factors(squared_norms: Tensor, clip_norm: float | Tensor) -> Tensor:
    """min(1, C·(1 − MARGIN) / norm) for usable updates, float32, (c,)."""
    target = clip_norm * (1 - MARGIN)
    return (target / squared_norms.sqrt()).clamp_(max=1.0).to(torch.float32)


def count_longer(squared_norms: Tensor, clip_norm: float) -> int:
    """The number of usable updates that are longer than C, and are scaled down."""
    return int(torch.count_nonzero(squared_norms > clip_norm**2))
