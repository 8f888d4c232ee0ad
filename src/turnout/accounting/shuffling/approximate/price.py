"""δ(K) of shuffled messages of (ε₀, δ₀)-randomizers, from above, and the same for Gaussian noise.

docs/design/shuffling.md ("Approximate randomizers") has the proof. Randomizers may be chosen by the
messages before, as long as the order of speaking is hidden.

Notation
    ε₀, δ₀  of the local randomizer, under replacement       e = e^{ε₀}     K = e^ε
    n       clients           ε₀'  ε₀ − ln(1 − δ₀)
    τ       how far all other messages are from those of an ε₀'-randomizer
    D       a bound on δ(K) of n − 1 clients, without the infinity mass
    σ       of Gaussian noise, over the clip norm C; another record moves a message by up to 2C

With chance δ₀ the victim's message may give it away. Else it is that of an ε₀-randomizer, by
Kairouz, Oh and Viswanath 2015 (kairouz2015composition). Every other message is at distance 2δ₀/e of
a law that is at least the larger of its two, over e^{ε₀'}, which the worst pair asks for; and at
δ₀/e of one that is at least their mean, which clones ask for. The distances along a run add up to
τ = 2(n − 1)δ₀/e or half of that, and a message that is drawn from what is missing is worth what
n − 1 clients are worth without it. So with either pair at ε₀'

    δ(K) ≤ δ₀ + (1 − δ₀)·(δ_pair,n(K) + τ·(K − 1 + 2D)),   D = δ_pair,n−1(K) + (1 + K)·τ.

The truth falls with K, though the right side does not for ever. And a message is worth no more than
alone: δ(K) ≤ δ₀ + (1 − δ₀)·(e − K)₊/(e + 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from turnout.accounting.divergence.curves import Curve, Direction, PairCurve, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.blanket.curve import BlanketCurve
from turnout.accounting.shuffling.blanket.pair import BlanketPair, clones_pair, worst_pair

FloatArray = np.ndarray
_LARGEST_LOCAL_EPSILON = 600.0  # more is as good as none: e^{ε₀} must be a number
_ALMOST_ONE = 1.0 - UNIT_ROUNDOFF
_ROUNDING = 32 * UNIT_ROUNDOFF
_DISTANCES = (2.0, 1.0)  # of one message by the worst pair and by clones, in units of δ₀/e
CHOICES = (0, 1)
_FEW_GROUPS = 16  # for what is multiplied by τ
_RUNGS = 12.0  # ε₀'s that are tried in 2/σ; from one to the next δ₀ falls by about a half
_LOOKED_AT = 10  # K's at which the best rung is looked for
_FURTHEST = 39.0  # and the last is so many times 2/σ, beyond which δ₀ is nothing


class Blanket(NamedTuple):
    """The blanket pair of ε₀'-randomizers near (ε₀, δ₀)-randomizers, and τ/(n − 1)."""

    pair: BlanketPair
    distance: float

    @classmethod
    def of(cls, epsilon0: float, delta0: float, choice: int) -> Blanket:
        """By the worst pair (0) or by clones (1)."""
        pair = (worst_pair, clones_pair)[choice](epsilon0 - math.log1p(-min(delta0, _ALMOST_ONE)))
        return cls(pair, _DISTANCES[choice] * math.exp(-epsilon0) * delta0 * (1.0 + _ROUNDING))


@dataclass(frozen=True, slots=True)
class LocalCurve:
    """The curve of one message of an ε₀-randomizer alone, ε₀ ≤ 600, from above."""

    epsilon0: float

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        rest = math.exp(-self.epsilon0)
        alone = np.maximum(1.0 - k * rest, 0.0) / (1.0 + rest) + 8 * UNIT_ROUNDOFF
        return np.where(k >= math.exp(self.epsilon0 * (1.0 + 1e-14)), 0.0, alone)

    def slope(self, k: FloatArray) -> FloatArray:
        """Always 0: slopes serve lower curves, and this is none."""
        return np.zeros(np.shape(k))


@dataclass(frozen=True, slots=True)
class HiddenCurve:
    """The rest of δ(K), δ₀ aside, where the others hide the victim; without the factor 1 − δ₀.

    Attributes:
        base: a bound for the n clients if all others sent messages of ε₀'-randomizers.
        fewer: the same for n − 1 clients.
        slack: τ, how far the others' messages are from those.
        coming: the chance with which the victim sends a message.
    """

    base: Curve
    fewer: Curve
    slack: float
    coming: float = 1.0

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        fewer = self.fewer.delta(k) + self.slack * (k - 1.0 + 2.0 * self.coming)
        fewer = np.minimum(fewer, self.coming)
        return self.base.delta(k) + self.slack * (k - 1.0 + 2.0 * fewer)


@dataclass(frozen=True, slots=True, eq=False)
class ApproximatePrice:
    """The bound for one (ε₀, δ₀): the least over its pairs, and that of a message alone."""

    hidden: Sequence[HiddenCurve]
    epsilon0: float
    delta0: float

    @classmethod
    def of(
        cls,
        epsilon0: float,
        delta0: float,
        clients: int,
        groups: int,
        choices: Sequence[int] = CHOICES,
    ) -> ApproximatePrice:
        """The curve of ``clients`` clients; the groups are those of `BlanketCurve`."""
        epsilon0 = min(epsilon0, _LARGEST_LOCAL_EPSILON)
        hidden: list[HiddenCurve] = []
        for choice in choices:
            pair, distance = Blanket.of(epsilon0, delta0, choice)
            base = BlanketCurve(pair, clients, Side.UPPER, groups)
            fewer = BlanketCurve(pair, max(clients - 1, 1), Side.UPPER, min(groups, _FEW_GROUPS))
            hidden.append(HiddenCurve(base, fewer, (clients - 1) * distance))
        return cls(hidden, epsilon0, delta0)

    @property
    def furthest(self) -> float:
        """The ε from which on δ is δ₀."""
        return self.epsilon0 * (1.0 + 1e-14)

    def roughly(self, k: FloatArray) -> FloatArray:
        """About δ at each K ≥ 1, shape of ``k``."""
        return self.at(k)

    def at(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above; from some K on it need not fall."""
        value = LocalCurve(self.epsilon0).delta(k)
        for hidden in self.hidden:
            value = np.minimum(value, hidden.delta(k))
        value = self.delta0 + (1.0 - self.delta0) * value
        return np.minimum(value * (1.0 + _ROUNDING), 1.0)


@dataclass(frozen=True, slots=True)
class GaussianPrice:
    """The bound for Gaussian noise: at each K about the best of a ladder of ε₀'s."""

    noise_multiplier: float
    clients: int
    groups: int

    @property
    def alone(self) -> PairCurve:
        """The price of one message that nobody hides."""
        return PairCurve(GaussianPair(self.noise_multiplier / 2), Direction.REMOVE, Side.UPPER)

    def roughly(self, k: FloatArray) -> FloatArray:
        """About δ at each K ≥ 1, shape (K's,)."""
        epsilons, deltas = _ladder(self.noise_multiplier)
        rungs = epsilons[:, None], deltas[:, None]
        about = [_about(*rungs, self.clients, k, choice) for choice in CHOICES]
        return np.minimum(np.min(about, axis=(0, 1)), self.alone.delta(k))

    def at(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above."""
        ratios = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        values = self.alone.delta(ratios)
        for rung, chosen in rungs_by_ratio(self.noise_multiplier, self.clients, ratios):
            found = _rung(self, rung).at(ratios[chosen])
            values[chosen] = np.minimum(values[chosen], found)
        return values.reshape(np.shape(k))


class Rung(NamedTuple):
    """One of the ladder's ε₀'s, its δ₀, and the index of its pair."""

    epsilon0: float
    delta0: float
    choice: int


def rungs_by_ratio(
    noise_multiplier: float, clients: int, ratios: FloatArray
) -> Iterator[tuple[Rung, np.ndarray]]:
    """About the rung that is worth least at each K: those that are, and where, shape (K's,)."""
    # The best ε₀ rises with K, slowly, so it is looked for at few K's.
    few = np.quantile(ratios, np.linspace(0.0, 1.0, min(_LOOKED_AT, ratios.size)))
    epsilons, deltas = _ladder(noise_multiplier)
    nearest, about = [], []
    for choice in CHOICES:
        values = _about(epsilons[:, None], deltas[:, None], clients, few, choice)
        rungs = np.rint(np.interp(ratios, few, np.argmin(values, axis=0))).astype(np.int64)
        nearest.append(rungs)
        about.append(_about(epsilons[rungs], deltas[rungs], clients, ratios, choice))
    choices = np.argmin(about, axis=0)
    rungs = np.choose(choices, nearest)
    for index, choice in set(zip(rungs.tolist(), choices.tolist(), strict=True)):
        rung = Rung(float(epsilons[index]), float(deltas[index]), choice)
        yield rung, (rungs == index) & (choices == choice)


@remembered
def _ladder(noise_multiplier: float) -> tuple[FloatArray, FloatArray]:
    """ε₀'s and the δ₀ that the noise has there, from above, down to where it is nothing."""
    mu = 2.0 / noise_multiplier
    last = min(_FURTHEST * mu + 0.5 * mu**2, _LARGEST_LOCAL_EPSILON)
    epsilons = np.arange(1, math.ceil(last * _RUNGS / mu) + 1) * (mu / _RUNGS)
    epsilons = np.minimum(epsilons, _LARGEST_LOCAL_EPSILON)
    message = PairCurve(GaussianPair(noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    return epsilons, message.delta(np.exp(epsilons))


def _about(
    epsilon0: FloatArray, delta0: FloatArray, clients: int, k: FloatArray, choice: int
) -> FloatArray:
    """About the bound: the pair as if Gaussian, unless nobody hides the victim; only steers."""
    low = 1.0 / (np.exp(epsilon0) + 1.0)
    share = (low, 0.5 * np.exp(-epsilon0))[choice]
    gap = np.tanh(0.5 * epsilon0)
    spread = gap * np.sqrt(2.0 / (clients * share))
    score = np.log(k) / spread
    hidden = ndtr(0.5 * spread - score) - k * ndtr(-0.5 * spread - score)
    alone = np.maximum(1.0 - low - k * low, 0.0)
    nobody = np.exp((clients - 1) * np.log1p(-np.minimum(2.0 * share, _ALMOST_ONE)))
    hidden = np.minimum(hidden + nobody * alone, alone)
    slack = _DISTANCES[choice] * (clients - 1) * np.exp(-epsilon0) * delta0
    fewer = np.minimum(hidden + (1.0 + k) * slack, 1.0)
    return delta0 + np.minimum(hidden + slack * (k - 1.0 + 2.0 * fewer), alone)


@remembered
def _rung(price: GaussianPrice, rung: Rung) -> ApproximatePrice:
    epsilon0, delta0, choice = rung
    return ApproximatePrice.of(epsilon0, delta0, price.clients, price.groups, (choice,))
