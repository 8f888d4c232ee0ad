"""Search for the value of one parameter at which a bound on ε meets a target.

`Unknown` describes a parameter, `UNKNOWNS` lists the parameters of schemes, and `DELTA` describes
δ. `CostTarget` computes the bound on ε at a value, `CostModel` predicts the value that meets the
target (the root), and `BisectionSearch` chooses the values to try. `calibration` and `budgets.plan`
use this module.

The cost of a value is the bound on ε there at δ, expressed as the μ of the Gaussian pair N(μ, 1),
N(0, 1) that has the same ε at the same δ. The cost μ of a scheme is about proportional to a power
of each parameter, since composition and averaging add variances: t^(−1/2) for a window of t steps,
r^(1/2) for r windows, p for a participation probability p. The search is Newton's method for ln μ
as a function of the logarithm of the value, with this power as the first slope and secants
afterwards. A bracket consists of a value that meets the target and a value that misses the target.
A step aims at the private side of the root; once the last value is within the tolerance of the
root, the step aims at the other side, so that the bracket closes. Successive steps that end on the
same side of the root get longer. No guarantee depends on the search, which only chooses the values
to try.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scipy.special import log_ndtr

from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError


@dataclass(frozen=True, slots=True)
class Unknown:
    """Parameter to calibrate: limits of its value, and how the cost changes with this value.

    Attributes:
        name: name of the parameter in options and messages.
        falling: whether ε falls as the value grows. If so, calibration returns the *smallest* value
            that meets a target, otherwise the largest such value.
        least, most: limits of the search; no value outside these limits is tried.
        start: first value to try.
        power: p ≥ 0 such that the cost μ (module header) is about proportional to value^p or
            value^(−p); 0 for δ, which is part of the target.
        whole: whether values are whole numbers.
        digits: significant digits of values that are not whole.
        largest_jump: largest factor between two consecutive values of the search.
    """

    name: str
    falling: bool
    least: float
    most: float
    start: float
    power: float
    whole: bool = False
    digits: int = 6
    largest_jump: float = 1e3

    @property
    def private_limit(self) -> float:
        """Limit of the search, ``least`` or ``most``, at which ε is smallest."""
        return self.most if self.falling else self.least

    @property
    def costly_limit(self) -> float:
        """Limit of the search, ``least`` or ``most``, at which ε is largest.

        If the bound at this limit meets the target, the limit is the result.
        """
        return self.least if self.falling else self.most

    def position(self, value: float) -> float:
        """Position of a value: its logarithm, with the sign for which ε falls as positions grow."""
        return math.log(value) if self.falling else -math.log(value)

    def value(self, position: float) -> float:
        """Parameter value at a position, rounded to ``digits`` digits or to a whole number.

        A value that must be a whole number is rounded to the side with the smaller ε.
        """
        sign = 1.0 if self.falling else -1.0
        low, high = sorted((self.position(self.least), self.position(self.most)))
        value = math.exp(sign * min(max(position, low), high))
        if self.whole:
            value = math.ceil(value - 1e-9) if self.falling else math.floor(value + 1e-9)
        else:
            value = float(f"{value:.{self.digits}g}")
        return min(max(value, self.least), self.most)

    def text(self, value: float) -> str:
        """Parameter value as text for messages."""
        return f"{value:,.0f}" if self.whole else f"{value:g}"


_ALL = (
    Unknown("noise-multiplier", True, 0.02, 1e6, start=1.0, power=1.2),
    Unknown("scale", True, 0.02, 1e6, start=1.0, power=1.2),
    Unknown("standard-deviation", True, 0.05, 1600.0, start=1.0, power=1.2),
    Unknown("epsilon0", False, 1e-6, 300.0, start=1.0, power=1.0),
    Unknown("window", True, 1, 10**7, start=1000, power=0.5, whole=True),
    Unknown("windows", False, 1, 10**6, start=1, power=0.5, whole=True),
    Unknown("probability", False, 1e-15, 1.0, start=1.0, power=1.0),
    Unknown("rate", False, 1e-15, 1.0, start=1e-3, power=1.0),
    Unknown("steps", False, 1, 10**7, start=100, power=0.5, whole=True),
    Unknown("epochs", False, 1, 10**6, start=1, power=0.7, whole=True),
    Unknown("rounds", False, 1, 10**7, start=100, power=0.5, whole=True),
    Unknown("sampled", False, 1, 10**9, start=1000, power=0.5, whole=True),
    Unknown("clients", True, 1, 10**9, start=10**5, power=0.5, whole=True),
    Unknown("picks", False, 1, 10**6, start=1, power=1.0, whole=True),
)

UNKNOWNS: Mapping[str, Unknown] = {unknown.name: unknown for unknown in _ALL}
"""Parameters of a scheme, by name."""

DELTA = Unknown("delta", True, 1e-300, 0.999999, start=1e-6, power=0.0, largest_jump=1e5)
"""δ as the parameter to calibrate; it is part of the privacy target, not of the scheme."""

_LEAST_LOG_MU, _MOST_LOG_MU = math.log(1e-300), math.log(1e4)

_SMOOTH = 1e-3  # least distance of two positions that give a slope; grids' errors matter below it

# Limits of a slope against numerical noise: a share of the power, and the range for δ.
_FLATTEST, _DELTA_SLOPES = 0.2, (-1.0, 0.01)


@dataclass(frozen=True, slots=True)
class Tried:
    """Parameter value that the search has tried, with the proved upper bound on ε at this value.

    Attributes:
        value: value of the parameter.
        position: `Unknown.position` of the value.
        epsilon: upper bound on ε; infinite if no bound can be certified.
        log_mu: ln μ of the bound; infinite if no bound can be certified.
        excess: ``log_mu`` minus ln μ of the target; above 0 if the bound exceeds the target.
    """

    value: float
    position: float
    epsilon: float
    log_mu: float
    excess: float

    @property
    def certified(self) -> bool:
        """Whether a finite bound on ε was certified."""
        return math.isfinite(self.epsilon)


@dataclass(frozen=True, slots=True)
class CostTarget:
    """Target ε, with a function from a parameter value to the bound on ε, and one to δ.

    Attributes:
        cost: function from a value to a proved upper bound on ε; may raise NumericalError.
        epsilon: target that the bound must not exceed.
        delta: function from a value to δ; constant unless δ itself is the unknown.
    """

    cost: Callable[[float], float]
    epsilon: float
    delta: Callable[[float], float]

    def tried(self, unknown: Unknown, value: float) -> Tried:
        """Record of a parameter value, after computing the upper bound on ε at this value."""
        position = unknown.position(value)
        try:
            epsilon = self.cost(value)
        except NumericalError:
            return Tried(value, position, math.inf, math.inf, math.inf)
        log_mu = log_gaussian_mu(epsilon, self.delta(value))
        return Tried(value, position, epsilon, log_mu, log_mu - self.required(value))

    def required(self, value: float) -> float:
        """Logarithm of the μ of the Gaussian pair that has the target ε at the δ of a value."""
        return log_gaussian_mu(self.epsilon, self.delta(value))


@dataclass(slots=True)
class CostModel:
    """Linear model of ln μ as a function of position, through a tried value near the target."""

    unknown: Unknown
    target: CostTarget
    slope: float

    def learn(self, one: Tried, other: Tried) -> None:
        """Set the slope of the line to the slope between two tried values, within limits."""
        distance = other.position - one.position
        if abs(distance) < _SMOOTH or not (one.certified and other.certified):
            return
        slope = (other.log_mu - one.log_mu) / distance
        # The sign of the slope is known, and its size roughly; μ changes little with δ.
        power, (low, high) = self.unknown.power, _DELTA_SLOPES
        self.slope = min(slope, -_FLATTEST * power) if power else min(max(slope, low), high)

    def root(self, near: Tried) -> float:
        """Position at which the line through a tried value meets the target; NaN if it does not."""
        if self.unknown.power:  # δ is fixed, so the required μ is the same at all values
            return near.position - near.excess / self.slope

        def excess(position: float) -> float:
            modelled = near.log_mu + self.slope * (position - near.position)
            return modelled - self.target.required(math.exp(position))

        ends = math.log(self.unknown.least), math.log(self.unknown.most)
        if excess(ends[0]) <= 0 or excess(ends[1]) >= 0:
            return math.nan
        return _falling_root(excess, *ends)


def log_gaussian_mu(epsilon: float, delta: float) -> float:
    """Approximate ln μ of the Gaussian pair N(μ, 1), N(0, 1) with the given ε at the given δ.

    μ solves δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2). The search uses the result only to choose values
    to try.

    Args:
        epsilon: ε.
        delta: δ, strictly between 0 and 1.
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        first = float(log_ndtr(-epsilon / mu + mu / 2))
        second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
        if not second < first:  # the difference is below rounding, far below any δ
            return -math.inf
        return first + math.log(-math.expm1(second - first)) - math.log(delta)

    return _falling_root(lambda log_mu: -excess(log_mu), _LEAST_LOG_MU, _MOST_LOG_MU)


def _falling_root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Point of an interval that is nearest to the zero of a decreasing function."""
    return bisected(lambda at: not excess(at) > 0, low, high, gap=1e-9).middle


_BLIND_JUMP = math.log(4.0)  # step from a value at which no bound could be certified

_AIM = 0.4  # share of the tolerance by which a step aims at the private side of the root

_NEARLY = 0.9  # least step, as a share of the tolerance

# Steps on one side of the root after which steps get longer, and after which brackets are halved.
_PATIENCE, _NO_PATIENCE = 2, 4


@dataclass(slots=True)
class BisectionSearch:
    """State of one search: the tightest bracket so far, and the model for the next value.

    Attributes:
        model: model of the cost, with the unknown parameter and the target.
        tolerance: relative distance of the bracket's ends at which the search stops; for whole
            numbers it stops when the ends are neighbours.
        met: of the tried values that meet the target, the one with the largest ε; None if there is
            none.
        missed: of the tried values that are not certified to meet the target, the one with the
            smallest ε; None if there is none.
        last: the value tried last.
        evaluations: number of bounds computed so far.
    """

    model: CostModel
    tolerance: float
    met: Tried | None = None
    missed: Tried | None = None
    last: Tried | None = None
    evaluations: int = 0
    _same_side: int = 0

    @classmethod
    def of(cls, target: CostTarget, unknown: Unknown, tolerance: float) -> BisectionSearch:
        """New search, whose first slope is the ``power`` of the unknown parameter."""
        return cls(CostModel(unknown, target, -unknown.power), tolerance)

    @classmethod
    def to_the_end(cls, target: CostTarget, unknown: Unknown, tolerance: float) -> BisectionSearch:
        """Finished search: its bracket is closed, or a limit of the parameter is the result."""
        search = cls.of(target, unknown, tolerance)
        search.run(lambda _: False, unknown.start)
        return search

    def run(self, ended: Callable[[BisectionSearch], bool], start: float | None = None) -> None:
        """Try values until ``ended`` is true, the bracket is closed, or a limit is the result."""
        unknown = self.model.unknown
        value = self._next() if start is None else unknown.value(unknown.position(start))
        while True:
            self._try(value)
            if ended(self) or self._at_limit() or self._closed():
                return
            value = self._next()
            if value in [end.value for end in (self.met, self.missed) if end is not None]:
                return  # no printed value lies between the ends

    def root(self) -> float:
        """Position at which the model meets the target; NaN if there is none."""
        points = [p for p in (self.met, self.missed) if p is not None and p.certified]
        if not points:
            return math.nan
        return self.model.root(min(points, key=lambda point: abs(point.excess)))

    def _try(self, value: float) -> None:
        """Compute the bound on ε at a value, and move one end of the bracket to this value."""
        self.evaluations += 1
        tried, before = self.model.target.tried(self.model.unknown, value), self.last
        meets = tried.epsilon <= self.model.target.epsilon
        # Count the steps on one side of the root, and learn the slope from the last two points.
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
        """Whether the search ends because the last value is a limit of the parameter."""
        assert self.last is not None
        unknown = self.model.unknown
        limit = unknown.costly_limit if self.last is self.met else unknown.private_limit
        return self.last.value == limit

    def _closed(self) -> bool:
        """True if the bracket's ends are neighbouring whole numbers or within the tolerance."""
        if self.met is None or self.missed is None:
            return False
        if self.model.unknown.whole:
            return abs(self.met.value - self.missed.value) <= 1
        return self.met.position - self.missed.position <= self.tolerance

    def _next(self) -> float:
        """Next value to try; a whole number lies strictly inside the bracket."""
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
        """Next position to try, inside the bracket, of which one end may still be missing."""
        assert self.last is not None
        # Aim at the private side of the model's root; steps on one side get longer.
        unknown, root = self.model.unknown, self.root()
        tolerance = 1.0 / self.last.value if unknown.whole else self.tolerance
        aim = root if unknown.whole else root + _AIM * tolerance
        near = _NEARLY * tolerance * 2.0 ** max(self._same_side - _PATIENCE, 0)
        far = math.log(unknown.largest_jump)
        # With one end alone: step beyond it, by no less than `near` and no more than `far`.
        if self.met is None:
            low = self.last.position
            least = near if self.last.certified else _BLIND_JUMP
            return low + least if math.isnan(aim) else _clipped(aim, low + least, low + far)
        if self.missed is None:
            high = self.last.position
            return high - near if math.isnan(aim) else _clipped(aim, high - far, high - near)
        # With both ends: the model's root or, outside the bracket, the chord's.
        low, high = self.missed.position, self.met.position
        if not low - near < root < high + near:
            aim = _chord(self.missed, self.met)
        # Halve a bracket that is blind at one end, closes too slowly, or is narrow.
        blind = not self.missed.certified
        if blind or self._same_side > _NO_PATIENCE or high - low < 2 * near:
            return 0.5 * (low + high)
        return _clipped(aim, low + near, high - near)


def _chord(missed: Tried, met: Tried) -> float:
    """Position at which the line through both ends of a bracket meets the target."""
    share = missed.excess / (missed.excess - met.excess)
    return missed.position + share * (met.position - missed.position)


def _clipped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
