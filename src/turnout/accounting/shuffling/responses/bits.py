"""Sampled bits as blocks of a run: a uniform coordinate and its randomized bit, from every client.

Neighbours differ in one client's record (replace-one). The proofs are in docs/design/shuffling.md,
"Sampled bits".

Notation
    ε₀, e    of each bit, e^{ε₀}           p    1/(e + 1), the chance that a bit is not the true one
    n        clients, all of whom send     K    e^ε
    g        half the chance that another client's message is made up, a uniform bit; g < p
    D        messages made up, Bin(n − 1, 2g)
    λ        the mean of D
    f        (p − g)/(1 − 2g), the chance that a bit is not the true one if it is not made up

**All clients.** Tell which messages are made up, not by whom. If any is, the clients whose bits are
left are chosen among the n − 1 others, and one more could be chosen: the victim hides in n − D
slots with f for p (`responses.slots`). Fewer slots show more, so D is rounded up to one of a few
d's. D = 0 has the blanket of f, and D above the last d what the victim's message shows alone.
Every g and all d's hold; those here let the last two count for little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from scipy.special import betainc

from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.loss_laws import CurvePair
from turnout.accounting.divergence.polygons import PricedSide, nodes_down_to, nodes_near
from turnout.accounting.shuffling.blanket.curve import BlanketCurve
from turnout.accounting.shuffling.blanket.pair import BlanketPair, worst_pair
from turnout.accounting.shuffling.responses.binary import FAR, Bits, through
from turnout.accounting.shuffling.responses.slots import Slots, flip_of
from turnout.core.errors import UnsupportedError

_DENSITY, _REACHED = 6.0, 0.9  # nodes a standard deviation of a composed round, and how far down
_GROUPS = 128  # of blanket messages
# Parts of δ that D = 0 may count for, about: as much as one bit more that is turned over, times 2.
_OF_ONE_FLIP, _FEWEST, _MOST = 2.0, 1e-3, 0.2
_FAR_FEWER = 1e-3  # and D > d
_LEAST_MEAN, _SCORES = 1.0, (0.0, 1.5)  # of λ, and deviations of D up to which it counts as less
_ROUNDING, _LEAST_CHANCE = 1e-8, 1e-200
_MOST_MADE_UP = 0.5  # of p, what g may be


class BitsPrice(Protocol):
    """δ of one round of sampled bits from above, at any K and in both directions."""

    @property
    def local_epsilon(self) -> float:
        """ε₀."""
        ...

    @property
    def loss_deviation(self) -> float:
        """About the standard deviation of the likelihood ratio, at most 1."""
        ...

    def delta(self, k: float) -> float:
        """Upper bound on δ(K); 0 from some K ≤ e^{ε₀} on."""
        ...


@dataclass(frozen=True, slots=True)
class SampledBits(Bits):
    """One message of each of n clients."""

    def delta(self, k: float) -> float:
        """Upper bound on δ(K)."""
        alone = Slots(self.local_epsilon, 1, 1.0, 0.0).delta(k)
        if alone <= 0.0 or self.clients == 1 or self.local_epsilon > FAR:
            return alone
        blanket = min(alone, _blanket(worst_pair(self.local_epsilon), self.clients, k))
        return min(blanket, self._hidden(k, alone, blanket))

    def _hidden(self, k: float, alone: float, blanket: float) -> float:
        """The bound by messages that are made up, g and the d's chosen."""
        p, others = flip_of(self.local_epsilon), self.clients - 1
        # About δ(K), as if one could do without: no bound.
        guide = max(Slots(self.local_epsilon, self.clients, 1.0, p).delta(k), _LEAST_CHANCE)
        fewer = min(max(_OF_ONE_FLIP / (self.clients * p), _FEWEST), _MOST)
        mean = max(math.log(max(blanket / guide, 1.0) / fewer), _LEAST_MEAN)
        g, edges = 0.5 * mean / others, _edges(mean, _FAR_FEWER * guide)
        if g >= _MOST_MADE_UP * p or edges[-1] >= others:
            return alone
        return self.with_made_up(k, g, edges)

    def with_made_up(self, k: float, g: float, edges: Sequence[int]) -> float:
        """Upper bound on δ(K) by one g in (0, p).

        Args:
            k: K ≥ 1.
            g: half the chance that a message is made up.
            edges: d's from 1 to n − 2, rising, to which D is rounded up.
        """
        p, others = flip_of(self.local_epsilon), self.clients - 1
        flip, last = (p - g) / (1.0 - 2.0 * g), np.array(edges, dtype=float)
        above = betainc(last + 1.0, others - last, 2.0 * g)
        chances = -np.diff(above, prepend=1.0, append=0.0)
        alone = Slots(self.local_epsilon, 1, 1.0, 0.0).delta(k)
        shown = [Slots(self.local_epsilon, self.clients - d, 1.0, flip).delta(k) for d in edges]
        none = math.exp(others * math.log1p(-2.0 * g))
        unaided = min(alone, _blanket(BlanketPair(1.0 - p, p, flip), self.clients, k))
        total = float(chances @ [*shown, alone])
        return (total + none * unaided) * (1.0 + _ROUNDING)


def _edges(mean: float, chance: float) -> list[int]:
    """Numbers d that D is counted as, the last so high that more have a small chance.

    By Chernoff: d + 1 or more come with a chance of exp(−(d + 1)·ln((d + 1)/λ) + d + 1 − λ) at
    most.
    """
    target = math.log(max(chance, _LEAST_CHANCE))
    most = math.ceil(mean)
    while (most + 1) * (1.0 - math.log((most + 1) / mean)) - mean > target:
        most += 1
    near = {math.ceil(mean + score * math.sqrt(mean)) for score in _SCORES}
    return sorted({*(d for d in near if d < most), most})


def _blanket(pair: BlanketPair, clients: int, k: float) -> float:
    return float(BlanketCurve(pair, clients, Side.UPPER, _GROUPS).delta(np.array(k)))


@dataclass(frozen=True, slots=True)
class SampledBitsBlock:
    """One round of sampled bits, from above, by its price."""

    price: BitsPrice

    @property
    def loss_deviation(self) -> float:
        """The price's."""
        return self.price.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The same curve in both directions, sharp near one δ."""
        _require_upper(side)
        return _near(self.price, delta)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The same curve in both directions, sharp from 1 down to δ."""
        _require_upper(side)
        curve = _down_to(self.price, delta, refinement)
        return CurvePair(side, [curve], [curve])


def _require_upper(side: Side) -> None:
    if side is Side.LOWER:
        raise UnsupportedError("this bound on sampled bits is one from above")


@lru_cache(maxsize=8192)
def _delta(price: BitsPrice, k: float) -> float:
    return price.delta(k)


def _priced(price: BitsPrice) -> PricedSide:
    def priced(k: float, _: Side) -> float:
        return _delta(price, k)

    return priced


@lru_cache(maxsize=64)
def _near(price: BitsPrice, delta: float) -> Curve:
    priced, nodes = _priced(price), np.ones(1)
    if price.local_epsilon <= FAR:
        nodes = nodes_near(priced, Side.UPPER, delta, price.loss_deviation)
    return through(priced, nodes, price.local_epsilon)


@lru_cache(maxsize=64)
def _down_to(price: BitsPrice, delta: float, refinement: int) -> Curve:
    priced, nodes = _priced(price), np.ones(1)
    if price.local_epsilon <= FAR:
        density = _DENSITY * 2**refinement
        nodes = nodes_down_to(priced, _REACHED * delta, price.loss_deviation, density)
    return through(priced, nodes, price.local_epsilon)
