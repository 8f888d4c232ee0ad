"""Calibration: the value of one parameter at which a scheme meets a target ε. Inverse of pricing.

`calibrate` returns a `Calibration` for any parameter of `UNKNOWNS`, `calibrate_delta` for δ, and
`calibrate_noise` a noise multiplier, always on the private side: the proved upper bound on its ε is
at most the target. `Unknown` describes a parameter; `CostTarget`, `CostModel` and `BisectionSearch`
are the search and `with_guessed_start` its start. `budgets`, `selection`, `plans` and `api` use
this module.

**Search.** A cost (ε, δ) is compared by the μ of the Gaussian pair N(μ, 1), N(0, 1) with the same ε
at the same δ. In this unit a scheme costs about a power of each of its parameters, since
composition and averaging add up variances: t^(−1/2) for a window, r^(1/2) for a number of windows,
p for a probability. The search is Newton's method for ln μ against the logarithm of the value, with
this power as the first slope and secants afterwards, inside a bracket of a value that meets the
target and one that does not. A step aims at the private side of the root, or, where the root is all
but met, at the other side, so that the bracket closes; steps that stay on one side get longer. It
starts where a rule of thumb meets the target: the privacy loss of a run is about Gaussian, its
variance the sum of the blocks' squared loss deviations. No guarantee depends on any of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from scipy.special import log_ndtr

from turnout.accounting.decomposition import decompose
from turnout.accounting.divergence.pairs import most_deviation
from turnout.accounting.divergence.work import question
from turnout.accounting.guarantee import Guarantee
from turnout.accounting.pricing import epsilon_upper, price
from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import NumericalError, UnsupportedError
from turnout.schemes import Scheme

__all__ = [
    "DELTA",
    "UNKNOWNS",
    "Calibration",
    "Unknown",
    "calibrate",
    "calibrate_delta",
    "calibrate_noise",
    "guessed_delta",
    "log_gaussian_mu",
    "most_deviation",
    "with_guessed_start",
]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A parameter, and what is known of how the cost moves with it.

    Attributes:
        name: as a person calls it.
        falling: whether ε falls with the value. Then the *smallest* value that meets a target is
            asked for, else the largest.
        least, most: limits of the search; nothing outside is ever tried.
        start: where to look first.
        power: the cost changes about as value to this power, in the unit of `search`.
        whole: whether values are whole numbers; others have so many ``digits``.
        largest_jump: factor by which one step may leave the values tried so far.
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
        """The value that costs least."""
        return self.most if self.falling else self.least

    @property
    def costly_limit(self) -> float:
        """The value that costs most: where it meets the target, nothing is left to search."""
        return self.least if self.falling else self.most

    def position(self, value: float) -> float:
        """Logarithm of the value with the sign that makes it grow towards the private side."""
        return math.log(value) if self.falling else -math.log(value)

    def value(self, position: float) -> float:
        """The value at a position as it is printed: whole on the private side, or six digits."""
        sign = 1.0 if self.falling else -1.0
        low, high = sorted((self.position(self.least), self.position(self.most)))
        value = math.exp(sign * min(max(position, low), high))
        if self.whole:
            value = math.ceil(value - 1e-9) if self.falling else math.floor(value + 1e-9)
        else:
            value = float(f"{value:.{self.digits}g}")
        return min(max(value, self.least), self.most)

    def said(self, value: float) -> str:
        """The value as text."""
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
"""δ is part of the privacy target, not of the scheme."""

_LEAST_LOG_MU, _MOST_LOG_MU = math.log(1e-300), math.log(1e4)

_SMOOTH = 1e-3  # nearer points would show the grids' own unevenness, not a slope

_FLATTEST, _DELTA_SLOPES = 0.2, (-1.0, 0.01)  # what a slope may be, against noise


@dataclass(frozen=True, slots=True)
class Tried:
    """A value and the proved bound there; both infinite where nothing could be certified.

    Attributes:
        position: ln value, growing towards the private side.
        log_mu: ln μ of it.
        excess: ``log_mu`` less that of the target.
    """

    value: float
    position: float
    epsilon: float
    log_mu: float
    excess: float

    @property
    def certified(self) -> bool:
        """Whether there is a bound at all."""
        return math.isfinite(self.epsilon)


@dataclass(frozen=True, slots=True)
class CostTarget:
    """A bound at a value, and the ε that it must not exceed.

    Attributes:
        cost: a proved upper bound on ε at a value; may raise NumericalError.
        delta: δ at a value (a constant, unless δ itself is the unknown).
    """

    cost: Callable[[float], float]
    epsilon: float
    delta: Callable[[float], float]

    def tried(self, unknown: Unknown, value: float) -> Tried:
        """The bound at a value."""
        position = unknown.position(value)
        try:
            epsilon = self.cost(value)
        except NumericalError:
            return Tried(value, position, math.inf, math.inf, math.inf)
        log_mu = log_gaussian_mu(epsilon, self.delta(value))
        return Tried(value, position, epsilon, log_mu, log_mu - self.required(value))

    def required(self, value: float) -> float:
        """The ln μ of the target at a value."""
        return log_gaussian_mu(self.epsilon, self.delta(value))


@dataclass(slots=True)
class CostModel:
    """ln μ over positions as a line, with a slope, through the point nearest to the target."""

    unknown: Unknown
    target: CostTarget
    slope: float

    def learn(self, one: Tried, other: Tried) -> None:
        """Takes the slope between two points for the line's."""
        distance = other.position - one.position
        if abs(distance) < _SMOOTH or not (one.certified and other.certified):
            return
        slope = (other.log_mu - one.log_mu) / distance
        # The sign of a slope is known, and its size nearly; μ hardly moves with δ.
        power, (low, high) = self.unknown.power, _DELTA_SLOPES
        self.slope = min(slope, -_FLATTEST * power) if power else min(max(slope, low), high)

    def root(self, near: Tried) -> float:
        """The position at which the line through a point meets the target; NaN if none."""
        if self.unknown.power:  # δ is given, so what is required is the same everywhere
            return near.position - near.excess / self.slope

        def excess(position: float) -> float:
            modelled = near.log_mu + self.slope * (position - near.position)
            return modelled - self.target.required(math.exp(position))

        ends = math.log(self.unknown.least), math.log(self.unknown.most)
        if excess(ends[0]) <= 0 or excess(ends[1]) >= 0:
            return math.nan
        return _falling_root(excess, *ends)


def log_gaussian_mu(epsilon: float, delta: float) -> float:
    """The ln μ of the Gaussian pair N(μ, 1), N(0, 1) with this ε at this δ, about.

    δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        first = float(log_ndtr(-epsilon / mu + mu / 2))
        second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
        if not second < first:  # digits ran out, far below any δ
            return -math.inf
        return first + math.log(-math.expm1(second - first)) - math.log(delta)

    return _falling_root(lambda log_mu: -excess(log_mu), _LEAST_LOG_MU, _MOST_LOG_MU)


def _falling_root(excess: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a falling function; the nearer end where there is none."""
    return bisected(lambda at: not excess(at) > 0, low, high, gap=1e-9).middle


_BLIND_JUMP = math.log(4.0)  # a step from where nothing could be certified

_AIM = 0.4  # part of the tolerance by which a step aims at the private side of the root

_NEARLY = 0.9  # part of the tolerance from a value that is about the root to the next one

_PATIENCE, _NO_PATIENCE = 2, 4  # steps on one side before they get longer, before halving


@dataclass(slots=True)
class BisectionSearch:
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
    def of(cls, target: CostTarget, unknown: Unknown, tolerance: float) -> BisectionSearch:
        """A search that has not begun, with the unknown's known power as the first slope."""
        return cls(CostModel(unknown, target, -unknown.power), tolerance)

    @classmethod
    def to_the_end(cls, target: CostTarget, unknown: Unknown, tolerance: float) -> BisectionSearch:
        """A search that ended where its bracket is closed, or its limit met the target."""
        search = cls.of(target, unknown, tolerance)
        search.run(lambda _: False, unknown.start)
        return search

    def run(self, ended: Callable[[BisectionSearch], bool], start: float | None = None) -> None:
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


_CLOSE = 1e-3  # to which ln value is found

_STEP = 0.05  # of ln value, over which the slope is taken

_BELOW_THE_END = 0.1  # of ln deviation, where a target lies beyond what deviations reach

_LEAST_DELTA, _MOST_DELTA = 1e-30, 0.5  # where δ is looked for first

_LARGEST_JUMP = 4.0  # from a value that is about right


def with_guessed_start(
    scheme_for: Callable[[float], Scheme], unknown: Unknown, epsilon: float, delta: float
) -> Unknown:
    """The unknown with a start and a power of its own: those of the rule of thumb."""
    if not epsilon > 0 or unknown.power == 0:
        return unknown

    def level(position: float) -> float:
        value = unknown.value(position)
        return _log_loss_deviation(scheme_for(int(value) if unknown.whole else value))

    costly, private = map(unknown.position, (unknown.costly_limit, unknown.private_limit))
    # Spreads end at 1 for each block; beyond that the rule knows no more than where they end.
    target = min(log_gaussian_mu(epsilon, delta), level(costly) - _BELOW_THE_END)
    if not level(private) < target:
        return unknown
    costly, private = bisected(lambda x: not level(x) > target, costly, private, gap=_CLOSE)
    fall = (level(costly - _STEP) - level(private + _STEP)) / (private - costly + 2 * _STEP)
    return replace(
        unknown,
        start=unknown.value(private),
        power=max(fall, 0.5 * unknown.power),
        largest_jump=_LARGEST_JUMP,
    )


def guessed_delta(scheme: Scheme, epsilon: float) -> Unknown:
    """δ, to be looked for first where the rule of thumb meets a target ε."""
    level = _log_loss_deviation(scheme)

    def met(log_delta: float) -> bool:
        return not level - log_gaussian_mu(epsilon, math.exp(log_delta)) > 0

    found = bisected(met, math.log(_LEAST_DELTA), math.log(_MOST_DELTA), gap=_CLOSE)
    return replace(DELTA, start=math.exp(found.holding))


def _log_loss_deviation(scheme: Scheme) -> float:
    run = decompose(scheme).record_against_null.upper
    variance = sum(count * block.loss_deviation**2 for block, count in run)
    return 0.5 * math.log(variance) if variance > 0 else -math.inf


MOST_EVALUATIONS = 10
"""Bounds that `calibrate` computes; a few more only where none of them met the target."""

_TOLERANCE = 1e-4  # relative, for values that are not whole

_QUICK_LOOK = 0.1  # tolerance at which a price is asked for its reasons only

_SEARCH = 2  # prices whose work a search may take; then closed forms end it

_GAIN = 1e-4  # part of ε by which `price` must be sharper to look on with it


@dataclass(frozen=True, slots=True)
class Calibration:
    """The value that was asked for.

    Attributes:
        value: as it should be printed: a whole number, or at most six digits.
        epsilon: proved upper bound on ε at that value; at most the target.
        refused: the nearest value on the costlier side that was tried and is not certified to meet
            the target. For whole numbers it is the next one, unless the count of evaluations was
            used up before. None where the value is the limit of the search, or where it leaves
            nothing worth looking for.
        guarantee: what `price` says at the value; None if no tolerance was asked for.
    """

    unknown: Unknown
    value: float
    epsilon: float
    refused: float | None
    evaluations: int
    guarantee: Guarantee | None = None


def calibrate(
    scheme_for: Callable[[float], Scheme],
    unknown: Unknown,
    epsilon: float,
    delta: float,
    *,
    tolerance: float | None = None,
) -> Calibration:
    """The value of one parameter that spends a target ε.

    Args:
        scheme_for: the scheme as a function of the unknown; whole numbers come as int.
        unknown: one of `UNKNOWNS`, or one with limits of its own.
        epsilon: target ε.
        delta: δ.
        tolerance: certify the value by `price` at this tolerance, which leaves less unspent, and
            not by `epsilon_upper`, which is quicker.

    Returns:
        The smallest value that is certified to meet the target where ε falls with it, else the
        largest, to a relative 10⁻⁴ where it is not whole; its own bound is at most ``epsilon``.
        The limit of the search, where that meets the target. See `Calibration` for how near the
        next value is.

    Raises:
        UnsupportedError: no value of the search meets the target, or the scheme has no analysis.
        NumericalError: nothing near the answer can be certified.
    """
    checks.open_unit(delta=delta)

    def scheme_of(value: float) -> Scheme:
        return scheme_for(int(value) if unknown.whole else value)

    return _calibrated(unknown, scheme_of, lambda _: delta, epsilon, tolerance)


def calibrate_delta(
    scheme: Scheme,
    epsilon: float,
    *,
    tolerance: float | None = None,
    unknown: Unknown = DELTA,
) -> Calibration:
    """The smallest δ at which a scheme has a target ε.

    Args:
        scheme: what happens.
        epsilon: target ε.
        tolerance: as for `calibrate`.
        unknown: δ, with a start of its own where one is known.

    Returns:
        A δ of six digits, never below the true one.

    Raises:
        UnsupportedError: no δ up to 0.999999 is enough, or the scheme has no analysis.
        NumericalError: nothing near the answer can be certified.
    """
    return _calibrated(unknown, lambda _: scheme, lambda value: value, epsilon, tolerance)


def calibrate_noise(
    scheme_for: Callable[[float], Scheme],
    epsilon: float,
    delta: float,
    relative_tolerance: float = 1e-4,
) -> float:
    """The smallest noise multiplier, to a relative tolerance, whose ε is at most a target.

    Args:
        scheme_for: the scheme as a function of the noise multiplier.
        epsilon: target ε.
        delta: δ.
        relative_tolerance: how far above the smallest sufficient multiplier the answer may be.

    Returns:
        A noise multiplier of few digits whose proved upper bound on ε is at most ``epsilon``.

    Raises:
        UnsupportedError: no noise up to 10⁶ reaches the target.
        NumericalError: no multiplier near the answer can be certified.
    """
    checks.positive(epsilon=epsilon, relative_tolerance=relative_tolerance)
    checks.open_unit(delta=delta)
    digits = max(6, 2 + math.ceil(-math.log10(relative_tolerance)))
    unknown = replace(UNKNOWNS["noise-multiplier"], digits=digits)
    target = CostTarget(
        lambda sigma: epsilon_upper(scheme_for(sigma), delta), epsilon, lambda _: delta
    )
    with question(_SEARCH):
        return _met(BisectionSearch.to_the_end(target, unknown, relative_tolerance)).value


def _calibrated(
    unknown: Unknown,
    scheme_of: Callable[[float], Scheme],
    delta_of: Callable[[float], float],
    epsilon: float,
    tolerance: float | None,
) -> Calibration:
    """A search by the quick bound; with a tolerance, one by `price` that goes on from its end."""
    checks.positive(epsilon=epsilon)
    with question(_SEARCH):
        return _searched(unknown, scheme_of, delta_of, epsilon, tolerance)


def _searched(
    unknown: Unknown,
    scheme_of: Callable[[float], Scheme],
    delta_of: Callable[[float], float],
    epsilon: float,
    tolerance: float | None,
) -> Calibration:
    def quick(value: float) -> float:
        return epsilon_upper(scheme_of(value), delta_of(value))

    search = BisectionSearch.of(CostTarget(quick, epsilon, delta_of), unknown, _TOLERANCE)
    quick_ones = MOST_EVALUATIONS - (tolerance is not None)
    search.run(lambda search: _used_up(search, quick_ones), unknown.start)
    try:
        found = _met(search)
    except UnsupportedError:
        with suppress(NumericalError):  # there may be a reason that a quick bound does not know
            price(scheme_of(unknown.private_limit), delta_of(unknown.private_limit), _QUICK_LOOK)
        raise
    guarantees: dict[float, Guarantee] = {}
    if tolerance is not None:
        checks.open_unit(tolerance=tolerance)

        def sharp(value: float) -> float:
            try:
                guarantees[value] = price(scheme_of(value), delta_of(value), tolerance)
            except UnsupportedError as error:  # δ is too small for this value alone
                raise NumericalError(str(error)) from error
            return guarantees[value].epsilon.upper

        search = _polished(search, CostTarget(sharp, epsilon, delta_of))
        found = _met(search)
    refused = None if search.missed is None else search.missed.value
    guarantee = guarantees.get(found.value)
    return Calibration(unknown, found.value, found.epsilon, refused, search.evaluations, guarantee)


def _used_up(search: BisectionSearch, evaluations: int = MOST_EVALUATIONS) -> bool:
    return search.met is not None and search.evaluations >= evaluations


def _polished(search: BisectionSearch, target: CostTarget) -> BisectionSearch:
    """The same search with a sharper bound, begun at the value that the first one found.

    The first one itself where the bound is hardly sharper there, or refuses to be so.
    """
    found, unknown = _met(search), search.model.unknown
    model = CostModel(unknown, target, search.model.slope)
    final = BisectionSearch(model, search.tolerance, evaluations=search.evaluations)
    final.run(lambda _: True, found.value)
    if final.met is None or final.met.epsilon > (1 - _GAIN) * found.epsilon:
        search.evaluations = final.evaluations
        return search
    if not _used_up(final):
        final.run(_used_up)
    return final


def _met(search: BisectionSearch) -> Tried:
    """The value that was found; refuses where even the most private one costs too much."""
    unknown, met, missed = search.model.unknown, search.met, search.missed
    if met is not None:
        return met
    assert missed is not None
    bound = f"ε ≤ {missed.epsilon:.4g}" if missed.certified else "no ε can be certified"
    limits = f"{unknown.said(unknown.least)} to {unknown.said(unknown.most)}"
    raise UnsupportedError(
        f"no value of {unknown.name} from {limits} meets epsilon = "
        f"{search.model.target.epsilon:g}: at {unknown.said(missed.value)} {bound}"
    )
