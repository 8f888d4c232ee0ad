"""What a self-sampled round is worth from above where all numbers of messages are priced alike.

Notation: see `mixtures`. Rather than every N by itself, N and what its messages are is mixed in
one: `sampled_cells`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from turnout.accounting.shuffling.blocks import BlanketBlock
from turnout.accounting.shuffling.mixtures import Sample
from turnout.accounting.shuffling.sampled_cells import Grain
from turnout.accounting.shuffling.sampled_curve import SampledCurve

FloatArray = np.ndarray


class SampledPrice(Protocol):
    """δ(K) of a self-sampled round, from above."""

    @property
    def floor(self) -> float:
        """The δ that no ε goes below."""
        ...

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        ...


@dataclass(frozen=True, slots=True)
class SampledPair:
    """The price of a blanket pair's messages, below which there is no floor."""

    curve: SampledCurve

    @property
    def floor(self) -> float:
        """0: no view is likelier by more than in the local worlds."""
        return 0.0

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        return self.curve.delta(k)


def sampled_price(sample: Sample, grain: Grain) -> SampledPrice | None:
    """The price of a sample; None where its blocks have none of this kind.

    Args:
        sample: who is mixed; its blocks are those of one randomizer.
        grain: how finely.
    """
    block = sample.base(sample.population)
    if isinstance(block, BlanketBlock):
        return SampledPair(SampledCurve(block.upper, sample.population, sample.rate, grain))
    return None
