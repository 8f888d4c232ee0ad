"""δ(K) of shuffled messages of (ε₀, δ₀)-randomizers, from above, and the same for Gaussian noise.

docs/design/shuffling.md ("Approximate randomizers") has the proof. Randomizers may be chosen by the
messages before, unless one is fixed beforehand for all.

Notation
    ε₀, δ₀  of the local randomizer, under replacement       e = e^{ε₀}     K = e^ε
    n       clients           ε₀'  ε₀ − ln(1 − δ₀)
    τ       how far all other messages are from those of an ε₀'-randomizer
    σ       of Gaussian noise, over the clip norm C; another record moves a message by up to 2C

With chance δ₀ the victim's message may give her away. Else it is that of an ε₀-randomizer, by
Kairouz, Oh and Viswanath 2015 (kairouz2015composition). Every other message is at distance δ₀/e of
a law that is at least the mean of her two, over e^{ε₀'}, which is what clones ask for; and at 2δ₀/e
of one that is at least the larger of them, which the worst pair of one fixed randomizer asks for.
The distances along a run add up to τ = (n − 1)δ₀/e or twice that whatever came before and wherever
the victim stands, so with that pair at ε₀'

    δ(K) ≤ δ₀ + (1 − δ₀)·(δ_pair(K) + (1 + K)·τ).

The truth falls with K, though the right side does not for ever. And a message is worth no more than
alone: δ(K) ≤ δ₀ + (1 − δ₀)·(e − K)₊/(e + 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from turnout.accounting.curves import Direction, PairCurve, Side
from turnout.accounting.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.shuffling.blanket.curve import BlanketCurve
from turnout.accounting.shuffling.blanket.pair import BlanketPair, clones_pair
from turnout.accounting.shuffling.blanket.supremum import worst_pair

FloatArray = np.ndarray
_LARGEST_LOCAL_EPSILON = 600.0  # more is as good as none: e^{ε₀} must be a number
_ALMOST_ONE = 1.0 - UNIT_ROUNDOFF
_ROUNDING = 32 * UNIT_ROUNDOFF
_RUNGS = 12.0  # ε₀'s that are tried in 2/σ; from one to the next δ₀ falls by about a half
_LOOKED_AT = 10  # K's at which the best rung is looked for
_FURTHEST = 39.0  # and the last is so many times 2/σ, beyond which δ₀ is nothing


def near_pure(epsilon0: float, delta0: float, *, fixed: bool) -> tuple[BlanketPair, float]:
    """The pair that an (ε₀, δ₀)-randomizer's messages are priced by, and τ/(n − 1)."""
    pair_of, laws = (worst_pair, 2.0) if fixed else (clones_pair, 1.0)
    pair = pair_of(epsilon0 - math.log1p(-min(delta0, _ALMOST_ONE)))
    return pair, laws * math.exp(-epsilon0) * delta0


@dataclass(frozen=True, slots=True)
class LocalCurve:
    """What a message of an ε₀-randomizer is worth alone, from above.

    Attributes:
        epsilon0: ε₀, at most 600.
    """

    epsilon0: float

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        rest = math.exp(-self.epsilon0)
        alone = np.maximum(1.0 - k * rest, 0.0) / (1.0 + rest) + 8 * UNIT_ROUNDOFF
        return np.where(k >= math.exp(self.epsilon0 * (1.0 + 1e-14)), 0.0, alone)

    def slope(self, k: FloatArray) -> FloatArray:
        """Always 0: slopes serve lower curves, and this is none."""
        return np.zeros(np.shape(k))


@dataclass(frozen=True, slots=True, eq=False)
class ApproximatePrice:
    """The bound for one (ε₀, δ₀)."""

    base: BlanketCurve
    epsilon0: float
    delta0: float
    slack: float

    @classmethod
    def of(
        cls, epsilon0: float, delta0: float, clients: int, groups: int, *, fixed: bool
    ) -> ApproximatePrice:
        """Of so many clients; the groups are those of `BlanketCurve`."""
        epsilon0 = min(epsilon0, _LARGEST_LOCAL_EPSILON)
        pair, slack = near_pure(epsilon0, delta0, fixed=fixed)
        base = BlanketCurve(pair, clients, Side.UPPER, groups)
        return cls(base, epsilon0, delta0, (clients - 1) * slack)

    @property
    def furthest(self) -> float:
        """The ε from which on δ is δ₀."""
        return self.epsilon0 * (1.0 + 1e-14)

    def shuffled(self, k: FloatArray) -> FloatArray:
        """What is added to δ₀ by the others' hiding her, without the factor 1 − δ₀."""
        return self.base.delta(k) + (1.0 + k) * self.slack

    def roughly(self, k: FloatArray) -> FloatArray:
        """About δ at each K ≥ 1, shape of ``k``."""
        return self.at(k)

    def at(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above; from some K on it need not fall."""
        alone = LocalCurve(self.epsilon0).delta(k)
        value = self.delta0 + (1.0 - self.delta0) * np.minimum(self.shuffled(k), alone)
        return np.minimum(value * (1.0 + _ROUNDING), 1.0)


@dataclass(frozen=True, slots=True)
class GaussianPrice:
    """The bound for Gaussian noise: at each K about the best of a ladder of ε₀'s.

    Attributes:
        noise_multiplier: σ.
        clients: n.
        groups: as in `BlanketCurve`.
        fixed: whether all clients of a round do the same to their records.
    """

    noise_multiplier: float
    clients: int
    groups: int
    fixed: bool

    @property
    def alone(self) -> PairCurve:
        """What one message is worth that nobody hides."""
        return PairCurve(GaussianPair(self.noise_multiplier / 2), Direction.REMOVE, Side.UPPER)

    def roughly(self, k: FloatArray) -> FloatArray:
        """About δ at each K ≥ 1, shape (K's,)."""
        epsilons, deltas = _ladder(self.noise_multiplier)
        about = _about(epsilons[:, None], deltas[:, None], self.clients, k, fixed=self.fixed)
        return np.minimum(about.min(axis=0), self.alone.delta(k))

    def at(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above."""
        ratios = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        values = self.alone.delta(ratios)
        nearest = best_rungs(self.noise_multiplier, self.clients, ratios, fixed=self.fixed)
        for rung in np.unique(nearest):
            chosen = nearest == rung
            found = _rung(self, int(rung)).at(ratios[chosen])
            values[chosen] = np.minimum(values[chosen], found)
        return values.reshape(np.shape(k))


def local_delta(noise_multiplier: float, local_epsilon: float) -> float:
    """δ₀ of a Gaussian message at ε₀, from above."""
    message = PairCurve(GaussianPair(noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    return float(message.delta(np.array(math.exp(local_epsilon))))


def local_epsilon_of(noise_multiplier: float, rung: int) -> tuple[float, float]:
    """ε₀ and δ₀ of a rung of the ladder."""
    epsilons, deltas = _ladder(noise_multiplier)
    return float(epsilons[rung]), float(deltas[rung])


def best_rungs(
    noise_multiplier: float, clients: int, ratios: FloatArray, *, fixed: bool
) -> np.ndarray:
    """About the rung of the ladder that is worth least at each K, shape (K's,)."""
    # The best ε₀ rises with K, slowly, so it is looked for at few K's.
    few = np.quantile(ratios, np.linspace(0.0, 1.0, min(_LOOKED_AT, ratios.size)))
    epsilons, deltas = _ladder(noise_multiplier)
    rungs = np.argmin(_about(epsilons[:, None], deltas[:, None], clients, few, fixed=fixed), axis=0)
    return np.rint(np.interp(ratios, few, rungs)).astype(np.int64)


@lru_cache(maxsize=64)
def _ladder(noise_multiplier: float) -> tuple[FloatArray, FloatArray]:
    """ε₀'s and the δ₀ that the noise has there, from above, down to where it is nothing."""
    mu = 2.0 / noise_multiplier
    last = min(_FURTHEST * mu + 0.5 * mu**2, _LARGEST_LOCAL_EPSILON)
    epsilons = np.arange(1, math.ceil(last * _RUNGS / mu) + 1) * (mu / _RUNGS)
    epsilons = np.minimum(epsilons, _LARGEST_LOCAL_EPSILON)
    message = PairCurve(GaussianPair(noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    return epsilons, message.delta(np.exp(epsilons))


def _about(
    epsilon0: FloatArray, delta0: FloatArray, clients: int, k: FloatArray, *, fixed: bool
) -> FloatArray:
    """About the bound: the pair as if Gaussian, unless nobody hides her; only steers."""
    low, laws = 1.0 / (np.exp(epsilon0) + 1.0), 2.0 if fixed else 1.0
    share = low if fixed else 0.5 * np.exp(-epsilon0)
    gap = np.tanh(0.5 * epsilon0)
    spread = gap * np.sqrt(2.0 / (clients * share))
    score = np.log(k) / spread
    hidden = ndtr(0.5 * spread - score) - k * ndtr(-0.5 * spread - score)
    alone = np.maximum(1.0 - low - k * low, 0.0)
    nobody = np.exp((clients - 1) * np.log1p(-np.minimum(2.0 * share, _ALMOST_ONE)))
    slack = laws * (clients - 1) * np.exp(-epsilon0) * delta0
    return delta0 + np.minimum(hidden + nobody * alone + (1.0 + k) * slack, alone)


@lru_cache(maxsize=256)
def _rung(price: GaussianPrice, rung: int) -> ApproximatePrice:
    epsilon0, delta0 = local_epsilon_of(price.noise_multiplier, rung)
    return ApproximatePrice.of(epsilon0, delta0, price.clients, price.groups, fixed=price.fixed)
