"""Upper bound on a self-sampling round where all numbers of messages are priced alike.

Notation: see `mixtures`. Rather than every N by itself, N and what its messages are is mixed in
one: `sampling.cells`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.curves import Direction, PairCurve, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.approximate.blocks import (
    ApproximateMessagesBlock,
    GaussianMessagesBlock,
    InfinityMassBound,
)
from turnout.accounting.shuffling.approximate.price import (
    CHOICES,
    Blanket,
    HiddenCurve,
    LocalCurve,
    Rung,
    rungs_by_ratio,
)
from turnout.accounting.shuffling.blanket.blocks import BlanketBlock
from turnout.accounting.shuffling.blanket.pair import stronger_clones_pair
from turnout.accounting.shuffling.responses.attained import (
    IdenticalGaussianBlock,
    IdenticalOthersBlock,
)
from turnout.accounting.shuffling.sampling.cells import Grain, SampledCurve
from turnout.accounting.shuffling.sampling.mixtures import Mixture, Sample

FloatArray = np.ndarray
_ROUNDING = 32 * UNIT_ROUNDOFF
_FEWER = 4  # how much more coarsely that is told apart which is multiplied by τ


@dataclass(frozen=True, slots=True)
class SampledApproximate:
    """The price of (ε₀, δ₀)-randomizers' messages.

    Notation: see `approximate.price`. Each of the n − 1 others sends a message with chance q, so
    τ = (n − 1)·q·τ₁ here, τ₁ being that of one message; D is of n − 1 clients who come by coins of
    their own, so at most q. Or each message alone is worth what it is.

    Attributes:
        hidden: bounds from the others' hiding the victim, one for each blanket.
        alone: what one message is worth, δ₀ in it, mixed over γ.
    """

    hidden: Sequence[HiddenCurve]
    alone: Mixture
    rate: float
    delta0: float

    @property
    def floor(self) -> float:
        """q·δ₀, for only a victim that comes can give itself away."""
        return min(self.rate * self.delta0 * (1.0 + _ROUNDING), 1.0)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above; from some K on it need not fall."""
        return np.minimum(self.hidden_delta(k), self.alone.delta(k))

    def hidden_delta(self, k: FloatArray) -> FloatArray:
        """By the others' hiding the victim alone."""
        hidden = np.minimum.reduce([curve.delta(k) for curve in self.hidden])
        value = self.rate * self.delta0 + (1.0 - self.delta0) * hidden
        return np.minimum(value * (1.0 + _ROUNDING), 1.0)


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """The price of Gaussian messages: at each K that of one ε₀ for all numbers of messages.

    ``alone`` is what one message is worth, mixed over γ.
    """

    noise_multiplier: float
    sample: Sample
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
        for rung, chosen in rungs_by_ratio(self.noise_multiplier, middle, inner):
            found = _rung(self, rung).hidden_delta(ratios[chosen])
            values[chosen] = np.minimum(values[chosen], found)
        return values.reshape(np.shape(k))


@remembered
def _rung(price: SampledGaussian, rung: Rung) -> SampledApproximate:
    hidden = _hidden(price.sample, price.grain, rung)
    return SampledApproximate([hidden], price.alone, price.sample.rate, rung.delta0)


def _hidden(sample: Sample, grain: Grain, rung: Rung) -> HiddenCurve:
    """The bound from the others' hiding the victim, by one blanket."""
    n, q = sample.population, sample.rate
    pair, distance = Blanket.of(*rung)
    few = Grain(max(grain.groups // _FEWER, 1), grain.fine / _FEWER, grain.lost)
    base, fewer = SampledCurve(pair, n, q, grain), SampledCurve(pair, max(n - 1, 1), q, few)
    return HiddenCurve(base, fewer, (n - 1) * q * distance, q)


def _approximate(
    sample: Sample, grain: Grain, block: ApproximateMessagesBlock
) -> SampledApproximate:
    epsilon0, delta0 = block.price(1).epsilon0, block.delta0
    hidden = [_hidden(sample, grain, Rung(epsilon0, delta0, choice)) for choice in CHOICES]
    local = InfinityMassBound(LocalCurve(epsilon0), delta0, Side.UPPER)
    return SampledApproximate(hidden, Mixture.alone(sample, local), sample.rate, delta0)


SampledPrice = SampledCurve | SampledApproximate | SampledGaussian
"""δ(K) of a self-sampling round, from above."""


def sampled_price(sample: Sample, grain: Grain) -> SampledPrice | None:
    """The price of a sample; None where its blocks have none of this kind."""
    block = sample.base(sample.population)
    if isinstance(block, BlanketBlock):
        return SampledCurve(block.upper, sample.population, sample.rate, grain)
    if isinstance(block, IdenticalOthersBlock):
        pair = stronger_clones_pair(block.local_epsilon)
        return SampledCurve(pair, sample.population, sample.rate, grain)
    if isinstance(block, ApproximateMessagesBlock):
        return _approximate(sample, grain, block)
    if isinstance(block, GaussianMessagesBlock | IdenticalGaussianBlock):
        sigma = block.noise_multiplier
        message = PairCurve(GaussianPair(sigma / 2), Direction.REMOVE, Side.UPPER)
        return SampledGaussian(sigma, sample, grain, Mixture.alone(sample, message))
    return None
