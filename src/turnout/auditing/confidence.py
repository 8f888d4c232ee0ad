"""Lower bounds on ε from counts of an event, and the statistics that define events.

`epsilon_by_counts` and `gaussian_mu_by_counts` compute the bounds, `best_event` chooses the event
on separate trials, and `Findings` holds the bounds found and the proved bounds. `Statistics`
computes the scores of a trial; the first score is the likelihood ratio.

| symbol | here | |
|---|---|---|
| E | a set of outputs, such as "the score is above t" | |
| β | `error` | the probability that the bound exceeds the true ε |

If a mechanism is (ε, δ)-DP, P(E) ≤ e^ε·Q(E) + δ for every event E. So ln((P(E) − δ)/Q(E)) never
exceeds ε. With a lower bound on P(E) and an upper bound on Q(E), this number is a lower bound on ε.

**Likelihood ratios** are those of the scheme that the accountant analyses. If the running code
implements this scheme, they are the most powerful statistic; otherwise they are still a valid
statistic. Each function takes exponents a of shape (steps of the block, trials): the log ratio of
each step's release given that the client takes part in the step. The function returns the logarithm
of the mean of e^{Σ a} over the random draw, where the sum is over the drawn steps, shape (trials,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds
from turnout.core.errors import ParameterError
from turnout.schemes import GaussianNoise, Relation, Scheme
from turnout.schemes.normal_form import (
    Always,
    Bernoulli,
    Cohort,
    Draw,
    DrawTable,
    Kept,
    KOf,
    OneOf,
    OneOfOwn,
    Staggered,
    normal_form,
)

LIKELIHOOD_RATIO = "likelihood ratio"
"""Name of the log likelihood ratio of the world with the client's record to the other world, under
the scheme that the accountant analyses."""
_LIKELY_SHARE = 0.1
"""Share of β for the bound on the event's probability in the world in which it is likely. The other
world has the larger share, since there the event is rare and its probability is harder to bound."""
CLEARLY = 1.1
"""Factor by which the predicted bound of a statistic or game must exceed that of the default, since
predictions from few trials are uncertain."""
_ENOUGH, _FAR = 20, 6.0
"""Least count that can contradict a prediction, and the least gap in standard deviations."""
_RANKS = 400
"""Number of thresholds that are tried on separate trials."""


@dataclass(frozen=True, slots=True)
class Event:
    """Event that a statistic is above a threshold, or not above it.

    Attributes:
        statistic: name of the statistic.
        above: True for "above the threshold", False for "not above the threshold".
        threshold: t.
    """

    statistic: str
    above: bool
    threshold: float

    def count(self, scores: FloatArray) -> int:
        """Number of trials in which the event happens, from one score for each trial, (trials,)."""
        above = int(np.count_nonzero(scores > self.threshold))
        return above if self.above else scores.size - above


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of an event in both worlds, and the lower bounds on ε and μ from them.

    Attributes:
        event: the event, which was chosen without these trials.
        likely: number of trials with the event in the world in which it is more likely.
        rare: number of trials with the event in the other world.
        trials: number of trials of each world.
        epsilon: lower bound on ε; above the true ε with probability at most the given error.
        gaussian_mu: lower bound on μ if the trade-off is Gaussian; it uses the limits of
            ``epsilon``, so both bounds together err with probability at most the given error.
    """

    event: Event
    likely: int
    rare: int
    trials: int
    epsilon: float
    gaussian_mu: float


def rate_bounds(
    count: NDArray[np.int64] | int, trials: int, error: float
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds on a probability from counts, each with failure rate ``error``.

    Both bounds have the shape of ``count``.

    Source: Clopper and Pearson, The use of confidence or fiducial limits
        (clopper1934confidence).

    Args:
        count: number of trials with the event, of any shape, from 0 to ``trials``.
        trials: number of independent trials, at least 1.
        error: failure probability of each of the two bounds, strictly between 0 and 1.
    """
    seen = np.asarray(count, dtype=np.float64)
    low = np.where(seen > 0, beta.ppf(error, np.maximum(seen, 1), trials - seen + 1), 0.0)
    missed = np.maximum(trials - seen, 1)
    high = np.where(seen < trials, beta.ppf(1.0 - error, seen + 1, missed), 1.0)
    return low, high


def epsilon_by_counts(
    likely: NDArray[np.int64] | int,
    rare: NDArray[np.int64] | int,
    trials: int,
    delta: float,
    error: float,
) -> FloatArray:
    """Lower bounds on ε, at least 0, from counts of an event in each world.

    Args:
        likely: counts in the world in which the event is more likely, of any shape.
        rare: counts in the other world, of the same shape.
        trials: number of trials of each world.
        delta: δ, from 0 to below 1.
        error: upper bound on the probability that a bound exceeds the true ε, strictly between 0
            and 1, for an event that was chosen without these trials.

    Raises:
        ParameterError: ``error`` outside its domain.

    >>> float(epsilon_by_counts(900, 100, 1000, 0.0, 1e-3).round(3))
    1.868
    """
    low, high = _limits(likely, rare, trials, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(np.maximum(low - delta, 0.0) / high)
    return np.maximum(np.nan_to_num(found, neginf=0.0), 0.0)


def gaussian_mu_by_counts(
    likely: NDArray[np.int64] | int, rare: NDArray[np.int64] | int, trials: int, error: float
) -> FloatArray:
    """Lower bounds on μ, at least 0, for worlds with the trade-off function of Gaussian DP.

    Source: Dong, Roth and Su, Gaussian differential privacy (dong2022gaussian), at one point of the
        trade-off function. The bounds do not apply to worlds with another trade-off function.

    The arguments, shapes and limits are those of `epsilon_by_counts`: both bounds together err with
    probability at most ``error``.

    Raises:
        ParameterError: ``error`` outside its domain.

    >>> float(gaussian_mu_by_counts(900, 100, 1000, 1e-3).round(3))
    2.195
    """
    low, high = _limits(likely, rare, trials, error)
    return np.maximum(np.nan_to_num(ndtri(low) - ndtri(high), neginf=0.0), 0.0)


def _limits(
    likely: NDArray[np.int64] | int, rare: NDArray[np.int64] | int, trials: int, error: float
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds on an event's probability in the likely world, and upper ones in the other."""
    checks.open_unit(error=error)
    low, _ = rate_bounds(likely, trials, _LIKELY_SHARE * error)
    _, high = rate_bounds(rare, trials, (1.0 - _LIKELY_SHARE) * error)
    return low, high


def best_event(
    likely: Mapping[str, FloatArray],
    rare: Mapping[str, FloatArray],
    trials: int,
    delta: float,
    error: float,
) -> tuple[Event, float]:
    """Event with the largest predicted lower bound on ε, and this prediction.

    Args:
        likely: scores, by the name of the statistic, in the world in which the event should be
            likely, shape (chosen trials,) each. The first statistic is used unless another
            statistic has a clearly larger prediction.
        rare: scores in the other world, by name, for the same number of trials.
        trials: number of later trials of each world, in which the event will be counted.
        delta: δ, from 0 to below 1.
        error: failure probability of the later bound.
    """

    def promised(factor: float, counts: list[FloatArray]) -> FloatArray:
        ours, others = (np.minimum(np.round(factor * x), trials).astype(np.int64) for x in counts)
        return epsilon_by_counts(ours, others, trials, delta, error)

    found = [
        _best_threshold(Event(name, above, 0.0), likely[name], rare[name], trials, promised)
        for name in likely
        for above in (True, False)
    ]
    best = max(found, key=lambda pair: pair[1])
    first = max(found[:2], key=lambda pair: pair[1])
    return best if best[1] > CLEARLY * first[1] else first


def _best_threshold(
    event: Event,
    likely: FloatArray,
    rare: FloatArray,
    trials: int,
    promised: Callable[[float, list[FloatArray]], FloatArray],
) -> tuple[Event, float]:
    """Event at the threshold with the largest predicted bound, and this bound."""
    # Thresholds at ranks of the scores that are dense among the largest scores.
    sign = 1.0 if event.above else -1.0
    ours, others = np.sort(sign * likely), np.sort(sign * rare)
    ranks = np.unique(np.geomspace(1, ours.size, _RANKS).astype(np.int64))
    # An event must include scores that equal the rank's score: put the threshold just below it.
    cuts = np.nextafter(np.unique(ours[-ranks]), -np.inf)
    hits, misses = (x.size - np.searchsorted(x, cuts, side="right") for x in (ours, others))
    # Raise the rare counts by two standard deviations; otherwise a threshold with a count that is
    # small by chance would be chosen.
    expected = misses + 2.0 * np.sqrt(misses) + 3.0
    if event.statistic == LIKELIHOOD_RATIO:
        expected = _weighed(ours, hits, misses, expected)
    # Choose the threshold of the largest predicted bound.
    epsilons = promised(trials / ours.size, [np.maximum(hits - np.sqrt(hits), 0.0), expected])
    best = int(np.argmax(epsilons))
    chosen = replace(event, threshold=_threshold(sign, float(cuts[best])))
    return chosen, float(epsilons[best])


def _weighed(
    ours: FloatArray, hits: NDArray[np.int64], misses: NDArray[np.int64], careful: FloatArray
) -> FloatArray:
    """Expected counts in the rare world, estimated from the likely world with weights e^(−score).

    The estimate is valid if the statistic is the log likelihood ratio. The estimate is more
    accurate than counts in the rare world, because more trials of the likely world have the event.
    If the count at some threshold contradicts the estimate, the result is ``careful`` instead.
    """
    weights = np.exp(np.minimum(-ours[::-1], 700.0))
    weighed = np.concatenate([[0.0], np.cumsum(weights)])[hits]
    enough = np.maximum(misses, weighed) >= _ENOUGH
    apart = np.abs(misses - weighed) > _FAR * np.sqrt(misses + 1.0)
    return careful if (enough & apart).any() else weighed


def _threshold(sign: float, cut: float) -> float:
    """Threshold on the score itself for the event "sign·score > cut"."""
    # For sign −1: −score > cut means score < −cut, while the event "not above t" is score ≤ t.
    return cut if sign > 0 else math.nextafter(-cut, -math.inf)


def counted(
    event: Event, likely: FloatArray, rare: FloatArray, delta: float, error: float
) -> Counted:
    """Counts of an event, and the lower bounds on ε and μ from them.

    Args:
        event: event, which must be chosen without the trials that are counted.
        likely: scores of trials of the world in which the event is likely, shape (trials,).
        rare: scores of trials of the other world, shape (trials,).
        delta: δ, from 0 to below 1.
        error: probability with which a bound may exceed the true value.

    Raises:
        ParameterError: the worlds have different numbers of trials.
    """
    if likely.size != rare.size:
        expected = f"{likely.size} trials, as many as in the other world"
        raise ParameterError("rare", f"{rare.size} trials", expected)
    sides = event.count(likely), event.count(rare)
    epsilon = float(epsilon_by_counts(*sides, likely.size, delta, error))
    mu = float(gaussian_mu_by_counts(*sides, likely.size, error))
    return Counted(event, *sides, likely.size, epsilon, mu)


def merged_scores(parts: Iterable[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    """Scores of several groups of trials, joined by the name of the statistic, (trials,) each."""
    groups = list(parts)
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}


@dataclass(frozen=True, slots=True)
class Statement:
    """Proved bounds on ε at a δ, by direction.

    Attributes:
        directions: bounds on ε by direction: "remove" and "add", or only "replace".
        delta: δ of the bounds.
        terms: relation, unit and trust, as far as they are known, by name.
    """

    directions: Mapping[str, Bounds]
    delta: float
    terms: Mapping[str, str]

    @property
    def epsilon(self) -> Bounds:
        """Bounds on ε of the worse direction."""
        return Bounds(
            max(b.lower for b in self.directions.values()),
            max(b.upper for b in self.directions.values()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Empirical ROC curve of a statistic: rates of an event in both worlds.

    Attributes:
        likely: true positive rates, shape (points,).
        rare: false positive rates, shape (points,).
    """

    likely: FloatArray
    rare: FloatArray

    @classmethod
    def of(cls, event: Event, likely: FloatArray, rare: FloatArray, points: int = 300) -> Rates:
        """ROC curve over at most ``points`` thresholds, from scores (trials,) in each world."""
        sign = 1.0 if event.above else -1.0
        ours, others = np.sort(sign * likely), np.sort(sign * rare)
        ranks = np.unique(np.geomspace(1, ours.size, points).astype(np.int64))
        cuts = np.nextafter(ours[-ranks], -np.inf)
        rates = [1.0 - np.searchsorted(x, cuts, side="right") / x.size for x in (ours, others)]
        return cls(*rates)


@dataclass(frozen=True, slots=True, eq=False)
class FoundAt:
    """Proved bounds on ε at one δ, and the counted event of each direction.

    Attributes:
        stated: proved bounds on ε at one δ.
        found: counted event of each direction.
    """

    stated: Statement
    found: Mapping[str, Counted]

    @property
    def violated(self) -> tuple[str, ...]:
        """Directions whose lower bound exceeds the proved upper bound on ε."""
        uppers = self.stated.directions
        return tuple(
            name for name, found in self.found.items() if found.epsilon > uppers[name].upper
        )


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Lower bounds on ε from a distinguishing game, and the proved bounds.

    Attributes:
        game: description of the game.
        stated: the proved bounds at the audited δ.
        found: events and their counts at this δ, by direction.
        rates: the ROC curve of each direction's statistic.
        also: events and their counts at further δ.
        confidence: with at least this probability, no lower bound exceeds the true ε.
        trials: number of trials of each world, including those on which events were chosen.
        seed: seed of all random streams.
        seconds: running time.
    """

    game: str
    stated: Statement
    found: Mapping[str, Counted]
    rates: Mapping[str, Rates]
    also: tuple[FoundAt, ...]
    confidence: float
    trials: int
    seed: int
    seconds: float

    @property
    def epsilon_lower(self) -> float:
        """Largest lower bound on ε at the audited δ."""
        return max(found.epsilon for found in self.found.values())

    @property
    def gaussian_mu(self) -> float:
        """Lower bound on μ, the largest over all events; valid if the trade-off is Gaussian."""
        every = (self.found, *(at.found for at in self.also))
        return max(counted.gaussian_mu for found in every for counted in found.values())

    @property
    def violated(self) -> tuple[tuple[FoundAt, str], ...]:
        """Pairs (outcome at one δ, direction) whose lower bound exceeds the proved upper bound."""
        every = (FoundAt(self.stated, self.found), *self.also)
        return tuple((one, name) for one in every for name in one.violated)

    @property
    def consistent(self) -> bool:
        """True if each of the audit's lower bounds on ε is at most the proved upper bound."""
        return not self.violated


_LARGEST = 700.0


def exponents(
    relation: Relation, seen: FloatArray, noise_multiplier: float
) -> list[tuple[float, FloatArray]]:
    """Pairs (sign, exponents) of the likelihood ratio, one for each possible update.

    The log ratio of the worlds is the sum of sign times `LOG_RATIOS` of the exponents over all
    pairs. Under replace-one there are two pairs: the update C in one world, −C in the other.

    Args:
        relation: relation of the two worlds.
        seen: the released coordinate of the client in each step, in units of C, of any shape.
        noise_multiplier: σ of a step, in units of C.
    """
    # Log ratio of N(1, σ²) to N(0, σ²) at a release, for an update of +C, and of −C.
    signs = (1.0, -1.0) if relation is Relation.REPLACE_ONE else (1.0,)
    return [(sign, (sign * seen - 0.5) / noise_multiplier**2) for sign in signs]


def _always(draw: Always, a: FloatArray) -> FloatArray:
    """Log ratio of a client that takes part in the block's single step."""
    return a[0]


def _with_chance(rate: float, a: FloatArray) -> FloatArray:
    """Log ratio ln(1 − r + r·e^a) of a client that takes part with probability r."""
    if rate == 1.0:
        return a
    if rate == 0.0:
        return np.zeros_like(a)
    # Beyond e^700 the term 1 − r is negligible against r·e^a.
    found = np.log1p(rate * np.expm1(np.minimum(a, _LARGEST)))
    return found + np.maximum(a - _LARGEST, 0.0)


def _bernoulli(draw: Bernoulli, a: FloatArray) -> FloatArray:
    """Log ratio of a client that takes part with the draw's rate."""
    return _with_chance(draw.rate, a[0])


def _cohort(draw: Cohort, a: FloatArray) -> FloatArray:
    """Log ratio of a client that takes part if the uniform cohort of the step contains it."""
    return _with_chance(draw.size / draw.population, a[0])


def log_sum(a: FloatArray) -> FloatArray:
    """Logarithm of Σ e^a over the first axis, (n, …) to (…), computed without overflow."""
    top = a.max(axis=0)
    return top + np.log(np.exp(a - top).sum(axis=0))


def _one_of(draw: OneOf, a: FloatArray) -> FloatArray:
    """Log ratio of a client that takes part in one uniform step of the block."""
    return _with_chance(draw.probability, log_sum(a) - np.log(len(a)))


def _k_of(draw: KOf, a: FloatArray) -> FloatArray:
    """Logarithm of the mean of e^{Σ a} over all subsets of ``picks`` steps.

    After s steps, row j is the logarithm of the mean over the subsets of j of these s steps:
    mean(j, s) = (s − j)/s · mean(j, s − 1) + j/s · e^{a_s} · mean(j − 1, s − 1).
    """
    # Add one step after another to the recursion, in logarithms.
    picks, n = draw.picks, a.shape[1]
    means = np.full((picks + 1, n), -np.inf)
    means[0] = 0.0
    with np.errstate(divide="ignore"):
        for s, step in enumerate(a, start=1):
            j = np.arange(1, picks + 1)
            stays, joins = np.log(np.maximum(s - j, 0) / s), np.log(np.minimum(j, s) / s)
            kept = stays[:, None] + means[1:]
            means[1:] = np.logaddexp(kept, joins[:, None] + step + means[:-1])
    return means[picks]


def _kept(draw: Kept, a: FloatArray) -> FloatArray:
    """Log ratio of a client that takes part in the same uniform step of every epoch."""
    each = a.reshape(draw.epochs, draw.slot.steps, -1).sum(axis=0)
    return _one_of(draw.slot, each)


def _staggered(draw: Staggered, a: FloatArray) -> FloatArray:
    """Log ratio of a client whose window has the most released steps."""
    return _with_chance(len(a) / draw.window, log_sum(a) - np.log(len(a)))


def _one_of_own(draw: OneOfOwn, a: FloatArray) -> FloatArray:
    """Log ratio of a client that draws among the steps of ``a``, its available steps."""
    if not len(a):
        return np.zeros(a.shape[1])
    return _with_chance(draw.probability, log_sum(a) - np.log(len(a)))


LOG_RATIOS: DrawTable[Callable[[Any, FloatArray], FloatArray]] = DrawTable(
    "the likelihood ratio of a release",
    {
        Always: _always,
        Bernoulli: _bernoulli,
        Cohort: _cohort,
        OneOf: _one_of,
        KOf: _k_of,
        Kept: _kept,
        Staggered: _staggered,
        OneOfOwn: _one_of_own,
    },
)


class Statistics:
    """Scores of a group of runs by several statistics, updated block by block.

    Args:
        scheme: scheme with Gaussian noise; only its noise, participation and relation are used.
        trials: number of runs of the group.
    """

    def __init__(self, scheme: Scheme, trials: int) -> None:
        assert isinstance(scheme.randomizer, GaussianNoise)
        self._noise_multiplier = scheme.randomizer.noise_multiplier
        self._relation = scheme.relation
        self._ratio = np.zeros(trials)
        self._sum = np.zeros(trials)
        self._skipped = np.zeros(trials)
        self._largest = np.full(trials, -np.inf)
        form = normal_form(scheme.participation)
        draw, many = form.spans[0].draw, form.blocks > 1 and len(form.spans) == 1
        self._repeated = Kept(draw, form.blocks) if many and isinstance(draw, OneOf) else None
        self._slots: dict[float, FloatArray] = {}

    def add(self, draw: Draw, seen: FloatArray) -> None:
        """Add the releases of one block to all statistics.

        Args:
            draw: the canary's draw in the block.
            seen: the canary's coordinate in the steps in which it can take part, in units of C,
                shape (steps, trials); NaN for skipped steps.
        """
        if not len(seen):
            return
        # A skipped step has the likelihood ratio 1, so its exponent and its release are set to 0.
        skipped = np.isnan(seen)
        if skipped.any():
            self._skipped += skipped.sum(axis=0)
            seen = np.where(skipped, 0.0, seen)
        for sign, a in exponents(self._relation, seen, self._noise_multiplier):
            a[skipped] = 0.0
            self._ratio += sign * LOG_RATIOS[draw](draw, a)
            if self._repeated is not None:
                self._slots[sign] = self._slots.get(sign, 0.0) + a
        self._sum += seen.sum(axis=0)
        np.maximum(self._largest, seen.max(axis=0), out=self._largest)

    def by_name(self) -> dict[str, FloatArray]:
        """Scores of the runs by the name of the statistic, each of shape (trials,)."""
        found = {
            LIKELIHOOD_RATIO: self._ratio,
            "sum": self._sum,
            "largest release": self._largest,
            "skipped steps": self._skipped,
        }
        if self._repeated is not None:
            slot = self._repeated.slot
            found["ratio of a kept slot"] = np.asarray(
                sum(sign * LOG_RATIOS[slot](slot, a) for sign, a in self._slots.items())
            )
        return found
