"""Shuffled local messages: the clones bound, for pure ε₀ and for Gaussian noise at the client.

Every client sends one message a round, made by a randomizer of her own; a shuffler hides who sent
what. Neighbours differ in one client's record (replace-one).

Notation
    ε₀, δ₀  of the local randomizer, under replacement
    n       clients         e = e^{ε₀}     q = e/(e + 1)
    C       clones: other clients whose message might as well be the victim's, Bin(n − 1, 1/e)

**Pure ε₀** (Feldman, McMillan and Talwar 2021, feldman2021clones, Theorem 3.1, numerically).
R(x⁰) = qU + (1 − q)V and R(x¹) = (1 − q)U + qV for some laws U and V. Every other message is with
chance 1/e drawn from ½(R(x⁰) + R(x¹)) = ½(U + V). So the shuffled messages are made from (C, the
number of U's), which is A + 1 with chance q and A else, A ~ Bin(C, ½), or the other way round.

**(ε₀, δ₀)**, one round. By Kairouz, Oh and Viswanath 2015 (kairouz2015composition) there are laws
at distance δ₀ from R(x⁰) and R(x¹) of the form above, and min(R(xʲ), e·R(x)) has mass 1 − δ₀ at
least; so every other message is at distance 2δ₀/e of one as above. With
τ = (1 + 2(n − 1)/e)·δ₀ a round, δ(ε) ≤ δ_clones(ε) + (1 + e^ε)·τ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, betaincc

from turnout.accounting.blocks import PairBlock
from turnout.accounting.curves import Curve, Direction, PairCurve, Side
from turnout.accounting.losses import CurvePair
from turnout.accounting.pairs import GaussianPair
from turnout.accounting.runs import run_epsilon
from turnout.core import checks
from turnout.core.errors import NumericalError, UnsupportedError

FloatArray = np.ndarray
_SINGLE, _COMPOSED = 256, 64  # groups of C for one round, for one of many
_DEVIATIONS = 9.0  # of C that the groups cover; the rest is one group at either end
_SLACK = 1e-9  # relative error that a binomial tail may have
_SHARE = 0.1  # of δ that goes to τ
_ROUNDS = 8  # how often ε₀ is chosen anew
_AHEAD = 1.003  # how far above the last ε the next one is assumed to be
_AT_ONCE = 512  # K's, so that arrays stay small
_LARGEST_LOCAL_EPSILON = 600.0


@dataclass(frozen=True)
class ClonesCurve:
    """δ(K) of the clones pair, from above; both directions are the same.

    Given C the pair is worth less the larger C is (one clone more is post-processing), so each
    group of C's counts as its smallest.

    Attributes:
        local_epsilon: ε₀ > 0.
        clients: n ≥ 1.
        groups: how many groups C is cut into.
    """

    local_epsilon: float
    clients: int
    groups: int

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``."""
        first, below = self._groups
        flat = np.atleast_1d(np.asarray(k, dtype=float)).ravel()
        result = np.empty(flat.size)
        for start in range(0, flat.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            values = self._given_clones(first[:, None], flat[None, part])
            # Falls with C but for rounding. δ = δ_last + Σ (fall at an edge)·P(C below the edge).
            values = np.maximum.accumulate(values[::-1], axis=0)[::-1]
            falls = values[:-1] - values[1:]
            result[part] = values[-1] + (1 + _SLACK) * (below[1:] @ falls)
        return np.minimum(result, 1.0).reshape(np.shape(k))

    def slope(self, k: FloatArray) -> FloatArray:
        """Always 0: slopes serve lower curves, and this is none."""
        return np.zeros(np.shape(k))

    @cached_property
    def _groups(self) -> tuple[FloatArray, FloatArray]:
        """First C of each group, and the chance of a smaller C, shapes (groups,)."""
        chance, others = math.exp(-self.local_epsilon), self.clients - 1
        mean = others * chance
        width = _DEVIATIONS * (math.sqrt(mean) + 1.0)
        low, high = max(0.0, mean - width), min(float(others), mean + width)
        first = np.unique(np.append(0.0, np.floor(np.linspace(low, high, self.groups))))
        below = np.zeros(first.size)
        below[1:] = betaincc(first[1:], others - first[1:] + 1.0, chance)
        return first, below

    def _given_clones(self, clones: FloatArray, k: FloatArray) -> FloatArray:
        """δ(K) given C, from above: the best event is "more than a share θ of U's"."""
        rest = math.exp(-self.local_epsilon) / (1 + math.exp(-self.local_epsilon))
        q = 1 - rest
        theta = (q - rest / k) / (math.tanh(self.local_epsilon / 2) * (1 + 1 / k))
        least = np.floor(theta * (clones + 1)) + 1
        one, none = _at_least(least - 1, clones), _at_least(least, clones)
        gain, loss = q * one + rest * none, rest * one + q * none
        # Where no number of U's is that large the price is 0, and k may be too large to multiply.
        weight = np.where(least <= clones + 1, k, 0.0)
        value = np.maximum(gain - weight * loss, 0.0) + _SLACK * (gain + weight * loss)
        return np.where(weight > 0, value, 0.0)


def _at_least(count: FloatArray, coins: FloatArray) -> FloatArray:
    """P(Bin(coins, ½) ≥ count)."""
    inside = (count >= 1) & (count <= coins)
    safe = np.where(inside, count, 1.0)
    tail = betainc(safe, np.where(inside, coins - safe + 1.0, 1.0), 0.5)
    return np.where(inside, tail, np.where(count < 1, 1.0, 0.0))


@dataclass(frozen=True, slots=True)
class ClonesBlock:
    """One round of shuffled ε₀-messages, as a block of a run; from above only."""

    local_epsilon: float
    clients: int

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(clients=self.clients)

    @property
    def spread(self) -> float:
        """About the standard deviation of the likelihood ratio, at most 1."""
        clones = 1 + (self.clients - 1) * math.exp(-self.local_epsilon)
        return min(1.0, 2 * math.tanh(self.local_epsilon / 2) / math.sqrt(clones))

    @property
    def exact(self) -> bool:
        """A bound."""
        return False

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """The same curve in both directions.

        Raises:
            UnsupportedError: a lower curve.
        """
        return self._curve(side, _SINGLE << refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """The same curve in both directions."""
        curve = self._curve(side, _COMPOSED << refinement)
        return CurvePair(side, [curve], [curve])

    def _curve(self, side: Side, groups: int) -> Curve:
        if side is Side.LOWER:
            raise UnsupportedError("the clones bound says nothing from below")
        return ClonesCurve(min(self.local_epsilon, _LARGEST_LOCAL_EPSILON), self.clients, groups)


def clones_2021(local_epsilon: float, clients: int, delta: float, rounds: int = 1) -> float:
    """ε of shuffled ε₀-messages, composed over rounds, by the clones pair.

    Source: Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1, numerically.

    Args:
        local_epsilon: ε₀ > 0, under replacement.
        clients: n ≥ 1; each sends one message a round.
        delta: δ in (0, 1).
        rounds: r ≥ 1; each is shuffled afresh.

    Returns:
        ε under replace-one, never below the true one. No larger than r·ε₀.

    Raises:
        NumericalError: the composition cannot be certified at this δ.

    >>> round(clones_2021(1.0, 100_000, 1e-6), 4)
    0.0153
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    run = [(ClonesBlock(local_epsilon, clients), rounds)]
    amplified = run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, 0)
    return min(amplified, rounds * local_epsilon)


def shuffled_gaussian(
    noise_multiplier: float, clients: int, delta: float, rounds: int = 1
) -> float:
    """ε of shuffled messages that carry Gaussian noise each, composed over rounds.

    Source: the clones pair with ε₀ and δ₀ of the Gaussian, see the module's notes. Not adaptive
    within a round. ε₀ is chosen so that τ costs a tenth of δ. The least of this and of what the
    messages are worth on their own.

    Args:
        noise_multiplier: σ, the standard deviation of one message's noise over the clip norm C;
            another record moves a message by up to 2C.
        clients: n ≥ 1; each sends one message a round.
        delta: δ in (0, 1).
        rounds: r ≥ 1; each is shuffled afresh.

    Returns:
        ε under replace-one, never below the true one; what the messages are worth on their own
        where clones prove, or can be certified to prove, no more.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.count(clients=clients, rounds=rounds)
    checks.open_unit(delta=delta)
    alone = [(PairBlock(GaussianPair(noise_multiplier / (2 * math.sqrt(rounds)))), 1)]
    best = run_epsilon(alone, Direction.REMOVE, Side.UPPER, delta, 0)
    message = PairCurve(GaussianPair(noise_multiplier / 2), Direction.REMOVE, Side.UPPER)
    assumed, before = 0.0, None  # τ is paid for as if ε were this; it must turn out to be no more
    for _ in range(_ROUNDS):
        local = _cheapest_local_epsilon(message, clients, _SHARE * delta / rounds, assumed)
        if local is None:
            break
        try:
            found = clones_2021(local, clients, (1 - _SHARE) * delta, rounds)
        except NumericalError:
            break
        if found <= assumed or found >= best:
            return min(found, best)
        assumed, before = _next_assumed(assumed, found, before), (assumed, found)
    return best


def _next_assumed(assumed: float, found: float, before: tuple[float, float] | None) -> float:
    """A little above the ε that would be found if it were assumed, by a secant."""
    rise = 0.0 if before is None else (found - before[1]) / (assumed - before[0])
    ahead = (found - assumed) * (1 / (1 - rise) if rise < 1 else 10.0)
    return (assumed + ahead) * _AHEAD


def message_slack(message: Curve, local_epsilon: float, clients: int) -> float:
    """τ of one round: the distance of all its messages from messages of an ε₀-randomizer."""
    local_delta = float(message.delta(np.array(math.exp(local_epsilon))))
    return (1 + 2 * (clients - 1) * math.exp(-local_epsilon)) * local_delta


def _cheapest_local_epsilon(
    message: Curve, clients: int, mass: float, epsilon: float
) -> float | None:
    """About the least ε₀ with (1 + e^ε)·τ ≤ ``mass``, from above; None if there is none."""

    def fits(local: float) -> bool:
        tau = message_slack(message, local, clients)
        return tau == 0.0 or math.log(tau) + float(np.logaddexp(0.0, epsilon)) <= math.log(mass)

    low, high = 0.0, 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST_LOCAL_EPSILON:
            return None
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
