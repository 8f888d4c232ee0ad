"""The search for one unknown: few evaluations of a costly bound, ended on the private side.

Newton's method for the cost in the unit of `costs` against the logarithm of the value, with a known
power as the first slope and secants afterwards, inside a bracket of a value that meets the target
and one that does not. A step aims at the private side of the root, or, where the root is all but
met, at the other side, so that the bracket closes; steps that stay on one side get longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from turnout.accounting.calibration.costs import CostModel, Target, Tried
from turnout.accounting.calibration.unknowns import Unknown

_BLIND_JUMP = math.log(4.0)  # a step from where nothing could be certified
_AIM = 0.4  # part of the tolerance by which a step aims at the private side of the root
_NEARLY = 0.9  # part of the tolerance from a value that is about the root to the next one
_PATIENCE, _NO_PATIENCE = 2, 4  # steps on one side before they get longer, before halving


@dataclass(slots=True)
class Search:
    """One search: the tightest bracket so far, and where to look next.

    Attributes:
        model: what is searched for, what must be met, and how the one moves the other.
        tolerance: relative distance of the bracket's ends at which it is closed; that of whole
            numbers is closed when they are neighbours.
        met: the costliest value known to meet the target.
        missed: the most private value not certified to meet it.
    """

    model: CostModel
    tolerance: float
    met: Tried | None = None
    missed: Tried | None = None
    last: Tried | None = None
    evaluations: int = 0
    _same_side: int = 0

    @classmethod
    def of(cls, target: Target, unknown: Unknown, tolerance: float) -> Search:
        """A search that has not begun, with the unknown's known power as the first slope."""
        return cls(CostModel(unknown, target, -unknown.power), tolerance)

    @classmethod
    def to_the_end(cls, target: Target, unknown: Unknown, tolerance: float) -> Search:
        """A search that ended where its bracket is closed, or its limit met the target."""
        search = cls.of(target, unknown, tolerance)
        search.run(lambda _: False, unknown.start)
        return search

    def run(self, ended: Callable[[Search], bool], start: float | None = None) -> None:
        """Tries one value after the other until one says enough, or none is left to try."""
        unknown = self.model.unknown
        value = self._next() if start is None else unknown.value(unknown.position(start))
        while True:
            self._try(value)
            if ended(self) or self._at_limit() or self._closed():
                return
            value = self._next()
            if value in [end.value for end in (self.met, self.missed) if end is not None]:
                return  # the ends are as near as printed values can be

    def root(self) -> float:
        """The position at which the model meets the target; NaN if there is none."""
        points = [p for p in (self.met, self.missed) if p is not None and p.certified]
        if not points:
            return math.nan
        return self.model.root(min(points, key=lambda point: abs(point.excess)))

    def _try(self, value: float) -> None:
        """Moves one end of the bracket to a value."""
        self.evaluations += 1
        tried, before = self.model.target.tried(self.model.unknown, value), self.last
        meets = tried.epsilon <= self.model.target.epsilon
        same = before is not None and (before is self.met) == meets
        self._same_side = self._same_side + 1 if same else 1
        if before is not None:
            self.model.learn(before, tried)
        if meets:
            self.met = tried
        else:
            self.missed = tried
        self.last = tried

    def _at_limit(self) -> bool:
        """Whether the value tried last says that what lies beyond its limit is not needed."""
        assert self.last is not None
        unknown = self.model.unknown
        limit = unknown.costly_limit if self.last is self.met else unknown.private_limit
        return self.last.value == limit

    def _closed(self) -> bool:
        """Whether nothing, or nothing that matters, lies between the ends."""
        if self.met is None or self.missed is None:
            return False
        if self.model.unknown.whole:
            return abs(self.met.value - self.missed.value) <= 1
        return self.met.position - self.missed.position <= self.tolerance

    def _next(self) -> float:
        """The value to try next; a whole number strictly inside the bracket."""
        met, missed, unknown = self.met, self.missed, self.model.unknown
        value = unknown.value(self._aim())
        if not unknown.whole:
            return value
        costlier = -1 if unknown.falling else 1
        if met is not None and (value - met.value) * costlier <= 0:
            value = met.value + costlier
        if missed is not None and (value - missed.value) * costlier >= 0:
            value = missed.value - costlier
        return min(max(value, unknown.least), unknown.most)

    def _aim(self) -> float:
        """A position inside the bracket, of which one end may be open."""
        assert self.last is not None
        unknown, root = self.model.unknown, self.root()
        tolerance = 1.0 / self.last.value if unknown.whole else self.tolerance
        aim = root if unknown.whole else root + _AIM * tolerance
        near = _NEARLY * tolerance * 2.0 ** max(self._same_side - _PATIENCE, 0)
        far = math.log(unknown.largest_jump)
        if self.met is None:
            low = self.last.position
            least = near if self.last.certified else _BLIND_JUMP
            return low + least if math.isnan(aim) else _clipped(aim, low + least, low + far)
        if self.missed is None:
            high = self.last.position
            return high - near if math.isnan(aim) else _clipped(aim, high - far, high - near)
        low, high = self.missed.position, self.met.position
        if not low - near < root < high + near:
            aim = _chord(self.missed, self.met)
        blind = not self.missed.certified
        if blind or self._same_side > _NO_PATIENCE or high - low < 2 * near:
            return 0.5 * (low + high)
        return _clipped(aim, low + near, high - near)


def _chord(missed: Tried, met: Tried) -> float:
    """The value at which the straight line between the ends of a bracket meets the target."""
    share = missed.excess / (missed.excess - met.excess)
    return missed.position + share * (met.position - missed.position)


def _clipped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
