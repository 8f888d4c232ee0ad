"""Bits in slots: what they show of a client whose bit is in a slot that nobody knows.

Notation
    ε₀       of binary response;  e = e^{ε₀}, q = e/(e + 1), p = 1 − q
    N, γ     slots, and the chance that the client's bit is in one of them
    f        chance that a slot's true bit is turned over, if the slot is not the client's
    K        e^ε;  a = q − Kp, b = Kq − p, c = (K − 1)(1 − γ)/γ
    j        slots whose true bit, the client's left out, is the one that it prefers in P
    Y₁, Y₀   gain of such a slot, a/(1 − f) − c or, with chance f, −b/f − c; and of another,
             −b/(1 − f) − c or, with chance f, a/f − c
    S_j      the sum of j gains Y₁ and N − j gains Y₀, independent
    M(ζ)     E e^{ζS}; ζ = θ + iu

δ(K) is at most (γ/N)·max over j of E(S_j)₊ (docs/design/shuffling.md, "Sampled bits").

**The expectation.** To add independent noise of mean 0 to S only makes E(S)₊ larger (Jensen), and
Gaussian noise of deviation τ makes the transform M fall like e^{−τ²u²/2}. For any θ > 0 and Δ > 0
Poisson's summation says

    (Δ/2π)·Σ_m M(ζ_m)/ζ_m² = Σ_l e^{θlL}·E(S − lL)₊,   ζ_m = θ + imΔ, L = 2π/Δ,

and no term on the right is negative: the left side is an upper bound whatever θ and Δ are. θ is
about where M(θ)/θ² is least, so that the terms but l = 0 are next to nothing.

**The largest over j.** The left side is T(j) = Σ_m t_m·e^{jD_m}, of which |T''| is at most
Σ|t_m||D_m|²|e^{jD_m}|, convex in j. So between two j's T is at most the larger one of its ends plus
an eighth of the distance squared times the larger bound on |T''|. Intervals are halved until that
is little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF

FloatArray = np.ndarray
ComplexArray = np.ndarray

_LEAST_VARIANCE = 1e-6  # of the number of bits turned over, below which nothing is computed
_LARGEST_LOCAL_EPSILON = 30.0
_EVERY_SPLIT = 400  # slots so few that every j is looked at
_RARE = 30.0  # so few bits turned over that lattices show
_BLUR = 0.9  # τ in gains' widths, at least, where not every j is looked at
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
    """N slots that hide a client.

    Attributes:
        local_epsilon: ε₀ > 0 of the client's binary response.
        count: N ≥ 1.
        rate: γ in (0, 1].
        flip: f in [0, ½]; `flip_of` ε₀ where the others respond as the client does.
    """

    local_epsilon: float
    count: int
    rate: float
    flip: float

    def delta(self, k: float) -> float:
        """Upper bound on δ(K), the largest over the slots' true bits, 0 from K = 1 + γ(e − 1) on.

        Source: docs/design/shuffling.md, "Sampled bits".

        >>> f"{Slots(1.0, 1000, 1.0, flip_of(1.0)).delta(1.1):.1e}"
        '2.1e-05'
        """
        alone = self._alone(k)
        variance = self.count * self.flip * (1.0 - self.flip)
        far = self.local_epsilon > _LARGEST_LOCAL_EPSILON
        if alone <= 0.0 or far or variance < _LEAST_VARIANCE:
            return alone
        gains = _Gains.of(self, k)
        return min(alone, self.rate * _largest_mean(gains, self.count))

    def _alone(self, k: float) -> float:
        """What the client's own message shows."""
        if math.log(k) >= self.local_epsilon:
            return 0.0
        growth = math.expm1(min(self.local_epsilon, 600.0))
        gain = (self.rate * growth * (1.0 + 8 * UNIT_ROUNDOFF) - (k - 1.0)) / (growth + 2.0)
        return max(gain * (1.0 + 8 * UNIT_ROUNDOFF), 0.0)


def flip_of(local_epsilon: float) -> float:
    """1/(e^{ε₀} + 1)."""
    return 1.0 / (1.0 + math.exp(min(local_epsilon, 600.0)))


@dataclass(frozen=True, slots=True)
class _Gains:
    """Y₁ and Y₀: the likelier gain of each, how far away the other one is, and f."""

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
        """The larger distance between the two values of a gain."""
        return max(-self.one_apart, self.zero_apart)

    def deviation(self, count: int, tilt: float) -> float:
        """About the standard deviation of S under a tilt, and no less."""
        found = 0.0
        for apart in (self.one_apart, self.zero_apart):
            grown = min(tilt * apart, _LARGEST_EXPONENT) - _log_mixed(self.flip, tilt * apart)
            share = min(self.flip * math.exp(grown), 1.0)
            found = max(found, abs(apart) * math.sqrt(count * share * (1.0 - share)))
        return found

    def blur(self, count: int, tilt: float) -> float:
        """τ: little, but where not every j is looked at the gains' lattices should not show."""
        fine = _FINE_BLUR / tilt
        if count <= _EVERY_SPLIT or count * self.flip * (1.0 - self.flip) < _RARE:
            return fine
        return max(_BLUR * self.width, fine)

    def log_moment(self, tilt: float) -> float:
        """The larger one of ln E e^{θY₁} and ln E e^{θY₀}, not below either."""
        one = _log_mixed(self.flip, tilt * self.one_apart)
        zero = _log_mixed(self.flip, tilt * self.zero_apart)
        return max(tilt * self.one + one, tilt * self.zero + zero)


def _log_mixed(share: float, exponent: float) -> float:
    """Ln(1 − f + f·e^x), or a little more."""
    if exponent > _LARGEST_EXPONENT:
        return max(math.log(share) + exponent, 0.0) + _TINY
    return math.log1p(share * math.expm1(exponent))


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """The terms of T(j): logarithms at j = 0 and their slopes D, weights, and what is left out."""

    at_zero: ComplexArray
    slope: ComplexArray
    weight: FloatArray
    rounding: FloatArray
    left_out: float

    @classmethod
    def of(cls, gains: _Gains, count: int) -> _Terms:
        """The terms at about the best tilt."""
        tilt = _best_tilt(gains, count)
        tau = gains.blur(count, tilt)
        reach = gains.deviation(count, tilt) + gains.zero_apart + tau
        period = max(_FALL / tilt, _DEVIATIONS * reach)
        step = 2.0 * math.pi / period
        last = math.ceil(_NEGLIGIBLE / (tau * step))
        zeta = tilt + 1j * step * np.arange(last + 1)
        one, zero, size = _logs(gains, zeta)
        shape = 0.5 * (tau * zeta) ** 2 - 2.0 * np.log(zeta)
        slope = one - zero
        # Another branch of the logarithm is as good, for j is whole.
        slope = slope - 2j * math.pi * np.rint(np.imag(slope) / (2.0 * math.pi))
        weight = np.full(last + 1, step / math.pi)
        weight[0] *= 0.5
        rounding = 16.0 * UNIT_ROUNDOFF * (count * size + np.abs(shape) + 32.0)
        end = step * last
        exponent = count * gains.log_moment(tilt) + 0.5 * tau**2 * (tilt**2 - end**2)
        left_out = math.exp(min(exponent, 700.0)) / (math.pi * end**3 * tau**2)
        return cls(count * zero + shape, slope, weight, rounding, left_out)

    def at(self, splits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Upper bounds on T and on |T''| at each j, shape of ``splits``."""
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
    """Ln E e^{ζY₁}, ln E e^{ζY₀}, and how large the numbers were that made them up."""
    f = gains.flip
    one = np.log1p(f * np.expm1(gains.one_apart * zeta))
    zero = np.log1p(f * np.expm1(gains.zero_apart * zeta))
    highest = max(abs(gains.one), abs(gains.zero))
    size = (highest + gains.width) * np.abs(zeta) + np.abs(one) + np.abs(zero) + 1.0
    return gains.one * zeta + one, gains.zero * zeta + zero, size


def _best_tilt(gains: _Gains, count: int) -> float:
    """About the θ at which the bound M(θ)/θ² is least, by golden section; any θ will do."""

    def bound(log_tilt: float) -> float:
        return count * gains.log_moment(math.exp(log_tilt)) - 2.0 * log_tilt

    low = math.log(_LEAST_TILT / (math.sqrt(count) * gains.width))
    high = math.log(_MOST_TILT / min(-gains.one_apart, gains.zero_apart))
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = bound(left), bound(right)
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


def _largest_mean(gains: _Gains, count: int) -> float:
    """Upper bound on the largest E(S_j)₊/N."""
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
    """Upper bounds on T at the whole numbers of each interval."""
    gaps = np.diff(nodes)
    inner = np.where(gaps > 1.0, gaps**2 / 8.0, 0.0)
    return np.maximum(values[1:], values[:-1]) + inner * np.maximum(bends[1:], bends[:-1])
