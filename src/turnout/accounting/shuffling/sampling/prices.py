"""What a self-sampled round is worth from above where all numbers of messages are priced alike.

Notation: see `mixtures`. Rather than every N by itself, N and what its messages are is mixed in
one: `sampling.cells`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from turnout.accounting.curves import Direction, PairCurve, Side
from turnout.accounting.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.shuffling.approximate.blocks import (
    ApproximateMessagesBlock,
    GaussianMessagesBlock,
    LeakingCurve,
)
from turnout.accounting.shuffling.approximate.price import (
    LocalCurve,
    best_rungs,
    local_epsilon_of,
    near_pure,
)
from turnout.accounting.shuffling.blanket.blocks import BlanketBlock
from turnout.accounting.shuffling.blanket.pair import stronger_clones_pair
from turnout.accounting.shuffling.responses.attained import AlikeBlock, AlikeGaussianBlock
from turnout.accounting.shuffling.sampling.cells import Grain
from turnout.accounting.shuffling.sampling.curve import SampledCurve
from turnout.accounting.shuffling.sampling.mixtures import Mixture, Sample

FloatArray = np.ndarray
_ROUNDING = 32 * UNIT_ROUNDOFF


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


@dataclass(frozen=True, slots=True)
class SampledApproximate:
    """The price of (ε₀, δ₀)-randomizers' messages.

    Notation: see `approximate.price`; τ = (N − 1)τ₁.

    The mean of γ·(δ₀ + (1 − δ₀)·(δ_pair(K') + (1 + K')·τ)), K' = 1 + (K − 1)/γ, is what the pair is
    worth and E γ(1 + K')τ = τ₁·(2·E γ(N − 1) + (K − 1)·E(N − 1)₊) beside. Or each message alone is
    worth what it is.

    Attributes:
        hidden: the pair's.
        alone: what one message is worth, δ₀ in it, mixed over γ.
        delta0: δ₀.
        slack: τ₁.
    """

    hidden: SampledCurve
    alone: Mixture
    delta0: float
    slack: float

    @property
    def floor(self) -> float:
        """q·δ₀, for she must come to leak."""
        return min(self.hidden.rate * self.delta0 * (1.0 + _ROUNDING), 1.0)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above; from some K on it need not fall."""
        return np.minimum(self.hidden_delta(k), self.alone.delta(k))

    def hidden_delta(self, k: FloatArray) -> FloatArray:
        """By the others' hiding her alone."""
        n, q = self.hidden.population, self.hidden.rate
        pairs = (n - 1) * q**2  # E γ(N − 1); E(N − 1)₊ is at most E N, and E N(N − 1)/2
        slack = self.slack * (2.0 * pairs + (k - 1.0) * min(n * q, 0.5 * n * pairs))
        value = q * self.delta0 + (1.0 - self.delta0) * (self.hidden.delta(k) + slack)
        return np.minimum(value * (1.0 + _ROUNDING), 1.0)


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """The price of Gaussian messages: at each K that of one ε₀ for all numbers of messages.

    Attributes:
        noise_multiplier: σ.
        sample: who is mixed.
        fixed: as in `approximate.price.GaussianPrice`.
        grain: how finely.
        alone: what one message is worth, mixed over γ.
    """

    noise_multiplier: float
    sample: Sample
    fixed: bool
    grain: Grain
    alone: Mixture

    @property
    def floor(self) -> float:
        """0: some ε is enough for any δ."""
        return 0.0

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        ratios = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        values = self.alone.delta(ratios)
        n, q = self.sample.population, self.sample.rate
        middle, inner = max(round(n * q), 1), 1.0 + (ratios - 1.0) / q
        rungs = best_rungs(self.noise_multiplier, middle, inner, fixed=self.fixed)
        for rung in np.unique(rungs):
            chosen = rungs == rung
            found = _rung(self, int(rung)).hidden_delta(ratios[chosen])
            values[chosen] = np.minimum(values[chosen], found)
        return values.reshape(np.shape(k))


@lru_cache(maxsize=64)
def _rung(price: SampledGaussian, rung: int) -> SampledApproximate:
    epsilon0, delta0 = local_epsilon_of(price.noise_multiplier, rung)
    pair, slack = near_pure(epsilon0, delta0, fixed=price.fixed)
    hidden = SampledCurve(pair, price.sample.population, price.sample.rate, price.grain)
    return SampledApproximate(hidden, price.alone, delta0, slack)


def _approximate(
    sample: Sample, grain: Grain, block: ApproximateMessagesBlock
) -> SampledApproximate:
    epsilon0, delta0 = block.price(1).epsilon0, block.delta0
    pair, slack = near_pure(epsilon0, delta0, fixed=block.fixed)
    hidden = SampledCurve(pair, sample.population, sample.rate, grain)
    local = LeakingCurve(LocalCurve(epsilon0), delta0, Side.UPPER)
    return SampledApproximate(hidden, Mixture.alone(sample, local), delta0, slack)


def sampled_price(sample: Sample, grain: Grain) -> SampledPrice | None:
    """The price of a sample; None where its blocks have none of this kind.

    Args:
        sample: who is mixed; its blocks are those of one randomizer.
        grain: how finely.
    """
    block = sample.base(sample.population)
    if isinstance(block, BlanketBlock):
        return SampledPair(SampledCurve(block.upper, sample.population, sample.rate, grain))
    if isinstance(block, AlikeBlock):
        pair = stronger_clones_pair(block.local_epsilon)
        return SampledPair(SampledCurve(pair, sample.population, sample.rate, grain))
    if isinstance(block, ApproximateMessagesBlock):
        return _approximate(sample, grain, block)
    if isinstance(block, GaussianMessagesBlock | AlikeGaussianBlock):
        sigma = block.noise_multiplier
        fixed = block.fixed if isinstance(block, GaussianMessagesBlock) else True
        message = PairCurve(GaussianPair(sigma / 2), Direction.REMOVE, Side.UPPER)
        return SampledGaussian(sigma, sample, fixed, grain, Mixture.alone(sample, message))
    return None
