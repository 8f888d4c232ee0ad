"""The worst that can be chosen from a menu: a game solved backwards, exactly but for a grid.

Notation: L the privacy loss so far, ε the target's, w_c(L − ε) the largest chance that whoever has
c units left can still add to δ. With nothing left it is what counts at the end, w₀(x) =
(1 − e^{−x})₊; with c units left

    w_c(x) = max over items of cost a ≤ c of E_P[w_{c−a}(x + loss of the item)],

and δ(ε) = w_c(−ε). Nothing is lost: an adversary who plays the maximising items attains it. One
solution gives all ε, since only L − ε counts. Under the add direction P and Q change places.

Items enter by their pessimistic privacy loss distributions (`losses.loss_law`). A mechanism
that such a distribution dominates is a processed sample of it (Blackwell), so whoever sees the
sample itself can play at least as well.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.loss_laws import CurvePair, loss_law
from turnout.accounting.divergence.neighbour_bounds import Run
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.runs import run_curve

FloatArray = np.ndarray
_GAP = 1 / 32  # loss grid: its step as a part of the narrowest item's spread
_MOST_POINTS = 2**17
_ABOVE = 6.0  # losses above ε + this count as lost altogether: too much by e^−6 of them
_TAIL = 3e-4  # part of δ that may go to infinity over all windows
_FOLD = 1e-9  # mass of P at very small losses that is moved up to larger ones
_ROUNDINGS_A_MASS = 64.0  # as in `composition`
_LARGEST_TILT = 300.0  # exponent of a tilted weight over the whole grid, far from overflow


@dataclass(frozen=True, slots=True)
class Item:
    """What may be chosen: blocks that are run as one, and what they cost.

    Attributes:
        run: the blocks.
        cost: units it uses up, at least 1.
    """

    run: Run
    cost: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of L − ε: ``size`` steps of ``gap`` from −``below`` gaps on.

    Attributes:
        gap: step of losses.
        below: gaps below 0.
        size: points.
        tilt: θ; a second computation keeps w·e^{−θx} accurate where w itself is small.
    """

    gap: float
    below: int
    size: int
    tilt: float

    @property
    def points(self) -> FloatArray:
        """L − ε, shape ``(size,)``."""
        return self.gap * (np.arange(self.size) - self.below)


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """The pessimistic distribution of one item's loss, ready to be convolved.

    ``transform`` and ``tilted`` are FFTs of the masses, of which ``norm`` and ``tilted_norm`` are
    the ℓ2 norms; ``lead`` and ``reach`` the number of points by which losses reach below and above.
    """

    transform: FloatArray
    tilted: FloatArray
    norm: float
    tilted_norm: float
    infinity: float
    lead: int
    reach: int
    length: int

    def expectation(self, grid: Grid, w: FloatArray) -> FloatArray:
        """E_P[w(x + loss)] at every point of the grid, rounded up."""
        # Losses are at most the grid's length, so below its lowest point w is at most w there and
        # above its highest at most 1.
        padded = np.concatenate([np.full(self.lead, w[0]), w, np.ones(self.reach)])
        positions = grid.gap * (np.arange(padded.size) - self.lead - grid.below)
        plain = self._convolved(padded, self.transform, self.norm, grid.size)
        weights = np.exp(-grid.tilt * positions)
        tilted = self._convolved(padded * weights, self.tilted, self.tilted_norm, grid.size)
        tilted *= np.exp(grid.tilt * grid.points) * (1 + 1e-12)
        return np.minimum(np.minimum(plain, tilted) + self.infinity, 1.0)

    def _convolved(
        self, values: FloatArray, transform: FloatArray, norm: float, size: int
    ) -> FloatArray:
        """Σ_j p_j·values[i + j] and a bound on what the FFTs lost, shape ``(size,)``."""
        gamma = (8.0 * math.log2(self.length) + 32.0) * UNIT_ROUNDOFF
        product = transform * np.asarray(fft.rfft(values, self.length))
        sums = np.asarray(fft.irfft(product, self.length))[self.lead + self.reach :][:size]
        return np.maximum(sums, 0.0) + gamma * norm * float(np.linalg.norm(values))


@dataclass(frozen=True, slots=True)
class Game:
    """What may be chosen, how much of it, and what is known of the answer.

    Attributes:
        items: the menu.
        before: blocks that are run first, whatever happens.
        delta: δ.
        expected: about the largest ε that matters; the grid ends somewhat above it.
        units: about as many as matter; only the accuracy at infinity depends on it.
    """

    items: Sequence[Item]
    before: Run
    delta: float
    expected: float
    units: int

    def epsilons(self) -> Iterator[float]:
        """ε at δ with 0, 1, 2 … units, whatever is chosen.

        Yields:
            Upper bounds; where so small a δ cannot be certified, infinity.
        """
        solvers = [_Solver.of(self, direction) for direction in Direction]
        for pair in zip(*(solver.epsilons() for solver in solvers), strict=True):
            yield max(pair)


@dataclass(slots=True)
class _Solver:
    """One direction of the game."""

    grid: Grid
    laws: list[tuple[Law, int]]
    before: list[tuple[Law, int]]
    delta: float

    @classmethod
    def of(cls, game: Game, direction: Direction) -> _Solver:
        windows = game.units + sum(count for _, count in game.before)
        tail = max(_TAIL * game.delta / max(windows, 1), 1e-300)
        firsts: list[tuple[Run, int]] = [([(block, 1)], count) for block, count in game.before]
        grid = _grid(game, min(_spread(run) for run in _runs(game.items, firsts)))
        return cls(
            grid,
            [(_law(grid, item.run, direction, tail), item.cost) for item in game.items],
            [(_law(grid, run, direction, tail), count) for run, count in firsts],
            game.delta,
        )

    def epsilons(self) -> Iterator[float]:
        """ε at δ with 0, 1, 2 … units."""
        # e^{-x} errs by an ulp or two, so does what is subtracted from 1.
        last = np.maximum(-np.expm1(-self.grid.points), 0.0) * (1 + 8 * UNIT_ROUNDOFF)
        values = deque([np.minimum(last, 1.0)], maxlen=max(cost for _, cost in self.laws))
        windows = 0
        while True:
            yield self._epsilon(self._after_before(values[-1]), windows)
            options = [
                law.expectation(self.grid, values[-cost])
                for law, cost in self.laws
                if cost <= len(values)
            ]
            # Who has more units can do what who has fewer can.
            values.append(np.maximum.reduce([values[-1], *options]))
            windows += 1

    def _after_before(self, w: FloatArray) -> FloatArray:
        for law, count in self.before:
            for _ in range(count):
                w = law.expectation(self.grid, w)
        return w

    def _epsilon(self, w: FloatArray, windows: int) -> float:
        """The smallest ε that is proved, by the chord in K = e^ε between two points."""
        count = windows + sum(count for _, count in self.before)
        w = w * (1 + math.expm1(_ROUNDINGS_A_MASS * UNIT_ROUNDOFF * max(count, 1)))
        proved = np.flatnonzero(w[: self.grid.below + 1] <= self.delta)
        if not proved.size:
            return math.inf
        index = int(proved[-1])
        epsilon = -float(self.grid.points[index])
        if index == self.grid.below:
            return 0.0
        low, high = math.exp(epsilon - self.grid.gap), math.exp(epsilon)
        share = (w[index + 1] - self.delta) / (w[index + 1] - w[index])
        return math.log(low + min(share * (1 + 1e-9), 1.0) * (high - low)) * (1 + 1e-12)


def _runs(items: Sequence[Item], firsts: Sequence[tuple[Run, int]]) -> list[Run]:
    return [item.run for item in items] + [run for run, _ in firsts]


def _grid(game: Game, spread: float) -> Grid:
    length = 1.25 * game.expected + 2 * spread + _ABOVE
    gap = max(_GAP * spread, length / _MOST_POINTS)
    below = math.ceil((length - _ABOVE) / gap)
    tilt = min(math.log(1 / game.delta) / max(game.expected, spread), _LARGEST_TILT / length)
    return Grid(gap, below, below + math.ceil(_ABOVE / gap) + 1, tilt)


def _spread(run: Run) -> float:
    return math.sqrt(sum(count * block.spread**2 for block, count in run))


def _curves(run: Run, tail: float) -> CurvePair:
    """Upper curves of a run in both directions, sharp from about ``tail`` on."""
    if len(run) == 1 and run[0][1] == 1:
        return run[0][0].curves(Side.UPPER, tail, 0)
    remove, add = (run_curve(run, d, Side.UPPER, tail, 0) for d in Direction)
    return CurvePair(Side.UPPER, [remove], [add])


def _law(grid: Grid, run: Run, direction: Direction, tail: float) -> Law:
    """The loss distribution of a run on the grid's losses.

    Losses beyond the grid's whole length reach its upper end from anywhere, where all is lost; very
    small ones are moved up.
    """
    curves = _curves(run, tail)
    law = loss_law(curves, direction, grid.gap, tail)
    masses, first, infinity = law.masses, law.lowest, law.infinity
    over = first + masses.size - 1 - grid.size
    if over > 0:
        infinity += float(masses[-over:].sum())
        masses = masses[:-over]
    folded = max(int(np.searchsorted(np.cumsum(masses), _FOLD)), -grid.size - first, 0)
    folded = min(folded, masses.size - 1)
    masses = np.concatenate([[masses[: folded + 1].sum()], masses[folded + 1 :]])
    first += folded
    lead, reach = max(-first, 0), max(first + masses.size - 1, 0)
    losses = grid.gap * (first + np.arange(masses.size))
    tilted = masses * np.exp(grid.tilt * losses)
    # What wraps around lands before the points that are read.
    length = int(fft.next_fast_len(grid.size + lead + reach + 1, real=True) or 0)
    shift = reach - (first + masses.size - 1)
    return Law(
        _flipped(masses, shift, length),
        _flipped(tilted, shift, length),
        float(np.linalg.norm(masses)),
        float(np.linalg.norm(tilted)),
        infinity,
        lead,
        reach,
        length,
    )


def _flipped(masses: FloatArray, shift: int, length: int) -> FloatArray:
    """The transform of masses in reverse, so that products of transforms give Σ p_j·w[i + j]."""
    return np.asarray(fft.rfft(np.concatenate([np.zeros(shift), masses[::-1]]), length))
