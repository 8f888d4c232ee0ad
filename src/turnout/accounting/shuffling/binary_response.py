"""Shuffled binary response: δ(K) for known bits of all other clients, and the largest over bits.

`BinaryResponseBlock` is the block of one round, `BinaryResponseCurve` the curve for known bits of
the other clients. A *split* is a pair of numbers: how many others have the bit 1 and the bit 0.
`split_prices` returns lower and upper bounds on δ(K) of given splits as `SplitPrices`;
`worst_split` bounds the largest δ(K) over all splits. `sampled_bits` and `lower_bounds` use `Bits`
and `through`; `messages` makes the block. docs/design/shuffling.md, "Binary response", has the
proof.

Notation
    ε₀       of the response;  e = e^{ε₀}, q = e/(e + 1) the chance of the true bit, p = 1 − q
    K        e^ε;  c₁ = q − K·p,  c₂ = K·q − p,  c₂ − c₁ = K − 1
    a, b     others whose bit is 1, and 0
    V        ones among their messages: Bin(a, q) + Bin(b, p), mass function v
    s        an exponential tilt;  v_s(u) = v(u)·e^{su − Λ(s)}

The victim's bit is 1 in one world and 0 in the other. The number of ones has the masses
q·v(c − 1) + p·v(c) and p·v(c − 1) + q·v(c). v is log-concave, so the ratio rises with c, the event
with the largest P(E) − K·Q(E) is "more than t ones" for some t, and

    δ(K) = max over t of f(t),   f(t) = c₁·v(t) − (K − 1)·P(V > t),

where f rises up to its maximum and falls after it, so the signs of two differences prove a maximum.
The curve of the other direction is the same with a and b swapped, because zeros and ones change
places.

**Masses.** v_s has the transform φ(θ) in closed form. Σ_l v_s(t + lP) is a sum over P frequencies,
of which only those with |θ| up to about 9 over the standard deviation of V matter: |φ(θ)| ≤
exp(−var·(1 − cos θ)). At the tilt ln(c₂/c₁) the t with the largest f(t) is the mean. So one bound
needs about twenty-five cosines for any number of clients. An upper bound adds and a lower bound
subtracts three errors: masses at a distance of P (Chernoff), frequencies left out, and round-off.

**Any split.** A cell is a range a₁ ≤ a ≤ a₂. Of the n − 1 other clients, a₁ are known to hold a one
and n − 1 − a₂ a zero; the bits of the remaining clients are unknown. If the messages of the
remaining clients are disclosed, they no longer hide the victim; so the cell's δ is at most that of
Bin(a₁, q) + Bin(n − 1 − a₂, p). Cells whose bound is above the largest δ of a known split are cut
further.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.accounting.divergence.blocks import CurvePair
from turnout.accounting.divergence.curves import (
    Curve,
    Direction,
    PricedSide,
    Side,
    nodes_down_to,
    nodes_near,
    upper_polygon,
)
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import charge, remembered
from turnout.accounting.shuffling.blanket import BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import stronger_clones_pair
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError

_UNITS_A_SPLIT = 100  # of work

_LARGEST_LOCAL_EPSILON, _LARGEST_KNOWN = 600.0, 300.0

FAR = 140.0
"""ε₀ from which on the search for roots may fail, and shuffling is no help."""

_ALL_SPLITS = 256  # so few others that every split is tried

_LOOSE, _LOOSEST = 2e-3, 0.05  # relative width of a bracket on δ, as a multiple of 1 + z²

_DENSITY = 6.0  # nodes a standard deviation of a composed round's upper curve

_AHEAD = 1.001  # last K, over the ε of the split that is mostly the worst

_REACHED = 0.9  # curves are made down to this part of the last δ


@dataclass(frozen=True, slots=True)
class Bits:
    """Round in which each of n ≥ 1 clients sends one bit by binary response with parameter ε₀."""

    local_epsilon: float
    clients: int

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(clients=self.clients)

    @property
    def loss_deviation(self) -> float:
        """Approximate standard deviation of the likelihood ratio, at most 1."""
        half = min(0.5 * self.local_epsilon, 0.5 * _LARGEST_LOCAL_EPSILON)
        return min(1.0, 2.0 * math.sinh(half) / math.sqrt(self.clients))


@dataclass(frozen=True, slots=True)
class BinaryResponseBlock(Bits):
    """Round of shuffled binary response, for all possible bits of the other clients.

    The upper curve is the supremum over all splits of the others' bits at each K. From about 1e9
    clients on the supremum is below the rounding error, and the curve is that of the pair of all
    ε₀-randomizers. The lower curve is that of one split: all others hold the bit 1, which is the
    victim's bit in P. Its REMOVE direction, for events that are likelier in P, usually has the
    larger δ.
    """

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Upper curve, tight near the given δ, or exact lower curve of the REMOVE direction."""
        if side is Side.LOWER:
            return self._identical_others_curve(Direction.REMOVE)
        return _near(self, delta, refinement)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Upper curve for both directions, or lower curves of one split of the others' bits."""
        if side is Side.LOWER:
            return CurvePair(
                side,
                [self._identical_others_curve(Direction.REMOVE)],
                [self._identical_others_curve(Direction.ADD)],
            )
        curve = _composed(self, delta, refinement)
        return CurvePair(side, [curve], [curve])

    def supremum(self, k: float, refinement: int) -> float:
        """Upper bound on the largest δ(K) over all splits of the other clients' bits."""
        return _supremum(self.local_epsilon, self.clients - 1, k, self.width(k, refinement))

    def width(self, k: float, refinement: int) -> float:
        """Relative width of the bounds between which the supremum is found."""
        if self.clients - 1 <= _ALL_SPLITS:
            return 0.0
        deviations = math.log(k) / self.loss_deviation
        return min(_LOOSE * (1.0 + deviations**2), _LOOSEST) / 2**refinement

    def _identical_others_curve(self, direction: Direction) -> Curve:
        others = self.clients - 1
        return BinaryResponseCurve(self.local_epsilon, self.clients, others, direction, Side.LOWER)


@dataclass(frozen=True, slots=True)
class BinaryResponseCurve:
    """Curve δ(K) of shuffled binary response for known bits of the others, exact up to rounding.

    Source: docs/design/shuffling.md, "Binary response".

    Attributes:
        ones: number of the n − 1 other clients that hold a 1.
        direction: REMOVE for events that are likelier if the victim holds a 1, ADD for events
            that are likelier if the victim holds a 0.
        side: side to which rounding errors are moved.

    >>> curve = BinaryResponseCurve(1.0, 100_000, 99_999, Direction.REMOVE, Side.LOWER)
    >>> f"{float(curve.delta(np.exp(0.01014))):.2e}"
    '1.00e-06'
    """

    local_epsilon: float
    clients: int
    ones: int
    direction: Direction
    side: Side

    def __post_init__(self) -> None:
        checks.positive(local_epsilon=self.local_epsilon)
        checks.count(clients=self.clients)
        checks.count(0, ones=self.ones)
        if self.ones >= self.clients:
            raise ParameterError("ones", self.ones, f"at most clients - 1 = {self.clients - 1}")

    def delta(self, k: FloatArray) -> FloatArray:
        """Value δ(K) of the curve at each K ≥ 1, shape of ``k``.

        Raises:
            NumericalError: rounding errors are too large to find the event with the largest δ, so
                no upper bound can be certified.
            UnsupportedError: an upper bound is requested, and ε₀ exceeds 300.
        """
        if self.side is Side.LOWER:
            return self._bounds(k).lower
        if self.local_epsilon > _LARGEST_KNOWN:
            raise UnsupportedError(
                f"no upper bound is known for shuffled bits if epsilon0 > {_LARGEST_KNOWN}"
            )
        upper = self._bounds(k).upper
        if np.isinf(upper).any():
            raise NumericalError(
                "no upper bound can be certified for shuffled bits of so many clients: rounding "
                "errors are too large to find the event with the largest delta"
            )
        return upper

    def slope(self, k: FloatArray) -> FloatArray:
        """Slope at each K ≥ 1: −min(P(E), Q(E)) for the event E with the largest P(E) − K·Q(E).

        The result has the shape of ``k``.
        """
        return self._bounds(k).slope

    def _bounds(self, k: FloatArray) -> SplitPrices:
        """Lower and upper bounds on δ(K) at each K in the direction of the curve."""
        identical_others, opposed = self.ones, self.clients - 1 - self.ones
        if self.direction is Direction.ADD:
            identical_others, opposed = opposed, identical_others
        epsilon = min(self.local_epsilon, _LARGEST_KNOWN)
        return split_prices(epsilon, np.array(identical_others), np.array(opposed), k)


@remembered
def _supremum(local_epsilon: float, others: int, k: float, width: float) -> float:
    upper = worst_split(min(local_epsilon, _LARGEST_LOCAL_EPSILON), others, k, width)[1]
    if math.isinf(upper):
        pair = stronger_clones_pair(local_epsilon)
        return float(BlanketCurve(pair, others + 1, Side.UPPER).delta(np.array(k)))
    return upper


@remembered
def _near(block: BinaryResponseBlock, delta: float, refinement: int) -> Curve:
    """Upper curve through bounds at several K near the K at which δ(K) reaches δ.

    That K is estimated from the split in which all others hold one bit, usually the worst case.
    """
    identical_others = block.curve(Direction.REMOVE, Side.LOWER, delta, refinement)

    def roughly(k: float, _: Side) -> float:
        return float(identical_others.delta(np.array(k))) * (1.0 + block.width(k, refinement))

    def priced(k: float, _: Side) -> float:
        return block.supremum(k, refinement)

    if block.local_epsilon > FAR:
        return through(priced, np.ones(1), block.local_epsilon)
    nodes = nodes_near(roughly, Side.UPPER, delta, block.loss_deviation)
    nodes = np.append(nodes, nodes[-1] ** _AHEAD)
    if priced(float(nodes[-1]), Side.UPPER) > delta:
        nodes = nodes_near(priced, Side.UPPER, delta, block.loss_deviation)
    return through(priced, nodes, block.local_epsilon)


@remembered
def _composed(block: BinaryResponseBlock, delta: float, refinement: int) -> Curve:
    def priced(k: float, _: Side) -> float:
        return block.supremum(k, refinement)

    if block.local_epsilon > FAR:
        return through(priced, np.ones(1), block.local_epsilon)
    density = _DENSITY * 2**refinement
    nodes = nodes_down_to(priced, _REACHED * delta, block.loss_deviation, density)
    return through(priced, nodes, block.local_epsilon)


def through(priced: PricedSide, nodes: FloatArray, local_epsilon: float) -> Curve:
    """Upper curve through upper bounds at the nodes K < e^{ε₀}; the curve is 0 from e^{ε₀} on.

    Args:
        priced: function that returns an upper bound on δ at a K.
        nodes: increasing values of K below e^{ε₀}, shape (m,).
        local_epsilon: ε₀ of each bit.
    """
    if local_epsilon > _LARGEST_LOCAL_EPSILON:
        return upper_polygon(np.array([1.0, math.exp(_LARGEST_LOCAL_EPSILON)]), np.ones(2))
    if nodes.size == 1 or math.log(nodes[-1]) > local_epsilon:
        end = math.exp(local_epsilon) * (1.0 + 1e-12)
        nodes = np.append(nodes[nodes < end], end)
    return upper_polygon(nodes, np.array([priced(float(k), Side.UPPER) for k in nodes]))


_OFFSETS = np.arange(-2, 3)  # t's tried on either side of the mean

_DEVIATIONS, _LEAST_REACH = 9.0, 40.0  # half of P, in deviations and beyond

_NEGLIGIBLE = 36.0  # minus the logarithm of what a frequency left out may weigh

_ROUNDINGS = 512.0  # u's that every term and every exponent may be off by

_MOST_MOVES = 60  # by two ones each, until the best t lies in sight

_AT_ONCE = 256  # rows, so that arrays stay small

_TINY = 1e-300

_FIRST_CELLS, _PARTS, _MOST_CELLS = 8, 4, 20_000


@dataclass(frozen=True, slots=True, eq=False)
class SplitPrices:
    """Bounds on δ(K) for several splits, and slopes dδ/dK, as arrays of one shape.

    Attributes:
        lower: lower bounds on δ(K).
        upper: upper bounds on δ(K); infinite where rounding errors are too large to find the event
            with the largest δ.
        slope: slopes dδ/dK.
    """

    lower: FloatArray
    upper: FloatArray
    slope: FloatArray


def split_prices(
    local_epsilon: float, ones: FloatArray, zeros: FloatArray, k: FloatArray
) -> SplitPrices:
    """Bounds on δ(K) of shuffled binary response for known bits of the other clients.

    δ(K) is the largest value of P(E) − K·Q(E) over all events E. The victim is the client whose
    bit differs: the bit is 1 under P and 0 under Q. The arrays ``ones``, ``zeros`` and ``k``
    broadcast; the results have their common shape.

    Source: docs/design/shuffling.md, "Binary response".

    Args:
        local_epsilon: ε₀ in (0, 300].
        ones: number of other clients whose bit is 1.
        zeros: number of other clients whose bit is 0.
        k: K ≥ 1.

    Returns:
        Lower and upper bounds that differ by rounding, about 1e-11 of δ for a million clients. The
        upper bound is infinite where rounding errors are too large to find the event E with the
        largest value, from about 1e9 clients on.

    >>> float(split_prices(1.0, np.array(0), np.array(0), np.array(1.0)).lower.round(4))
    0.4621
    """
    rows = np.broadcast_arrays(ones, zeros, np.asarray(k, dtype=float))
    flat = [np.asarray(row, dtype=float).ravel() for row in rows]
    charge(_UNITS_A_SPLIT * flat[0].size)
    result = np.empty((3, flat[0].size))
    for start in range(0, flat[0].size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        result[:, part] = _solved_rows(local_epsilon, *(row[part] for row in flat))
    lower, upper, slope = result.reshape(3, *rows[0].shape)
    return SplitPrices(lower, upper, slope)


def worst_split(
    local_epsilon: float, others: int, k: float, tolerance: float
) -> tuple[float, float]:
    """Lower and upper bound on the largest δ(K) over all splits of the other clients' bits.

    Source: docs/design/shuffling.md, "Binary response". If ε₀ > 300, then K must be 1 or at least
    e^{ε₀}. Cells are cut until the relative gap between the bounds is at most ``tolerance``.

    Args:
        local_epsilon: ε₀ of each bit, above 0.
        others: number of other clients, n − 1.
        k: K = e^ε ≥ 1.
        tolerance: requested relative gap between the two bounds.

    Returns:
        The lower and the upper bound; they differ by rounding alone if every cell is a single
        split. The upper bound is infinite where rounding errors are too large to find the event
        with the largest δ.
    """
    # First cells of the number of ones; the largest δ(K) of the two extreme splits as lower bound.
    edges = np.unique(np.linspace(0, others + 1, _FIRST_CELLS + 1).astype(int))
    first, last = edges[:-1], edges[1:] - 1
    ends = np.array([0, others])
    lower = float(np.max(split_prices(local_epsilon, ends, others - ends, np.array(k)).lower))
    upper, cells = lower, 0
    while first.size:
        prices = split_prices(local_epsilon, first, others - last, np.array(k))
        if lower == 0.0 and float(np.max(prices.upper)) >= 1.0:
            return 0.0, math.inf  # only rounding, which cutting does not reduce
        # Single splits raise the lower bound.
        single = first == last
        lower = max(lower, float(np.max(prices.lower, where=single, initial=0.0)))
        cells += first.size
        # A cell is final if its upper bound is close to the lower bound, if it is a single split,
        # or if rounding or the number of cells stops the search; other cells are cut.
        hidden = np.isinf(prices.upper).any() or cells > _MOST_CELLS
        enough = single | (prices.upper <= lower * (1.0 + tolerance)) | hidden
        upper = max(upper, float(np.max(prices.upper, where=enough, initial=0.0)))
        first, last = _cut(first[~enough], last[~enough])
    return lower, upper


def _cut(first: FloatArray, last: FloatArray) -> tuple[FloatArray, FloatArray]:
    """First and last number of ones of each cell, after every cell is cut into up to four."""
    count = last - first + 1
    edges = first[:, None] + count[:, None] * np.arange(_PARTS + 1) // _PARTS
    starts, ends = edges[:, :-1].ravel(), edges[:, 1:].ravel() - 1
    kept = starts <= ends
    return starts[kept], ends[kept]


def _solved_rows(local_epsilon: float, a: FloatArray, b: FloatArray, k: FloatArray) -> FloatArray:
    """Lower bound, upper bound and slope of δ(K) for each row of arguments, shape (3, rows).

    ``a`` and ``b`` are the numbers of other clients that hold a 1 and a 0.
    """
    # For K above e^{ε₀}, δ is 0 up to the rounding error of c₁.
    e = math.exp(local_epsilon)
    blur = _blur(local_epsilon)
    result = np.zeros((3, a.size))
    result[1] = np.where(k < e * (1.0 + blur), 8.0 * blur, 0.0)
    # Solve the other rows: move each row's range of thresholds t until it contains the best t.
    left = np.flatnonzero(k < e * (1.0 - 4.0 * blur))
    moved = np.zeros(left.size)
    for _ in range(_MOST_MOVES):
        if not left.size:
            break
        tilted = _Tilted.of(local_epsilon, a[left], b[left], k[left], moved)
        values, errors, slopes = tilted.values()
        scale, off = tilted.scale()
        # The best t of each row; it is proved if the values rise before it and fall after it.
        best, rows = np.argmax(values, axis=1), np.arange(left.size)
        top, error = values[rows, best], errors[rows, best]
        steps, doubt = np.diff(values), errors[:, 1:] + errors[:, :-1]
        done = np.any(steps > doubt, axis=1) & np.any(steps < -doubt, axis=1)
        # Store bounds and slope of all rows; continue rows without a proof from their best t.
        upper = np.minimum((scale + off) * (top + error) + _TINY, 1.0)
        result[0, left] = (scale - off) * np.maximum(top - error, 0.0)
        result[1, left] = np.where(done, upper, np.inf)
        result[2, left] = -scale * slopes[rows, best]
        going = ~done & (_OFFSETS[best] != 0)
        left, moved = left[going], (moved + _OFFSETS[best])[going]
    return result


def _blur(local_epsilon: float) -> float:
    """Bound on the rounding error of c₁ = p·(e − K), with e = e^{ε₀} and p = 1/(e + 1)."""
    return 4.0 * UNIT_ROUNDOFF * (1.0 + local_epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class _Tilted:
    """Tilted distribution of the number V of ones among the other clients' messages, by row.

    δ(K) is the largest f(t) = c₁·v(t) − (K − 1)·P(V > t) over thresholds t, where v is the mass
    function of V. The tilt s of a row puts the mean of V near the t with the largest f(t).
    ``groups`` has two entries, for the others that hold a 1 and a 0: their number, and the tilted
    probabilities that their message is a 1 and a 0.
    """

    epsilon: float
    k: FloatArray
    c1: FloatArray
    tilt: FloatArray
    t: FloatArray
    groups: Sequence[tuple[FloatArray, FloatArray, FloatArray]]

    @classmethod
    def of(
        cls, epsilon: float, a: FloatArray, b: FloatArray, k: FloatArray, moved: FloatArray
    ) -> _Tilted:
        p, q = 1.0 / (1.0 + math.exp(epsilon)), 1.0 / (1.0 + math.exp(-epsilon))
        c1 = p * (math.exp(epsilon) - k)
        x = (k - 1.0) / c1  # e^s − 1
        groups = [
            (count, one * (1.0 + x) / (1.0 + one * x), zero / (1.0 + one * x))
            for count, one, zero in ((a, q, p), (b, p, q))
        ]
        mean = sum((count * one for count, one, _ in groups), np.zeros(k.size))
        t = np.clip(np.floor(mean + 0.5), 0.0, a + b) + moved
        return cls(epsilon, k, c1, np.log1p(x), t, groups)

    @property
    def most(self) -> FloatArray:
        """Largest value that V can take."""
        return self.groups[0][0] + self.groups[1][0]

    @property
    def variance(self) -> FloatArray:
        """Variance of V under the tilt."""
        return sum((count * one * zero for count, one, zero in self.groups), np.zeros(self.k.size))

    def scale(self) -> tuple[FloatArray, FloatArray]:
        """Factor e^{Λ(s) − st} that undoes the tilt s at t, and a bound on the factor's error.

        Λ(s) is ln E[e^{sV}].
        """
        moment, threshold = self._log_moment(self.tilt), self.tilt * self.t
        scale = np.exp(moment - threshold)
        rounding = 8.0 * UNIT_ROUNDOFF * (np.abs(moment) + np.abs(threshold) + _ROUNDINGS)
        return scale, scale * rounding

    def values(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Values of f, bounds on their errors, and P(more than t ones | the victim's bit is 0).

        All are divided by ``scale`` and taken at t + offsets, shape (rows, offsets).
        """
        # Frequencies of the sum, with the transform's size and phase there.
        half = np.ceil(_DEVIATIONS * np.sqrt(self.variance) + _LEAST_REACH)
        frequency, weight, left_out = _frequencies(half, self.variance)
        log_size, phase = self._transform(frequency)
        size = weight * np.exp(log_size)
        # Masses at t + offsets.
        away = phase[:, :, None] - frequency[:, :, None] * _OFFSETS
        mass = np.einsum("rk,rkd->rd", size, np.cos(away))
        # Σ_{j=1}^{half} e^{−ζj}, ζ = s + iθ, for the tail beyond the last t.
        zeta = self.tilt[:, None] + 1j * frequency
        safe = np.where(zeta == 0, 1.0, zeta)
        series = np.expm1(-safe * half[:, None]) / np.expm1(-safe) * np.exp(-safe)
        series = np.where(zeta == 0, half[:, None], series)
        tail = np.sum(size * np.real(np.exp(1j * away[:, :, -1]) * series), axis=1)
        # Tails at the other t's, by adding masses from the last one down.
        beyond, shrink = [tail], np.exp(-self.tilt)
        for i in range(_OFFSETS.size - 1, 0, -1):
            beyond.append(shrink * (mass[:, i] + beyond[-1]))
        # Errors: masses outside, frequencies left out, and rounding.
        of_mass = self._outside(half) + left_out
        of_tail = of_mass * np.abs(series[:, 0])
        rounding = UNIT_ROUNDOFF * (_ROUNDINGS + 8.0 * self.most * frequency[:, -1])
        of_mass = of_mass + rounding * np.sum(size, axis=1)
        of_tail = of_tail + rounding * np.sum(size * np.abs(series), axis=1)
        of_tail = of_tail + _OFFSETS.size * shrink * of_mass
        errors = (of_mass[:, None], of_tail[:, None])
        return self._untilted(mass, np.stack(beyond[::-1], axis=1), errors)

    def _untilted(
        self, mass: FloatArray, beyond: FloatArray, errors: tuple[FloatArray, FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Result of `values`, from masses and tails under the tilt and their errors."""
        p = 1.0 / (1.0 + math.exp(self.epsilon))
        scale = np.exp(-self.tilt[:, None] * _OFFSETS)
        gain, loss = self.c1[:, None], (self.k - 1.0)[:, None]
        doubt = gain * errors[0] + loss * errors[1] + _blur(self.epsilon) * np.abs(mass)
        return (
            scale * (gain * mass - loss * beyond),
            scale * doubt,
            scale * np.maximum(beyond + p * mass, 0.0),
        )

    def _log_moment(self, tilt: FloatArray) -> FloatArray:
        """Logarithm Λ(s) of the moment E[e^{sV}] at the tilt s."""
        p, q = 1.0 / (1.0 + math.exp(self.epsilon)), 1.0 / (1.0 + math.exp(-self.epsilon))
        x = np.expm1(tilt)
        return self.groups[0][0] * np.log1p(q * x) + self.groups[1][0] * np.log1p(p * x)

    def _transform(self, frequency: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Logarithm of |φ(θ)|, and the phase of φ(θ)·e^{−iθt}, at each frequency θ.

        φ is the characteristic function of V under the tilt.
        """
        log_size, phase = np.zeros_like(frequency), -frequency * self.t[:, None]
        sine, square = np.sin(frequency), np.sin(0.5 * frequency) ** 2
        for count, one, zero in self.groups:
            lost = np.minimum(4.0 * (one * zero)[:, None] * square, 1.0 - UNIT_ROUNDOFF)
            log_size += 0.5 * count[:, None] * np.log1p(-lost)
            real = 1.0 - 2.0 * one[:, None] * square
            phase += count[:, None] * np.arctan2(one[:, None] * sine, real)
        return log_size, phase

    def _outside(self, half: FloatArray) -> FloatArray:
        """Twice Chernoff's bound on the mass more than ``half`` away from each t."""
        step = np.minimum(_DEVIATIONS / np.sqrt(np.maximum(self.variance, 1e-12)), 3.0)
        first, last = self.t + _OFFSETS[-1] - half - 1.0, self.t + _OFFSETS[0] + half + 1.0
        here = self._log_moment(self.tilt)
        below = self._log_moment(self.tilt - step) - here + step * first
        above = self._log_moment(self.tilt + step) - here - step * last
        below = np.where(first < 0, 0.0, np.exp(np.minimum(below, 0.0)))
        return 2.0 * (below + np.where(last > self.most, 0.0, np.exp(np.minimum(above, 0.0))))


def _frequencies(
    half: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Frequencies that are kept, their weights, and a bound on the sum of all others.

    Of the P = 2·half + 1 frequencies 2πk/P, k and −k count as one frequency.
    """
    period = 2.0 * half + 1.0
    versine = np.minimum(_NEGLIGIBLE / np.maximum(variance, 1e-12), 2.0)
    enough = np.ceil(period * np.arccos(1.0 - versine) / (2.0 * math.pi))
    kept = int(np.max(np.minimum(enough, half)))
    k = np.arange(kept + 1)
    frequency = 2.0 * math.pi * k / period[:, None]
    weight = np.where(k == 0, 1.0, 2.0) * (k <= half[:, None]) / period[:, None]
    rest = np.maximum(half - kept, 0.0) * 2.0 / period
    # Each at most as large as the last one kept.
    last = np.exp(-variance * (1.0 - np.cos(np.minimum(frequency[:, -1], math.pi))))
    return frequency, weight, np.where(rest > 0, rest * last, 0.0)
