"""δ(K) of a blanket pair, from above or below, in a millisecond a K.

Notation (see also `blanket`)
    n    clients                       K = e^ε
    N    high and low messages in all  c    neutral ones
    A    high ones of the N            u = 2A − N, a walk of N fair steps

The view's law is a mixture: it is that of n messages of the blanket alone, times A/(nβ),
(N − A)/(nβ) or c/(nβ₃) where the victim's message is high, low or neutral. So, with N − 1 ~
Bin(n − 1, 2β) and c | N ~ Bin(n − N, β₃/(1 − 2β)) (the size-biased binomial, as in the privacy
blanket, balle2019blanket),

    δ(K) = (K + 1)(v_h − v_l)·E[(u/N − θ·y/N)₊],   θ = (K − 1)/(K + 1),
    y = ((v_h + v_l)·N + 2(v₃/β₃)β·c)/(v_h − v_l),

the same in both directions by symmetry. N is cut into groups N₁ ≤ N ≤ N₂. E[(u/N − t)₊] falls in
N, for the mean of N exchangeable steps is a martingale in reverse, and falls and is convex in t;
E[(u − s)₊] rises in N. So the group is worth at most
  * u/N at N₁ with the drift y/N at its least (c at N₂ over N₂), or
  * u at N₂ with the drift y at its least (N₁, and c at N₂), divided by N₁,
and at least the same with N₁ and N₂ exchanged. Which is sharper depends on what the drift is made
of; without neutral messages it is the first, with nothing lost in t. In c the price is convex and
falls: from above c is spread over a few points that keep its mean (hat weights), from below it
is put on the means of few intervals (Jensen).

The price of a cell is what its best event A ≥ a gains, Pr₀ − K·Pr₁, and its slope in K is −Pr₁. As
another K's best event gains no less than this one, that line lies below the price.

**Fair coins**, from one to 10⁹: relative errors of the chance of a number of heads and of more stay
below 1e-11 while the chance is above e^{−700}; `betainc` gives the tail. The deviance form of the
mass (Loader 2000) keeps its digits where differences of ln Γ would not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, gammaln, xlogy

from turnout.accounting.divergence.curves import Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge
from turnout.accounting.shuffling.blanket.cells import Cells
from turnout.accounting.shuffling.blanket.pair import BlanketPair
from turnout.core import checks

FloatArray = np.ndarray
_SLACK = 1e-9  # relative error that a binomial probability may have
_UNITS_AN_EVENT = 30  # of work
_AT_ONCE = 1 << 17  # prices, so that arrays stay small


@dataclass(frozen=True)
class BlanketCurve:
    """δ(K) of a blanket pair; both directions are the same.

    Attributes:
        side: on which side of the pair's δ the curve lies.
        groups: N is cut into groups about N/(8·groups) wide, or single ones.
    """

    pair: BlanketPair
    clients: int
    side: Side
    groups: int = 256

    def __post_init__(self) -> None:
        checks.count(clients=self.clients, groups=self.groups)

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        return self.delta_and_slope(k)[0]

    def slope(self, k: FloatArray) -> FloatArray:
        """The slope of a line through δ(K) below the pair's curve, or 0 for an upper curve."""
        return self.delta_and_slope(k)[1]

    def delta_and_slope(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Both at once, shape of ``k`` each."""
        flat = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        step = max(1, _AT_ONCE // self._cells.weight.size)
        parts = [self._priced(flat[i : i + step]) for i in range(0, flat.size, step)]
        deltas, slopes = (
            np.concatenate(part).reshape(np.shape(k)) for part in zip(*parts, strict=True)
        )
        return deltas, slopes

    def _priced(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        cells = self._cells
        events = best_events(self.pair, cells.coins, cells.excess, k[None, :])
        if self.side is Side.UPPER:
            total = cells.weight @ events.most
            total = np.minimum(total * (1.0 + _SLACK), 1.0)
            return total, np.zeros(total.shape)
        value, fall = events.least
        return (cells.weight @ value) * (1.0 - _SLACK), -(cells.weight @ fall)

    @cached_property
    def _cells(self) -> Cells:
        return Cells.of(self.pair, self.clients, self.side, self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """The value of the best event of each cell, one row a cell, one column a K.

    Attributes:
        value: its gain.
        slack: the rounding of that.
        chance: of it in the world in which it is less likely.
        impossible: where K is beyond v_h/v_l.
    """

    value: FloatArray
    slack: FloatArray
    chance: FloatArray
    impossible: FloatArray

    @property
    def most(self) -> FloatArray:
        """The gain from above."""
        # No view is likelier by more than v_h/v_l, whatever its cell claims.
        return np.where(self.impossible, 0.0, np.maximum(self.value, 0.0) + self.slack)

    @property
    def least(self) -> tuple[FloatArray, FloatArray]:
        """The gain from below, and how it falls with K.

        The same event's gain at another K is at most what the best event gains there.
        """
        fall = np.where(self.value > self.slack, self.chance, 0.0)
        return np.maximum(self.value - self.slack, 0.0), fall


def best_events(pair: BlanketPair, coins: FloatArray, excess: FloatArray, k: FloatArray) -> Events:
    """The best event of each cell at each K."""
    charge(_UNITS_AN_EVENT * coins.size * k.shape[-1])
    coins, excess = coins[:, None], excess[:, None]
    high, low = pair.high, pair.low
    # What an event gains at most, all of the N messages being high; it never does below 0.
    most = high - k * low - 0.5 * (k - 1.0) * excess
    rounding = 8 * UNIT_ROUNDOFF * (high + k * low + 0.5 * (k - 1.0) * np.abs(excess))
    possible = most >= -rounding
    # The share of A in N from which on the one world is likelier by more than K.
    share = high - low / k + 0.5 * (1.0 - 1.0 / k) * excess
    share = np.where(possible, share / ((1.0 + 1.0 / k) * (high - low)), 1.0)
    above = np.minimum(np.floor((coins + 1.0) * share), coins)
    mass, tail = heads(coins, above), (high + low + excess) * at_least(coins, above + 1.0)
    gain, loss = mass * most, (k - 1.0) * tail
    value = np.where(possible, gain - loss, 0.0)
    slack = np.where(possible, _SLACK * (np.abs(gain) + loss) + mass * rounding, 0.0)
    impossible = k * low > high * (1.0 + 4 * UNIT_ROUNDOFF)
    return Events(value, slack, mass * (low + 0.5 * excess) + tail, impossible)


_NEAR = 0.3  # |share of heads − ½|·2 up to which the deviance is taken from its series at 0
_TABLE = 16


def heads(coins: FloatArray, count: FloatArray) -> FloatArray:
    """P(Bin(coins, ½) = count), shape of both; count from 0 to coins."""
    tails = coins - count
    mixed = (count > 0) & (tails > 0)
    some, up, down = (np.where(mixed, x, 1.0) for x in (coins, count, tails))
    x = np.where(mixed, (up - down) / some, 0.0)
    exponent = 0.5 * some * (np.log1p(-np.minimum(x * x, 0.5)))
    exponent += np.where(mixed, up - down, 0.0) * np.arctanh(np.clip(x, -_NEAR, _NEAR))
    far = np.abs(x) > _NEAR
    if far.any():
        direct = xlogy(up, 2.0 * up / some) + xlogy(down, 2.0 * down / some)
        exponent = np.where(far, direct, exponent)
    correction = _stirling(some) - _stirling(up) - _stirling(down)
    mass = np.exp(correction - exponent) * np.sqrt(some / (2.0 * math.pi * up * down))
    return np.where(mixed, mass, np.exp2(-coins))


def at_least(coins: FloatArray, count: FloatArray) -> FloatArray:
    """P(Bin(coins, ½) ≥ count), shape of both."""
    inside = (count >= 1) & (count <= coins)
    first = np.where(inside, count, 1.0)
    tail = betainc(first, np.where(inside, coins - first + 1.0, 1.0), 0.5)
    return np.where(inside, tail, np.where(count < 1, 1.0, 0.0))


def _stirling(n: FloatArray) -> FloatArray:
    """Ln n! − (n + ½) ln n + n − ½ ln 2π for whole n ≥ 1."""
    large = np.maximum(n, _TABLE)
    square = large * large
    series = 1 / 1260 - (1 / 1680 - (1 / 1188) / square) / square
    series = (1 / 12 - (1 / 360 - series / square) / square) / large
    if float(np.min(n, initial=_TABLE)) >= _TABLE:
        return series
    return np.where(n < _TABLE, _SMALL[np.minimum(n, _TABLE - 1).astype(np.intp)], series)


_WHOLE = np.arange(1.0, _TABLE)
_SMALL = np.append(
    0.0,
    gammaln(_WHOLE + 1.0) - (_WHOLE + 0.5) * np.log(_WHOLE) + _WHOLE - 0.5 * math.log(2 * math.pi),
)
