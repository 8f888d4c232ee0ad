"""Privacy profile of a scheme: proved bounds on δ as a function of ε, in both directions.

`privacy_profile` returns the `Profile` of a scheme at given ε, `profile_down_to` a profile on a
fine grid. `profile_curves` returns the `ProfileCurves`, which give the profile at any ε.
`DeltaBounds` are the bounds of one direction, at the given ε and everywhere between them. The (ε,
δ) of `pricing` is one point of a profile; the meaning of ε for a person (`membership`,
`explanation`) and the ε of the best of several runs (`selection`) need the whole profile. This
module builds on `decomposition` and `divergence.composition`.

Notation: P is the world with the client, Q the neighbouring world, K = e^ε ≥ 1. *Forward* is
H_K(P‖Q) (remove), *backward* H_K(Q‖P) (add). Both have the same value at K = 1, the total variation
distance. δ(K) is convex and decreasing with slope in [−1, 0]; all operations on bounds in this
module use these properties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from turnout.accounting.decomposition import decompose, is_per_client
from turnout.accounting.divergence.blocks import Decomposition, Run
from turnout.accounting.divergence.composition import is_composed, run_curve
from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.work import WorkSpentError, budget, question
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.participation.one_client import OneClientBlock
from turnout.accounting.participation.replace_one import LocalReplacementBlock, ReplacementBlock
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.schemes import Relation, Scheme

LARGEST_EPSILON = 600.0
"""Largest ε of a profile; beyond it K = e^ε leaves the range in which curves are computed."""

_WINDOW_HINTS = (0.9, 0.5, 0.1, 1e-2, 1e-4, 1e-6)  # δ at which curves of one window are sharp

_RUN_HINTS = (1e-2,)  # the same for a composed run, whose curves are sharp over several decades

_SPLITS = np.linspace(0.0, 1.0, 41)  # shares of ε for the first of two neighbour bounds

_SLOW = (ReplacementBlock, LocalReplacementBlock, OneClientBlock)  # blocks of which a point is slow

_POINTS = 600  # cells of the grid of `profile_down_to`

_MARGINS = (100.0, 10.0, 1.0)  # factors below δ that `profile_down_to` tries to reach

_LEAST_REACH = 1e-6  # least range of ε, for schemes whose ε is almost 0

_UNDERFLOW = 1e-300  # times K: bounds on δ that are closer to 0 lose digits


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Bounds on δ(ε) of a scheme in both directions, for a neighbouring relation.

    Under replace-one either world can be P, so the upper bounds of each direction are valid for
    both directions. The lower bounds are those of one pair of worlds.

    Attributes:
        forward: bounds on H_K(P‖Q).
        backward: bounds on H_K(Q‖P), at the same ε.
        relation: neighbouring relation.
    """

    forward: DeltaBounds
    backward: DeltaBounds
    relation: Relation

    @property
    def epsilons(self) -> FloatArray:
        """Grid of ε, shape ``(n,)``."""
        return self.forward.epsilons

    @property
    def worst(self) -> DeltaBounds:
        """Bounds on the larger δ(ε) of the two directions, which is the δ of (ε, δ)-DP."""
        return self.forward | self.backward

    @property
    def directions(self) -> dict[str, DeltaBounds]:
        """Bounds on δ(ε) in each direction, keyed by the direction names of a `Guarantee`."""
        if self.relation is Relation.REPLACE_ONE:
            return {"replace": self.worst}
        return {Direction.REMOVE.value: self.forward, Direction.ADD.value: self.backward}


def privacy_profile(
    scheme: Scheme, epsilons: FloatArray, *, sharp_to: float = 1e-6, refinement: int = 1
) -> Profile:
    """Profile of a scheme: proved bounds on δ at each ε, in both directions.

    Args:
        scheme: the whole scheme.
        epsilons: values of ε in [0, 600], at least one of them above 0, in any order, shape (n,); 0
            is added.
        sharp_to: δ down to which bounds are narrow, strictly between 0 and 1; bounds at larger ε
            are valid, but wide.
        refinement: level of the grids, at least 0; each level halves their steps.

    Returns:
        Bounds: upper bounds are never below the true δ, lower bounds never above the true δ.

    Raises:
        ParameterError: an argument is out of range.
        UnsupportedError: no sound analysis is known, or windows differ by client.
        NumericalError: no curve can be certified.

    Source: docs/explanation.md.

    >>> import numpy as np
    >>> from turnout.schemes import EveryStep, GaussianNoise
    >>> scheme = Scheme(GaussianNoise(1.0), EveryStep(1), Relation.ADD_REMOVE)
    >>> profile = privacy_profile(scheme, np.array([1.0]))
    >>> profile.forward.upper.round(6).tolist()
    [0.382925, 0.126937]
    """
    curves = profile_curves(scheme, sharp_to=sharp_to, refinement=refinement)
    return curves.at(epsilons)


def profile_down_to(scheme: Scheme, delta: float, also: Sequence[float] = ()) -> Profile:
    """Profile on a fine grid, from ε = 0 to an ε at which δ(ε) is well below the given δ.

    Args:
        scheme: the whole scheme.
        delta: δ, strictly between 0 and 1. The grid ends at about δ/100 or δ/10, or at δ where
            no smaller δ can be certified.
        also: further values of ε; those below the end of the grid are added to the grid.

    Returns:
        Bounds: upper bounds are never below the true δ, lower bounds never above the true δ.

    Raises:
        UnsupportedError: no sound analysis is known, or windows differ by client.
        NumericalError: the profile cannot be certified down to δ.

    Source: docs/explanation.md.
    """
    curves, reach = _reaching(scheme, delta)
    grid = np.linspace(0.0, reach, _POINTS + 1)
    return curves.at(np.append(grid, [epsilon for epsilon in also if epsilon < reach]))


def _reaching(scheme: Scheme, delta: float) -> tuple[ProfileCurves, float]:
    """Curves of a scheme, and an ε at which the curves are well below δ.

    If no such ε can be certified, the result is an ε at which the curves are at most δ.
    """
    for margin in _MARGINS:
        try:
            curves = profile_curves(scheme, sharp_to=delta / margin)
            return curves, max(curves.reach(0.99 * delta / margin), _LEAST_REACH)
        except NumericalError:
            if margin == _MARGINS[-1]:
                raise
    raise AssertionError  # the loop returns or raises


def profile_curves(scheme: Scheme, *, sharp_to: float = 1e-6, refinement: int = 1) -> ProfileCurves:
    """Curves of a scheme, sharp from δ = 1 down to ``sharp_to`` and valid everywhere.

    Args:
        scheme: the whole scheme.
        sharp_to: δ, strictly between 0 and 1.
        refinement: level of the grids, at least 0; each level halves their steps.

    Raises:
        ParameterError: an argument is out of range.
        UnsupportedError: no sound analysis is known, or windows differ by client, so that there
            is no one profile.
        NumericalError: no curve can be certified.

    Source: docs/design/accounting.md.
    """
    checks.open_unit(sharp_to=sharp_to)
    checks.count(0, refinement=refinement)
    if is_per_client(scheme):
        raise UnsupportedError(
            "windows of an availability trace differ by client, so there is no one profile; use "
            "a check-in with the windows of one client"
        )
    return composed_curves(decompose(scheme), scheme.relation, sharp_to, refinement)


def composed_curves(
    parts: Decomposition, relation: Relation, sharp_to: float, refinement: int = 1
) -> ProfileCurves:
    """Curves of a run that is already in blocks; the other arguments are as in `profile_curves`."""
    with question():
        with budget(share=0.5):
            uppers = _uppers(parts, sharp_to, refinement)
        runs = parts.record_against_null.lowers
        lowers = [_lower(runs, direction, sharp_to, refinement) for direction in Direction]
    forward, backward = zip(lowers, uppers, strict=True)
    return ProfileCurves(forward, backward, relation)


def _lower(
    runs: Sequence[Run], direction: Direction, sharp_to: float, refinement: int
) -> _Sharpest:
    """Lower curves of all attacks in one direction; none if the work budget is too small."""
    found: list[_Sharpest] = []
    for run in runs:
        try:
            with budget(share=0.5):
                found.append(_Sharpest.of(run, direction, Side.LOWER, sharp_to, refinement))
        except WorkSpentError:
            found.append(_Sharpest(Side.LOWER, [], False))
    curves = [curve for one in found for curve in one.curves]
    return _Sharpest(Side.LOWER, curves, all(one.empty for one in found))


@dataclass(frozen=True, slots=True, eq=False)
class ProfileCurves:
    """Curves of a scheme, from which its profile can be read at any ε."""

    forward: tuple[_Sharpest, _Upper]
    backward: tuple[_Sharpest, _Upper]
    relation: Relation

    def at(self, epsilons: FloatArray) -> Profile:
        """Profile at ε = 0 and at each given ε in [0, `LARGEST_EPSILON`].

        Args:
            epsilons: values of ε in any order, at least one of them above 0, shape (n,).

        Raises:
            ParameterError: an ε is out of range.
            NumericalError: a bound is NaN, or a lower bound exceeds an upper bound.
        """
        # Check the ε.
        points = np.unique(np.append(0.0, checks.real_array(epsilons=epsilons)))
        if not (points.ndim == 1 and points.size > 1 and np.all(np.isfinite(points))):
            raise ParameterError(
                "epsilons", epsilons, "an array of finite numbers, at least one above 0"
            )
        if points[0] < 0 or points[-1] > LARGEST_EPSILON:
            raise ParameterError("epsilons", epsilons, f"numbers in [0, {LARGEST_EPSILON:g}]")
        # At ε = 0 both directions have the same δ, the total variation distance: share its bounds.
        sides = [
            (lower.delta(points), upper.delta(points))
            for lower, upper in (self.forward, self.backward)
        ]
        distance = Bounds(max(s[0][0] for s in sides), min(s[1][0] for s in sides))
        for lower, upper in sides:
            lower[0], upper[0] = distance.lower, distance.upper
        forward, backward = (DeltaBounds.of(points, *side) for side in sides)
        return Profile(forward, backward, self.relation)

    def reach(self, delta: float) -> float:
        """Least ε found at which both directions have at most the given δ.

        The result is at most 2 % above the least such ε.

        Raises:
            NumericalError: no ε can be certified at so small a δ.
        """
        epsilons = np.concatenate([[0.0], np.geomspace(1e-8, 500.0, 1250), [LARGEST_EPSILON]])
        values = np.maximum(*(upper.delta(epsilons) for _, upper in (self.forward, self.backward)))
        low = np.flatnonzero(values <= delta)
        if not low.size:
            raise NumericalError(f"delta = {delta:.3g} is too small: no epsilon can be certified")
        return float(epsilons[low[0]])


def _uppers(parts: Decomposition, sharp_to: float, refinement: int) -> Sequence[_Upper]:
    """Upper curves of the forward and the backward direction, from one or two neighbour bounds."""

    def sharpest(run: Run, direction: Direction) -> _Sharpest:
        return _Sharpest.of(run, direction, Side.UPPER, sharp_to, refinement)

    record, other = parts.record_against_null.upper, parts.replacement_against_null
    if other is None and parts.through_null is None:
        return [sharpest(record, direction) for direction in Direction]
    if other is None and parts.through_null is not None:
        # Two records, compared directly or through the reference; both directions are equal.
        direct, run = sharpest(record, Direction.REMOVE), parts.through_null.upper
        through = _TwoBounds(*(sharpest(run, direction) for direction in Direction))
        return [_Smaller(direct, through)] * 2
    assert other is not None
    bounds = (record, other.upper)
    leaving, entering = ([sharpest(run, direction) for run in bounds] for direction in Direction)
    return [_TwoBounds(leaving[0], entering[1]), _TwoBounds(leaving[1], entering[0])]


@dataclass(frozen=True, slots=True, eq=False)
class _Sharpest:
    """Several upper (or several lower) curves of one run; at each ε the tightest one is used."""

    side: Side
    curves: Sequence[Curve]
    empty: bool

    @classmethod
    def of(
        cls, run: Run, direction: Direction, side: Side, sharp_to: float, refinement: int
    ) -> _Sharpest:
        """Curves that are sharp at different δ; curves that cannot be certified are left out.

        Raises:
            NumericalError: no upper curve can be certified.
            WorkSpentError: the budget of work ended before the first curve.
        """
        # Blocks whose points take long to compute have one polygon, which is used for every δ.
        single = bool(run) and not is_composed(run)
        if single and isinstance(run[0][0], _SLOW):
            both = run[0][0].curves(side, sharp_to, max(refinement - 1, 0))
            return cls(side, both.remove if direction is Direction.REMOVE else both.add, False)
        # Other runs: one curve for each δ, as many as can be certified.
        hints = {min(1e2 * sharp_to, 0.9), *(_WINDOW_HINTS if single else _RUN_HINTS)}
        curves: list[Curve] = []
        refused: NumericalError | None = None
        for hint in [*(h for h in sorted(hints) if h > sharp_to), sharp_to] if run else []:
            try:
                curves.append(run_curve(run, direction, side, hint, refinement))
            except NumericalError as error:
                refused = error
            except WorkSpentError:
                if not curves:
                    raise
                break
        if refused is not None and not curves and side is Side.UPPER:
            raise refused
        if single and side is Side.UPPER and isinstance(run[0][0], AllocationBlock):
            # An average of ratios is smaller in convex order than each ratio, so the exact curve of
            # a window of one step is an upper bound, which is sharper near δ = 1 if σ is small.
            alone = replace(run[0][0], window=1)
            curves.append(alone.curve(direction, side, sharp_to, refinement))
        return cls(side, curves, not run)

    def delta(self, epsilons: FloatArray) -> FloatArray:
        """Bound on δ at each ε, on the side of the curves, shape of ``epsilons``.

        e^ε is rounded to the same side.
        """
        # Round K = e^ε down for an upper bound and up for a lower one, since δ(K) falls.
        if self.empty:
            return np.zeros_like(epsilons)
        upper = self.side is Side.UPPER
        rounding = 8 * UNIT_ROUNDOFF * (1.0 + epsilons) * (-1.0 if upper else 1.0)
        ratios = np.maximum(np.exp(epsilons) * (1.0 + rounding), 1.0)
        # The best of all curves, with what underflow may have lost.
        values = [curve.delta(ratios) for curve in self.curves]
        best = np.full_like(epsilons, 1.0 if upper else 0.0)
        for value in values:
            if np.isnan(value).any():
                raise NumericalError("a privacy curve has a value that is NaN")
            best = np.minimum(best, value) if upper else np.maximum(best, value)
        if upper:
            return np.minimum(best + _UNDERFLOW * ratios, 1.0)
        return np.maximum(best - _UNDERFLOW * ratios, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _TwoBounds:
    """Upper bound on δ between two records through the null record, with the best split of ε.

    The bound is δ_remove(ε₁) + e^{ε₁}·δ_add(ε₂) with ε₁ + ε₂ = ε; the best split is the one with
    the smallest bound.
    """

    first: _Sharpest
    second: _Sharpest

    def delta(self, epsilons: FloatArray) -> FloatArray:
        """Upper bound on δ, shape of ``epsilons``."""
        best = np.ones_like(epsilons)
        for share in _SPLITS:
            # Rounded down: ε₁ + ε₂ must not exceed ε for an upper bound.
            early = share * epsilons * (1.0 - _ROUNDING)
            late = np.maximum((epsilons - early) * (1.0 - _ROUNDING), 0.0)
            value = self.first.delta(early) + np.exp(early) * self.second.delta(late)
            best = np.minimum(best, value * (1.0 + _ROUNDING * (1.0 + early)))
        return best


@dataclass(frozen=True, slots=True, eq=False)
class _Smaller:
    """Smaller of two upper bounds on δ at each ε."""

    direct: _Sharpest
    through: _TwoBounds

    def delta(self, epsilons: FloatArray) -> FloatArray:
        """Upper bound on δ, shape of ``epsilons``."""
        return np.minimum(self.direct.delta(epsilons), self.through.delta(epsilons))


_Upper = _Sharpest | _TwoBounds | _Smaller

_ROUNDING = 16.0 * UNIT_ROUNDOFF  # relative, above the error of a sum of two positive products


@dataclass(frozen=True, eq=False)
class DeltaBounds:
    """Bounds on one function δ(K), which decreases and is convex in K = e^ε, at increasing ε.

    Each array has the shape ``(n,)``, n ≥ 2.

    Attributes:
        epsilons: increasing ε, of which the first is 0.
        lower: lower bounds on δ.
        upper: upper bounds on δ, decreasing and convex in K = e^ε.

    Raises:
        NumericalError: a bound is NaN, or a lower bound exceeds an upper bound.
    """

    epsilons: FloatArray
    lower: FloatArray
    upper: FloatArray

    def __post_init__(self) -> None:
        if not np.all(self.lower <= self.upper):  # also true where a bound is not a number
            raise NumericalError(
                "bounds of a privacy profile are not ordered: a lower bound exceeds the upper bound"
            )

    @classmethod
    def of(cls, epsilons: FloatArray, lower: FloatArray, upper: FloatArray) -> DeltaBounds:
        """Bounds on δ, tightened by the convexity and monotonicity of δ(K)."""
        upper = np.minimum.accumulate(upper)
        lower = np.maximum.accumulate(lower[::-1])[::-1]
        return cls(epsilons, lower, _convex_minorant(np.exp(epsilons), upper))

    def __or__(self, other: DeltaBounds) -> DeltaBounds:
        """Bounds on the larger of two functions δ(K); both have bounds at the same ε."""
        lower, upper = np.maximum(self.lower, other.lower), np.maximum(self.upper, other.upper)
        return DeltaBounds(self.epsilons, lower, upper)

    @property
    def ratios(self) -> FloatArray:
        """Ratios K = e^ε of the grid, shape ``(n,)``."""
        return np.exp(self.epsilons)

    def at(self, epsilon: float) -> Bounds:
        """Bounds on δ at any ε ≥ 0; between grid points by chords (upper) and `polygon` (lower)."""
        known = np.flatnonzero(self.epsilons == epsilon)
        if known.size:
            return Bounds(float(self.lower[known[0]]), float(self.upper[known[0]]))
        # K rounded to both sides; beyond the last point the upper bound stays constant.
        ratio, last = math.exp(epsilon), self.ratios[-1]
        before, after = max(ratio * (1.0 - _ROUNDING), 1.0), ratio * (1.0 + _ROUNDING)
        upper = _on_chords(np.array([min(before, last)]), self.ratios, self.upper)
        lower = 0.0 if after >= last else float(np.interp(after, *self.polygon))
        return Bounds(max(lower * (1.0 - _ROUNDING), 0.0), min(float(upper[0]), 1.0))

    @cached_property
    def polygon(self) -> tuple[FloatArray, FloatArray]:
        """Corners (K and δ) of a polygon that lies below δ(K) everywhere.

        Beyond its last corner the polygon is 0.

        A convex function lies above the extension of each of its chords. So in the cell from K_i
        to K_{i+1} two lines lie below δ: from (K_{i−1}, upper) through (K_i, lower), and from
        (K_{i+2}, upper) through (K_{i+1}, lower). Slopes are clipped to [−1, 0], which also gives
        the lines of the first and the last cell.
        """
        ratios, lower, upper = self.ratios, self.lower, self.upper
        # Slopes of the two lines of each cell, by the chords of the neighbouring cells.
        width = np.diff(ratios)
        falls = np.maximum((lower[1:] - upper[:-1]) / width, -1.0)
        from_left = np.append(-1.0, falls[:-1])
        rises = np.minimum((upper[1:] - lower[:-1]) / width, 0.0)
        from_right = np.append(rises[1:], 0.0)
        # Where the two lines of a cell cross, within the cell.
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = (lower[1:] - lower[:-1] - from_right * width) / (from_left - from_right)
        crossing = np.clip(np.nan_to_num(crossing), 0.0, width)
        # Values of both lines at the ends and at the crossing; the larger one, rounded down.
        steps = np.stack([np.zeros_like(width), crossing, width], axis=1)
        left = lower[:-1, None] + from_left[:, None] * steps
        right = lower[1:, None] - from_right[:, None] * (width[:, None] - steps)
        steepest = np.maximum(-from_left, -from_right) * ratios[1:]
        rounding = _ROUNDING * (lower[:-1] + steepest)[:, None]
        corners = np.maximum(np.maximum(left, right) - rounding, 0.0)
        places = (ratios[:-1, None] + steps).ravel()
        return np.append(places, ratios[-1]), np.append(corners.ravel(), 0.0)


def _on_chords(at: FloatArray, ratios: FloatArray, values: FloatArray) -> FloatArray:
    """Values of the polygon through the points (ratios, values) at given K, rounded up.

    Each value is a convex combination of two positive numbers, so its relative error is small.
    """
    right = np.clip(np.searchsorted(ratios, at, side="left"), 1, ratios.size - 1)
    share = (at - ratios[right - 1]) / (ratios[right] - ratios[right - 1])
    rest = (ratios[right] - at) / (ratios[right] - ratios[right - 1])
    return (rest * values[right - 1] + share * values[right]) * (1.0 + _ROUNDING)


def _convex_minorant(ratios: FloatArray, values: FloatArray) -> FloatArray:
    """Greatest convex function below given points, evaluated at these points and rounded up."""
    corners: list[int] = []
    for i in range(ratios.size):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            before = (values[b] - values[a]) * (ratios[i] - ratios[b])
            if before < (values[i] - values[b]) * (ratios[b] - ratios[a]):
                break
            corners.pop()
        corners.append(i)
    return np.minimum(values, _on_chords(ratios, ratios[corners], values[corners]))
