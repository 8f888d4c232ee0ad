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

from turnout.accounting.curves import Direction, PairCurve, Side
from turnout.accounting.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.shuffling.blanket import clones_pair
from turnout.accounting.shuffling.blanket_curve import BlanketCurve
from turnout.accounting.shuffling.supremum import worst_pair

FloatArray = np.ndarray
_LARGEST_LOCAL_EPSILON = 600.0  # more is as good as none: e^{ε₀} must be a number
_ALMOST_ONE = 1.0 - UNIT_ROUNDOFF
_ROUNDING = 32 * UNIT_ROUNDOFF
_RUNGS = 12.0  # ε₀'s that are tried in 2/σ; from one to the next δ₀ falls by about a half
_STRIDES = (4, 1)  # rungs at a time, towards the best one
_LOOKED_AT = 10  # K's at which the best rung is looked for
_COARSE, _LEAST_EPSILON = 1.1, 1e-9  # what ε, and n, is rounded to a power of for that
_FEW_GROUPS = 16
_FIRST_SLACK = 1e-3  # δ₀ and τ that the first ε₀ tried may cost


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
        pair_of, laws = (worst_pair, 2.0) if fixed else (clones_pair, 1.0)
        pair = pair_of(epsilon0 - math.log1p(-min(delta0, _ALMOST_ONE)))
        slack = laws * (clients - 1) * math.exp(-epsilon0) * delta0
        return cls(BlanketCurve(pair, clients, Side.UPPER, groups), epsilon0, delta0, slack)

    @property
    def furthest(self) -> float:
        """The ε from which on δ is δ₀."""
        return self.epsilon0 * (1.0 + 1e-14)

    def shuffled(self, k: FloatArray) -> FloatArray:
        """What is added to δ₀ by the others' hiding her, without the factor 1 − δ₀."""
        return self.base.delta(k) + (1.0 + k) * self.slack

    def at(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above; from some K on it need not fall."""
        shuffled = self.shuffled(k)
        rest = math.exp(-self.epsilon0)
        alone = np.maximum(1.0 - k * rest, 0.0) / (1.0 + rest) + 8 * UNIT_ROUNDOFF
        alone = np.where(k >= math.exp(self.furthest), 0.0, alone)
        value = self.delta0 + (1.0 - self.delta0) * np.minimum(shuffled, alone)
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

    def at(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, from above."""
        ratios = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        values = self.alone.delta(ratios)
        # The best ε₀ rises with K, slowly, so it is looked for at few K's; near a K will do.
        few = np.quantile(ratios, np.linspace(0.0, 1.0, min(_LOOKED_AT, ratios.size)))
        clients = math.ceil(_COARSE ** round(math.log(self.clients, _COARSE)))
        coarse = GaussianPrice(self.noise_multiplier, clients, _FEW_GROUPS, self.fixed)
        powers = np.rint(np.log(np.maximum(np.log(few), _LEAST_EPSILON)) / math.log(_COARSE))
        rungs = [_best_rung(coarse, int(power)) for power in powers]
        nearest = np.rint(np.interp(ratios, few, rungs)).astype(np.int64)
        for rung in np.unique(nearest):
            chosen = nearest == rung
            found = _rung(self, int(rung)).at(ratios[chosen])
            values[chosen] = np.minimum(values[chosen], found)
        return values.reshape(np.shape(k))


def local_delta(noise_multiplier: float, local_epsilon: float) -> float:
    """δ₀ of a Gaussian message at ε₀, from above."""
    message = PairCurve(GaussianPair(noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    return float(message.delta(np.array(math.exp(local_epsilon))))


@lru_cache(maxsize=4096)
def _rung(price: GaussianPrice, rung: int) -> ApproximatePrice:
    epsilon0 = min(rung * 2.0 / (price.noise_multiplier * _RUNGS), _LARGEST_LOCAL_EPSILON)
    delta0 = local_delta(price.noise_multiplier, epsilon0)
    return ApproximatePrice.of(epsilon0, delta0, price.clients, price.groups, fixed=price.fixed)


@lru_cache(maxsize=1024)
def _first_rung(price: GaussianPrice) -> int:
    """The least ε₀ at which δ₀ and τ cost little."""
    low, high = 0, 1

    def little(rung: int) -> bool:
        found = _rung(price, rung)
        return found.delta0 + 2.0 * found.slack <= _FIRST_SLACK

    while not little(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if little(middle) else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _best_rung(price: GaussianPrice, power: int) -> int:
    """About the rung that is worth least at ε = 1.1ᵖᵒʷᵉʳ, downhill from the first one."""
    ratio, known = np.array(math.exp(_COARSE**power)), dict[int, float]()

    def value(rung: int) -> float:
        if rung not in known:
            found = _rung(price, rung)
            known[rung] = found.delta0 + float(found.shuffled(ratio))
        return known[rung]

    rung = _first_rung(price)
    for stride in _STRIDES:
        for step in (stride, -stride):
            while rung + step >= 1 and value(rung + step) < value(rung):
                rung += step
    return rung
