"""Lower bounds on ε from counts, each with the probability that it is wrong.

| symbol | here | |
|---|---|---|
| E | an event of what is released, such as "the score is above t" | |
| β | `error` | the probability that the bound exceeds the true ε |

If a mechanism is (ε, δ)-DP, P(E) ≤ e^ε·Q(E) + δ for every event E. So ln((P(E) − δ)/Q(E)) never
exceeds ε, and with P(E) bounded from below and Q(E) from above it is a lower bound on ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

from turnout.core import checks
from turnout.core.errors import ParameterError

FloatArray = NDArray[np.float64]

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


def merged(parts: Iterable[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    """Scores of several groups of trials as those of one."""
    groups = list(parts)
    return {name: np.concatenate([group[name] for group in groups]) for name in groups[0]}
