"""Lower bounds on ε from counts, each with the probability that it is wrong.

`epsilon_by_counts` and `gaussian_mu_by_counts` are the bounds, `best_event` chooses the event on
trials of its own, `Findings` holds what a game found beside what is proved. `Statistics` lists the
scores of a trial, the likelihood ratio first.

| symbol | here | |
|---|---|---|
| E | an event of what is released, such as "the score is above t" | |
| β | `error` | the probability that the bound exceeds the true ε |

If a mechanism is (ε, δ)-DP, P(E) ≤ e^ε·Q(E) + δ for every event E. So ln((P(E) − δ)/Q(E)) never
exceeds ε, and with P(E) bounded from below and Q(E) from above it is a lower bound on ε.

**Likelihood ratios** are those of the accountant's own model, so no attack does better where what
runs is what was priced; elsewhere they are a statistic like any other. Each function takes
exponents a, the log ratio of a step's release given that the client took part in it, shape (steps
of the block, trials), and gives the log of its mean over the draw, shape (trials,).
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
"""The name of the statistic that is the log likelihood ratio of the world with the client's record
to the other one, where what runs is what was priced."""
_LIKELY_SHARE = 0.1
"""Of β, for the event in the world in which it is likely; its rarity elsewhere is what is hard to
bound."""
CLEARLY = 1.1
"""By which factor a statistic or a way to play must promise more than the one that is taken where
nothing is known: what a few trials promise is not sure."""
_ENOUGH, _FAR = 20, 6.0
"""Trials from which a count can contradict, and how many of its deviations it then is away."""
_RANKS = 400
"""Thresholds that are tried on trials of their own."""


@dataclass(frozen=True, slots=True)
class Event:
    """A statistic above a threshold, or not above it.

    Attributes:
        statistic: its name.
        above: whether the event is "above".
        threshold: t.
    """

    statistic: str
    above: bool
    threshold: float

    def count(self, scores: FloatArray) -> int:
        """Trials in which it happened."""
        above = int(np.count_nonzero(scores > self.threshold))
        return above if self.above else scores.size - above


@dataclass(frozen=True, slots=True)
class Counted:
    """An event's counts in both worlds, and the lower bound on ε that follows.

    Attributes:
        event: chosen before these trials were looked at.
        likely: trials of it in the world that it speaks for.
        rare: trials of it in the other world.
        trials: of each world.
        epsilon: never above the true ε, but with probability at most the error asked for.
        gaussian_mu: in the same cases never above the true μ, if the trade-off is Gaussian.
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
    """Bounds on a probability by its count, each of which fails with probability at most ``error``.

    Source: Clopper and Pearson, The use of confidence or fiducial limits
        (clopper1934confidence).

    Args:
        count: how often it happened, of any shape.
        trials: independent ones, at least 1.
        error: of each of the two bounds.
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
    """Lower bounds on ε, at least 0, by how often an event happened in each world.

    Args:
        likely: counts in the world that the event speaks for, of any shape.
        rare: counts in the other world, of the same shape.
        trials: of each world.
        delta: δ, from 0 to below 1.
        error: the probability that a bound exceeds the true ε, for an event that was chosen without
            these trials.

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
    """Lower bounds on μ, at least 0, of two worlds whose trade-off is that of Gaussian DP.

    Source: Dong, Roth and Su, Gaussian differential privacy (dong2022gaussian), of which it takes
        one point of the trade-off. It says nothing of worlds with another trade-off.

    It rests on the limits of `epsilon_by_counts` at the same arguments: both bounds together err
    with probability ``error``.

    >>> float(gaussian_mu_by_counts(900, 100, 1000, 1e-3).round(3))
    2.195
    """
    low, high = _limits(likely, rare, trials, error)
    return np.maximum(np.nan_to_num(ndtri(low) - ndtri(high), neginf=0.0), 0.0)


def _limits(
    likely: NDArray[np.int64] | int, rare: NDArray[np.int64] | int, trials: int, error: float
) -> tuple[FloatArray, FloatArray]:
    """The event's probability in its own world from below, and in the other one from above."""
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
    """The event that promises most for ``trials`` trials to come, and what it promises.

    Args:
        likely: scores by the name of the statistic, of trials of the world that the event speaks
            for; the first one is taken unless another promises clearly more.
        rare: the same of the other world; as many trials.
        trials: of each world, in which the event will be counted.
        delta: δ.
        error: of the bound to come.
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
    """The event with the best of some thresholds at ranks that are dense in the tail."""
    sign = 1.0 if event.above else -1.0
    ours, others = np.sort(sign * likely), np.sort(sign * rare)
    ranks = np.unique(np.geomspace(1, ours.size, _RANKS).astype(np.int64))
    # Events of ties are "at least", so the threshold lies just below the value.
    cuts = np.nextafter(np.unique(ours[-ranks]), -np.inf)
    hits, misses = (x.size - np.searchsorted(x, cuts, side="right") for x in (ours, others))
    # On the careful side, or the luckiest threshold of all would be the best.
    expected = misses + 2.0 * np.sqrt(misses) + 3.0
    if event.statistic == LIKELIHOOD_RATIO:
        expected = _weighed(ours, hits, misses, expected)
    epsilons = promised(trials / ours.size, [np.maximum(hits - np.sqrt(hits), 0.0), expected])
    best = int(np.argmax(epsilons))
    chosen = replace(event, threshold=_threshold(sign, float(cuts[best])))
    return chosen, float(epsilons[best])


def _weighed(
    ours: FloatArray, hits: NDArray[np.int64], misses: NDArray[np.int64], careful: FloatArray
) -> FloatArray:
    """The rare side's counts as means over the likely side, of whose trials there are many more.

    That is what they are where the statistic is the ratio that it is meant to be; where counts
    contradict it anywhere, they are believed.
    """
    weights = np.exp(np.minimum(-ours[::-1], 700.0))
    weighed = np.concatenate([[0.0], np.cumsum(weights)])[hits]
    enough = np.maximum(misses, weighed) >= _ENOUGH
    apart = np.abs(misses - weighed) > _FAR * np.sqrt(misses + 1.0)
    return careful if (enough & apart).any() else weighed


def _threshold(sign: float, cut: float) -> float:
    """The threshold of the event "sign·score > cut", said of the score."""
    # Below: −score > cut is score < −cut, and "not above t" is score ≤ t.
    return cut if sign > 0 else math.nextafter(-cut, -math.inf)


def counted(
    event: Event, likely: FloatArray, rare: FloatArray, delta: float, error: float
) -> Counted:
    """The event in these trials, which had no part in choosing it."""
    if likely.size != rare.size:
        raise ParameterError("rare", rare.size, f"{likely.size} trials, as in the other world")
    sides = event.count(likely), event.count(rare)
    epsilon = float(epsilon_by_counts(*sides, likely.size, delta, error))
    mu = float(gaussian_mu_by_counts(*sides, likely.size, error))
    return Counted(event, *sides, likely.size, epsilon, mu)


def merged_scores(parts: Iterable[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    """Scores of several groups of trials as those of one."""
    groups = list(parts)
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}


@dataclass(frozen=True, slots=True)
class Statement:
    """A claim: proved bounds at a δ, by direction.

    Attributes:
        directions: "remove" and "add", or "replace" alone.
        terms: relation, unit and trust, as far as they are known, by name.
    """

    directions: Mapping[str, Bounds]
    delta: float
    terms: Mapping[str, str]

    @property
    def epsilon(self) -> Bounds:
        """Of the worse direction."""
        return Bounds(
            max(b.lower for b in self.directions.values()),
            max(b.upper for b in self.directions.values()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """A ROC curve by counts: how often an event happened where it speaks for, and elsewhere.

    Attributes:
        likely: true positive rates, shape (points,).
        rare: false positive rates.
    """

    likely: FloatArray
    rare: FloatArray

    @classmethod
    def of(cls, event: Event, likely: FloatArray, rare: FloatArray, points: int = 300) -> Rates:
        """Of all thresholds of an event's statistic, thinned."""
        sign = 1.0 if event.above else -1.0
        ours, others = np.sort(sign * likely), np.sort(sign * rare)
        ranks = np.unique(np.geomspace(1, ours.size, points).astype(np.int64))
        cuts = np.nextafter(ours[-ranks], -np.inf)
        rates = [1.0 - np.searchsorted(x, cuts, side="right") / x.size for x in (ours, others)]
        return cls(*rates)


@dataclass(frozen=True, slots=True, eq=False)
class FoundAt:
    """The outcome for one statement: the event and its counts, by direction."""

    stated: Statement
    found: Mapping[str, Counted]

    @property
    def violated(self) -> tuple[str, ...]:
        """Directions whose lower bound exceeds what was proved."""
        uppers = self.stated.directions
        return tuple(
            name for name, found in self.found.items() if found.epsilon > uppers[name].upper
        )


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Lower bounds on ε that a game found, beside the proved ones.

    Attributes:
        game: what was played, in words.
        stated: what was proved of it.
        found: the event and its counts, by direction.
        rates: the ROC curve of each direction's statistic.
        also: the same at other δ.
        confidence: the chance that no lower bound here exceeds the true ε is at least this.
        trials: runs of each world, those by which events were chosen included.
        seed: names all random streams.
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
        """The largest lower bound on ε at the δ that was asked for."""
        return max(found.epsilon for found in self.found.values())

    @property
    def gaussian_mu(self) -> float:
        """The largest lower bound on μ, of all events, if the trade-off is that of Gaussian DP."""
        every = (self.found, *(at.found for at in self.also))
        return max(counted.gaussian_mu for found in every for counted in found.values())

    @property
    def violated(self) -> tuple[tuple[FoundAt, str], ...]:
        """Lower bounds that exceed what was proved, at any δ, with their directions."""
        every = (FoundAt(self.stated, self.found), *self.also)
        return tuple((one, name) for one in every for name in one.violated)

    @property
    def consistent(self) -> bool:
        """Whether nothing was found that exceeds what is proved."""
        return not self.violated


_LARGEST = 700.0


def exponents(
    relation: Relation, seen: FloatArray, noise_multiplier: float
) -> list[tuple[float, FloatArray]]:
    """The exponents of each update that the worlds know, with its sign.

    The log ratio of the worlds is the sum over the signs of sign times `LOG_RATIOS` of the
    exponents: under replace-one both worlds hold an update, C and −C.

    Args:
        relation: of the worlds.
        seen: what steps release of the client's coordinate, in units of C, of any shape.
        noise_multiplier: of a step.
    """
    signs = (1.0, -1.0) if relation is Relation.REPLACE_ONE else (1.0,)
    return [(sign, (sign * seen - 0.5) / noise_multiplier**2) for sign in signs]


def _always(draw: Always, a: FloatArray) -> FloatArray:
    return a[0]


def _with_chance(rate: float, a: FloatArray) -> FloatArray:
    """ln(1 − r + r·e^a)."""
    if rate == 1.0:
        return a
    if rate == 0.0:
        return np.zeros_like(a)
    # Beyond e^700 the first part is nothing beside the second.
    found = np.log1p(rate * np.expm1(np.minimum(a, _LARGEST)))
    return found + np.maximum(a - _LARGEST, 0.0)


def _bernoulli(draw: Bernoulli, a: FloatArray) -> FloatArray:
    return _with_chance(draw.rate, a[0])


def _cohort(draw: Cohort, a: FloatArray) -> FloatArray:
    return _with_chance(draw.size / draw.population, a[0])


def log_sum(a: FloatArray) -> FloatArray:
    """The log of Σ e^a over the first axis."""
    top = a.max(axis=0)
    return top + np.log(np.exp(a - top).sum(axis=0))


def _one_of(draw: OneOf, a: FloatArray) -> FloatArray:
    return _with_chance(draw.probability, log_sum(a) - np.log(len(a)))


def _k_of(draw: KOf, a: FloatArray) -> FloatArray:
    """The elementary symmetric polynomial of e^a over the number of subsets, step by step.

    Row j is after s steps the mean of e^{Σ a} over the subsets of j of them, so that no row leaves
    the floats' range: mean(j, s) = (s − j)/s · mean(j, s − 1) + j/s · e^{a_s} · mean(j − 1, s − 1).
    """
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
    each = a.reshape(draw.epochs, draw.slot.steps, -1).sum(axis=0)
    return _one_of(draw.slot, each)


def _staggered(draw: Staggered, a: FloatArray) -> FloatArray:
    """Of a client whose window begins with the first released slot, or is released the most."""
    return _with_chance(len(a) / draw.window, log_sum(a) - np.log(len(a)))


def _one_of_own(draw: OneOfOwn, a: FloatArray) -> FloatArray:
    """Of a client whose own steps are those of ``a``, and no others."""
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
    """Sums over the blocks of a group of runs, each of shape (trials,).

    Args:
        scheme: its noise, law and relation.
        trials: runs of the group.
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
        """One more block.

        Args:
            draw: the canary's.
            seen: the steps that can hold it, in units of C, NaN where one is skipped, shape
                (steps, trials).
        """
        if not len(seen):
            return
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
        """All statistics by name."""
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
