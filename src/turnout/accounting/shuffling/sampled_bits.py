"""Blocks of rounds in which each client sends a uniform coordinate and its randomized bit.

`SampledBitsBlock` is the block of one round, made from a bound on δ(K) (`BitsPrice`);
`SampledBitsRound` is this bound if all clients send. `Slots` bounds δ(K) of a client whose bit is
in an unknown slot; `schemes` uses it for samples of the clients too. `messages` makes the block.
Neighbours differ in one client's record (replace-one). docs/design/shuffling.md, "Sampled bits",
has the proofs.

Notation
    ε₀       of each bit, and of binary response;  e = e^{ε₀}, q = e/(e + 1), p = 1 − q
    n        number of clients, all of whom send      K = e^ε
    N, γ     number of slots, and the chance that the client's bit is in one of them
    f        chance that a slot's true bit is flipped, if the slot is not the client's
    a, b, c  q − Kp, Kq − p, (K − 1)(1 − γ)/γ
    j        number of slots whose true bit is the one that the client's bit equals in P
    Y₁       gain of one of these j slots: a/(1 − f) − c or, with chance f, −b/f − c
    Y₀       gain of any other slot: −b/(1 − f) − c or, with chance f, a/f − c
    S_j      the sum of j gains Y₁ and N − j gains Y₀, independent
    M(ζ)     E e^{ζS}; ζ = θ + iu
    g        half the chance that another client's message is made up, a uniform bit; g < p
    D, λ     number of messages that are made up, Bin(n − 1, 2g), and its mean

**All clients.** Assume that the adversary sees which messages are made up, but not their senders.
If at least one is made up, the senders of the other messages are a random subset of the n − 1
others, and the victim could take the place of one more: the victim hides in n − D slots with
f = (p − g)/(1 − 2g), the chance that a bit which is not made up differs from the true bit
(`Slots`). Fewer slots reveal more, so D is rounded up to one of a few numbers d. If D = 0, the
bound is that of the blanket with f; if D is above the largest d, it is the δ of the victim's
message alone. Every g and every choice of numbers d give a bound; the choice here makes these last
two terms negligible.

**Slots.** δ(K) is at most (γ/N)·max over j of E(S_j)₊. Adding independent noise of mean 0 to S only
makes E(S)₊ larger (Jensen), and Gaussian noise of deviation τ makes the transform M fall like
e^{−τ²u²/2}. For any θ > 0 and Δ > 0, by Poisson's summation,

    (Δ/2π)·Σ_m M(ζ_m)/ζ_m² = Σ_l e^{θlL}·E(S − lL)₊,   ζ_m = θ + imΔ, L = 2π/Δ,

and no term on the right is negative: the left side is an upper bound for all θ and Δ. θ is near the
minimum of M(θ)/θ², so that all terms except l = 0 are negligible.

**The largest over j.** The left side is T(j) = Σ_m t_m·e^{jD_m}, of which |T''| is at most
Σ|t_m||D_m|²|e^{jD_m}|, convex in j. So between two values j₁ and j₂, T is at most max(T(j₁), T(j₂))
plus (j₂ − j₁)²/8 times the larger of the bounds on |T''| at j₁ and j₂. Intervals are halved until
the last term is small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import betainc

from turnout.accounting.divergence.blocks import CurvePair
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PricedSide,
    Side,
    nodes_down_to,
    nodes_near,
)
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import remembered
from turnout.accounting.shuffling.binary_response import FAR, Bits, through
from turnout.accounting.shuffling.blanket import BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import BlanketPair, worst_pair
from turnout.core.arrays import ComplexArray, FloatArray
from turnout.core.errors import UnsupportedError

_DENSITY, _REACHED = (
    6.0,
    0.9,
)  # nodes a standard deviation of a composed round; part of δ down to which
_GROUPS = 128  # of blanket messages
# Parts of δ that D = 0 may count for, about: as much as one bit more that is turned over, times 2.
_OF_ONE_FLIP, _FEWEST, _MOST = 2.0, 1e-3, 0.2
_FAR_FEWER = 1e-3  # and D > d
_LEAST_MEAN, _SCORES = 1.0, (0.0, 1.5)  # of λ, and deviations of D up to which it counts as less
_ROUNDING, _LEAST_CHANCE = 1e-8, 1e-200
_MOST_MADE_UP = 0.5  # of p, what g may be


class BitsPrice(Protocol):
    """Upper bound on δ(K) of one round of sampled bits, valid in both directions."""

    @property
    def local_epsilon(self) -> float:
        """Local privacy level ε₀ of each bit."""
        ...

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio, at most 1."""
        ...

    def delta(self, k: float) -> float:
        """Upper bound on δ(K) at K ≥ 1; it is 0 from some K ≤ e^{ε₀} on."""
        ...


@dataclass(frozen=True, slots=True)
class SampledBitsRound(Bits):
    """Upper bound on δ(K) of a round in which all n clients send a sampled bit."""

    def delta(self, k: float) -> float:
        """Upper bound on δ(K)."""
        alone = Slots(self.local_epsilon, 1, 1.0, 0.0).delta(k)
        if alone <= 0.0 or self.clients == 1 or self.local_epsilon > FAR:
            return alone
        blanket = min(alone, _blanket(worst_pair(self.local_epsilon), self.clients, k))
        return min(blanket, self._hidden(k, alone, blanket))

    def _hidden(self, k: float, alone: float, blanket: float) -> float:
        """Upper bound on δ(K) from made-up messages, with chosen arguments of `with_made_up`."""
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
        """Upper bound on δ(K) from made-up messages, at one value of g in (0, p).

        Args:
            k: K ≥ 1.
            g: half the chance that a message is made up, in (0, p) with p = 1/(e^{ε₀} + 1).
            edges: increasing numbers from 1 to n − 2, to which the number of made-up messages is
                rounded up.
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
    """Numbers d to which the number D of made-up messages, of mean λ, is rounded up.

    D exceeds the largest d with a probability of at most about ``chance``.

    By Chernoff's bound P(D ≥ d + 1) ≤ exp(−(d + 1)·ln((d + 1)/λ) + d + 1 − λ).
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
    """Round in which every client sends a sampled bit, with upper bounds only."""

    price: BitsPrice

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio."""
        return self.price.loss_deviation

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Upper curve for both directions, tight near the given δ."""
        _require_upper(side)
        return _near(self.price, delta)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Upper curve for both directions, tight from δ = 1 down to the given δ."""
        _require_upper(side)
        curve = _down_to(self.price, delta, refinement)
        return CurvePair(side, [curve], [curve])


def _require_upper(side: Side) -> None:
    if side is Side.LOWER:
        raise UnsupportedError("no lower bound is known for sampled bits; use the upper bound")


@remembered
def _delta(price: BitsPrice, k: float) -> float:
    return price.delta(k)


def _priced(price: BitsPrice) -> PricedSide:
    def priced(k: float, _: Side) -> float:
        return _delta(price, k)

    return priced


@remembered
def _near(price: BitsPrice, delta: float) -> Curve:
    priced, nodes = _priced(price), np.ones(1)
    if price.local_epsilon <= FAR:
        nodes = nodes_near(priced, Side.UPPER, delta, price.loss_deviation)
    return through(priced, nodes, price.local_epsilon)


@remembered
def _down_to(price: BitsPrice, delta: float, refinement: int) -> Curve:
    priced, nodes = _priced(price), np.ones(1)
    if price.local_epsilon <= FAR:
        density = _DENSITY * 2**refinement
        nodes = nodes_down_to(priced, _REACHED * delta, price.loss_deviation, density)
    return through(priced, nodes, price.local_epsilon)


_LEAST_VARIANCE = 1e-6  # of the number of flipped bits, below which the message alone counts
_LARGEST_LOCAL_EPSILON = 30.0
_EVERY_SPLIT = 400  # so few slots that every j is tried
_RARE = 30.0  # so few flipped bits that lattices show
_BLUR = 0.9  # least τ in gains' widths where not every j is tried
_FINE_BLUR = 0.06  # τθ, of which e^{τ²θ²/2} is about what the noise costs
_DEVIATIONS, _FALL = 14.0, 30.0  # L, in deviations of S and in 1/θ
_NEGLIGIBLE = 7.0  # τu of the last frequency
_FIRST_NODES, _CLOSE, _MOST_HALVINGS, _MOST_NODES = 8, 1e-3, 40, 400
_LEAST_TILT, _MOST_TILT = 1e-3, 300.0  # θ in 1/(√N·width) and in 1/width
_TILTS, _NEAR = 60, 1e-2  # steps to the best θ, and how near it
_AT_ONCE = 1 << 19  # terms
_LARGEST_EXPONENT, _TINY = 500.0, 1e-9
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


@dataclass(frozen=True, slots=True)
class Slots:
    """N slots of one bit each, of which one holds the client's bit with probability γ.

    Attributes:
        local_epsilon: ε₀ > 0 of the client's binary response.
        count: N ≥ 1.
        rate: γ in (0, 1].
        flip: f in [0, ½], probability that the bit of another client is flipped; equal to
            `flip_of(ε₀)` if the others use the client's randomizer.
    """

    local_epsilon: float
    count: int
    rate: float
    flip: float

    def delta(self, k: float) -> float:
        """Upper bound on the largest δ(K) over all true bits of the slots.

        K is e^ε. The bound is 0 for K ≥ 1 + γ(e^{ε₀} − 1).

        Source: docs/design/shuffling.md, "Sampled bits".

        >>> f"{Slots(1.0, 1000, 1.0, flip_of(1.0)).delta(1.1):.1e}"
        '2.7e-05'
        """
        alone = self._alone(k)
        variance = self.count * self.flip * (1.0 - self.flip)
        far = self.local_epsilon > _LARGEST_LOCAL_EPSILON
        if alone <= 0.0 or far or variance < _LEAST_VARIANCE:
            return alone
        gains = _Gains.of(self, k)
        return min(alone, self.rate * _largest_mean(gains, self.count))

    def _alone(self, k: float) -> float:
        """Value δ(K) of the client's message alone, if the client sends with probability γ."""
        if math.log(k) >= self.local_epsilon:
            return 0.0
        growth = math.expm1(min(self.local_epsilon, 600.0))
        gain = (self.rate * growth * (1.0 + 8 * UNIT_ROUNDOFF) - (k - 1.0)) / (growth + 2.0)
        return max(gain * (1.0 + 8 * UNIT_ROUNDOFF), 0.0)


def flip_of(local_epsilon: float) -> float:
    """Probability 1/(e^{ε₀} + 1) that binary response flips a bit."""
    return 1.0 / (1.0 + math.exp(min(local_epsilon, 600.0)))


def _largest_mean(gains: _Gains, count: int) -> float:
    """Upper bound on the largest E(S_j)₊/N over all j from 0 to N = ``count``.

    S_j is the sum of j independent gains Y₁ and N − j independent gains Y₀.
    """
    terms = _Terms.of(gains, count)
    nodes = np.unique(np.rint(np.linspace(0.0, count, _FIRST_NODES + 1)))
    values, bends = terms.at(nodes)
    for _ in range(_MOST_HALVINGS):
        above = _between(nodes, values, bends)
        wide = (above > np.max(values) * (1.0 + _CLOSE)) & (np.diff(nodes) > 1.0)
        if not wide.any() or nodes.size > _MOST_NODES:
            break
        more = np.floor(0.5 * (nodes[:-1] + nodes[1:]))[wide]
        found = terms.at(more)
        nodes, order = np.unique(np.append(nodes, more), return_index=True)
        values, bends = (
            np.append(old, new)[order] for old, new in ((values, found[0]), (bends, found[1]))
        )
    return float(np.max(_between(nodes, values, bends))) / count


def _between(nodes: FloatArray, values: FloatArray, bends: FloatArray) -> FloatArray:
    """Upper bound on T(j) over the whole numbers j between neighbouring nodes.

    ``values`` and ``bends`` are upper bounds on T and on |T''| at the nodes (see `_Terms`).
    """
    gaps = np.diff(nodes)
    inner = np.where(gaps > 1.0, gaps**2 / 8.0, 0.0)
    return np.maximum(values[1:], values[:-1]) + inner * np.maximum(bends[1:], bends[:-1])


@dataclass(frozen=True, slots=True)
class _Gains:
    """Gain of a slot, a term of the bound on δ(K): Y₁ or Y₀, each with two values.

    Y₁ is the gain of a slot whose true bit equals the client's bit in P, Y₀ that of any other slot.
    The fields are the likelier value of Y₁, its distance to the other value, the same for Y₀, and
    f, the probability that a true bit is flipped, which gives the other value.
    """

    one: float
    one_apart: float
    zero: float
    zero_apart: float
    flip: float

    @classmethod
    def of(cls, slots: Slots, k: float) -> _Gains:
        p, growth, gap = flip_of(slots.local_epsilon), math.expm1(slots.local_epsilon), k - 1.0
        a, b = p * (growth - gap), p * (growth + gap * (growth + 1.0))
        c = gap * (1.0 - slots.rate) / slots.rate
        f, true = slots.flip, 1.0 - slots.flip
        return cls(a / true - c, -b / f - a / true, -b / true - c, a / f + b / true, f)

    @property
    def width(self) -> float:
        """Distance between the two values of Y₁ or of Y₀, whichever is larger."""
        return max(-self.one_apart, self.zero_apart)

    def deviation(self, count: int, tilt: float) -> float:
        """Upper bound, nearly tight, on the deviation of the sum of ``count`` gains, tilted."""
        found = 0.0
        for apart in (self.one_apart, self.zero_apart):
            grown = min(tilt * apart, _LARGEST_EXPONENT) - _log_mixed(self.flip, tilt * apart)
            share = min(self.flip * math.exp(grown), 1.0)
            found = max(found, abs(apart) * math.sqrt(count * share * (1.0 - share)))
        return found

    def blur(self, count: int, tilt: float) -> float:
        """Standard deviation τ of the Gaussian noise that is added to the sum of the gains.

        τ is larger if the sum is bounded for only some of the numbers j of gains Y₁.
        """
        fine = _FINE_BLUR / tilt
        if count <= _EVERY_SPLIT or count * self.flip * (1.0 - self.flip) < _RARE:
            return fine
        return max(_BLUR * self.width, fine)

    def log_moment(self, tilt: float) -> float:
        """Larger of ln E e^{θY₁} and ln E e^{θY₀} at the tilt θ, rounded up."""
        one = _log_mixed(self.flip, tilt * self.one_apart)
        zero = _log_mixed(self.flip, tilt * self.zero_apart)
        return max(tilt * self.one + one, tilt * self.zero + zero)


def _log_mixed(share: float, exponent: float) -> float:
    """Upper bound on ln(1 − f + f·e^x), tight but for rounding; f is ``share``, x ``exponent``."""
    if exponent > _LARGEST_EXPONENT:
        return max(math.log(share) + exponent, 0.0) + _TINY
    return math.log1p(share * math.expm1(exponent))


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """Terms of the sum T(j), an upper bound on E(S_j)₊ with S_j as in `_largest_mean`.

    The logarithm of a term is linear in j. The fields are its value at j = 0, its slope in j, the
    weights of the terms, and bounds on the errors.
    """

    at_zero: ComplexArray
    slope: ComplexArray
    weight: FloatArray
    rounding: FloatArray
    left_out: float

    @classmethod
    def of(cls, gains: _Gains, count: int) -> _Terms:
        """Terms of T(j) at a tilt θ that nearly minimizes the bound."""
        # Tilt, blur, period and frequencies.
        tilt = _best_tilt(gains, count)
        tau = gains.blur(count, tilt)
        reach = gains.deviation(count, tilt) + gains.zero_apart + tau
        period = max(_FALL / tilt, _DEVIATIONS * reach)
        step = 2.0 * math.pi / period
        last = math.ceil(_NEGLIGIBLE / (tau * step))
        zeta = np.asarray(tilt + 1j * step * np.arange(last + 1), dtype=complex)
        # Logarithms of the terms at j = 0 and their slopes in j.
        one, zero, size = _logs(gains, zeta)
        shape = 0.5 * (tau * zeta) ** 2 - 2.0 * np.log(zeta)
        slope = one - zero
        # A multiple of 2πi may be subtracted, since j is a whole number.
        slope = slope - 2j * math.pi * np.rint(np.imag(slope) / (2.0 * math.pi))
        # Weights of the sum; each frequency except 0 stands for its conjugate too.
        weight = np.full(last + 1, step / math.pi)
        weight[0] *= 0.5
        # Rounding of each term, and a bound on the frequencies left out.
        rounding = 16.0 * UNIT_ROUNDOFF * (count * size + np.abs(shape) + 32.0)
        end = step * last
        exponent = count * gains.log_moment(tilt) + 0.5 * tau**2 * (tilt**2 - end**2)
        left_out = math.exp(min(exponent, 700.0)) / (math.pi * end**3 * tau**2)
        return cls(count * zero + shape, slope, weight, rounding, left_out)

    def at(self, splits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Upper bounds on T(j) and on |T''(j)| at each j in ``splits``, same shape."""
        rows = max(1, _AT_ONCE // self.weight.size)
        parts = [self._few(splits[i : i + rows]) for i in range(0, splits.size, rows)]
        values, bends = (np.concatenate(part) for part in zip(*parts, strict=True))
        return values, bends

    def _few(self, splits: FloatArray) -> tuple[FloatArray, FloatArray]:
        terms = np.exp(self.at_zero[None, :] + splits[:, None] * self.slope[None, :])
        size = np.abs(terms)
        doubt = self.weight * np.expm1(self.rounding)
        values = np.real(terms) @ self.weight + size @ doubt + self.left_out
        bends = size @ ((self.weight + doubt) * np.abs(self.slope) ** 2)
        return values, bends * (1.0 + _CLOSE)


def _logs(gains: _Gains, zeta: ComplexArray) -> tuple[ComplexArray, ComplexArray, FloatArray]:
    """Logarithms of E e^{ζY₁} and E e^{ζY₀}, and the scale of their rounding errors.

    The scale is the sum of the magnitudes that are added. The error of each logarithm is at most a
    few units of round-off times the scale.
    """
    f = gains.flip
    one = np.log1p(f * np.expm1(gains.one_apart * zeta))
    zero = np.log1p(f * np.expm1(gains.zero_apart * zeta))
    highest = max(abs(gains.one), abs(gains.zero))
    size = (highest + gains.width) * np.abs(zeta) + np.abs(one) + np.abs(zero) + 1.0
    return gains.one * zeta + one, gains.zero * zeta + zero, size


def _best_tilt(gains: _Gains, count: int) -> float:
    """Tilt θ near the minimum of M(θ)/θ², by golden section; any θ gives a valid bound.

    M(θ) is an upper bound on E e^{θS} for the sum S of ``count`` gains.
    """

    def bound(log_tilt: float) -> float:
        return count * gains.log_moment(math.exp(log_tilt)) - 2.0 * log_tilt

    # Bracket of ln θ, shrunk by golden section.
    low = math.log(_LEAST_TILT / (math.sqrt(count) * gains.width))
    high = math.log(_MOST_TILT / min(-gains.one_apart, gains.zero_apart))
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = bound(left), bound(right)
    # Keep the side with the smaller bound; one new evaluation a step.
    for _ in range(_TILTS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = bound(right)
        if high - low < _NEAR:
            break
    return math.exp(0.5 * (low + high))
