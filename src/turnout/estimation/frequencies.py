"""Frequencies of k items among n clients, from one randomized message of each client.

`estimate_frequencies` turns a `FrequencyTally` into a `FrequencyEstimate`, with frequencies and
their standard errors. `FrequencyIntervals` are confidence intervals that are valid for every number
of clients. `items_above` returns the items with a frequency above a threshold. `shrink` is the
empirical-Bayes post-processing. All these functions read only tallies
(`turnout.estimation.tallies`), so they have no privacy cost.

**Intervals.** Notation: n clients, c_v the number of messages that support item v, p the
probability that a message supports its client's item and q that it supports another item,
μ_v = q + (p − q)·f_v the expected share of messages that support v.

c_v is a sum of n independent bits: n·f_v of them are 1 with probability p, and all others are 1
with probability q. At a distance of at least 1 from the mean, the tail probabilities of c_v are at
most those of a binomial distribution with mean n·μ_v (Hoeffding 1956, Theorem 5). For tail
probabilities below 1/4 the limits of Clopper and Pearson have at least this distance. So the exact
binomial interval for μ_v is valid, and so is the interval for f_v = (μ_v − q)/(p − q) that follows.

The same limits cover the share π_v in a population if the clients are independent draws from the
population, since c_v is then binomial with probability q + (p − q)·π_v. The limits from sample
variances also cover π_v, since the messages are then independent and identically distributed.

**Shrinking.** Notation: x_v the raw estimate of item v, s_v its standard error, f_v its frequency,
G the distribution of the frequencies of all items, as masses w_j on a grid of points g_j ≥ 0.

x_v is nearly normal around f_v. If the f_v were drawn from G, the estimate of f_v with the least
squared error would be the posterior mean of f_v. G is unknown, but k raw estimates determine G
well: expectation maximisation computes the maximum-likelihood estimate of G, under the constraint
that the mean of G is 1/k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation.tallies import POST_PROCESSING, Evidence, FrequencyTally, evidence
from turnout.randomizers.interface import FrequencyRandomizer

_FEWEST, _MOST = 301, 1201
"""Smallest and largest number of grid points, without those at the largest raw estimates."""
_LARGEST = 200
_ROUNDS = 200
_DIRECT = 2**12
"""Largest number of items without binning; more are binned in tenths of a standard error."""
_BLOCK = 2**12


def shrink(raw: ArrayLike, standard_errors: ArrayLike) -> NDArray[np.float64]:
    """Posterior means of all frequencies under a fitted prior, scaled to sum to 1.

    Source: Robbins, An empirical Bayes approach to statistics, 1956; Kiefer, Wolfowitz, Ann. Math.
        Stat. 1956 (the maximum-likelihood prior); Jiang, Zhang, General maximum likelihood
        empirical Bayes estimation of normal means, Ann. Stat. 2009 (close to the best of all rules
        that treat items alike).

    Use it for a few hundred items or more. Items with equal raw estimates and equal errors get
    equal results. If errors differ between items, the errors must not depend on the true
    frequencies.

    Args:
        raw: the unbiased estimate, finite numbers, shape (k,).
        standard_errors: standard errors of ``raw``, above 0, shape (k,).

    Returns:
        Non-negative numbers that sum to 1, shape (k,).

    Raises:
        ParameterError: another shape, or numbers outside their domain.
    """
    x, s = np.asarray(raw, dtype=np.float64), np.asarray(standard_errors, dtype=np.float64)
    if x.ndim != 1 or not x.size or not np.all(np.isfinite(x)):
        raise ParameterError("raw", x.shape, "finite numbers of shape (k,)")
    if s.shape != x.shape or not np.all((s > 0) & np.isfinite(s)):
        raise ParameterError("standard_errors", s.shape, f"{x.size} finite numbers above 0")
    grid = _grid(x, s)
    prior = _fitted(*_binned(x, s), grid)
    means = np.concatenate(
        [
            _posterior_means(x[at : at + _BLOCK], s[at : at + _BLOCK], grid, prior)
            for at in range(0, x.size, _BLOCK)
        ]
    )
    total = means.sum()
    return means / total if total > 0 else np.full(x.size, 1 / x.size)


def _grid(x: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Grid points of the prior, with distances that grow to half a standard error.

    The largest raw estimates are grid points too, so that there is a grid point near a single
    frequent item even if the standard error of this item is small.
    """
    largest = max(float(x.max()), 3 * float(s.max()))
    count = int(np.clip(4 * largest / float(np.median(s)), _FEWEST, _MOST))
    own = np.sort(x)[-_LARGEST:]
    return np.unique(np.concatenate([np.linspace(0, 1, count) ** 2 * largest, own[own > 0]]))


def _binned(
    x: NDArray[np.float64], s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Values grouped into narrow bins, with standard errors and the number of items per bin."""
    if x.size <= _DIRECT:
        return x, s, np.ones(x.size)
    error = float(np.sqrt(np.mean(s**2)))
    bins = np.rint(x / (error / 10)).astype(np.int64)
    _, where, counts = np.unique(bins, return_inverse=True, return_counts=True)
    mean = np.bincount(where, weights=x) / counts
    errors = np.sqrt(np.bincount(where, weights=s**2) / counts)
    return mean, errors, counts.astype(np.float64)


def _likelihood(
    x: NDArray[np.float64], s: NDArray[np.float64], grid: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Gaussian likelihood of each value at each grid point, scaled to maximum 1 per value."""
    distance = ((x[:, None] - grid) / s[:, None]) ** 2
    return np.exp(-0.5 * (distance - distance.min(axis=1, keepdims=True)))


def _fitted(
    x: NDArray[np.float64],
    s: NDArray[np.float64],
    counts: NDArray[np.float64],
    grid: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Prior masses on the grid, by expectation maximisation with the prior mean held fixed."""
    likelihood = _likelihood(x, s, grid)
    masses = np.full(grid.size, 1 / grid.size)
    share, mean = counts / counts.sum(), 1 / counts.sum()
    for _ in range(_ROUNDS):
        masses = masses * ((share / (likelihood @ masses)) @ likelihood)
        masses = _tilted(masses, grid, mean)
    return masses


def _tilted(
    masses: NDArray[np.float64], grid: NDArray[np.float64], mean: float
) -> NDArray[np.float64]:
    """Masses times e^{t·g}: the distribution of this mean that is nearest in relative entropy."""
    low, high = -200.0 / grid[-1], 200.0 / grid[-1]
    tilted = masses
    for _ in range(50):
        slope = (low + high) / 2
        tilted = masses * np.exp(slope * grid - max(slope * grid[-1], 0.0))
        tilted /= tilted.sum()
        if tilted @ grid < mean:
            low = slope
        else:
            high = slope
    return tilted


def _posterior_means(
    x: NDArray[np.float64],
    s: NDArray[np.float64],
    grid: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    weights = _likelihood(x, s, grid) * prior
    return (weights @ grid) / weights.sum(axis=1)


@dataclass(frozen=True, eq=False)
class FrequencyIntervals:
    """Lower and upper confidence limits of all items' frequencies.

    Attributes:
        low: lower limits, shape (k,), at least 0.
        high: upper limits, shape (k,), at most 1.
        confidence: lower bound on the probability that the limits of one item are valid or, if
            ``simultaneous``, that the limits of all items are valid at once. For the shares of
            these clients the probability is over the clients' random bits. For the shares of a
            population the probability is also over the sampling of the clients.
        simultaneous: whether the confidence is for all items at once.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    confidence: float
    simultaneous: bool


def frequency_intervals(
    evidence: Evidence, confidence: float = 0.95, simultaneous: bool = False
) -> FrequencyIntervals:
    """Two-sided confidence limits of all items' frequencies, valid for every number of clients.

    The limits cover the shares of these n clients, and the shares of a large population of which
    the clients are a simple random sample, each with at least the given probability.

    Args:
        evidence: evidence of a tally.
        confidence: at least 0.5, below 1.
        simultaneous: whether all limits must hold at once. The limits then have a Bonferroni
            correction for the k items. They are also cut, since shares sum to 1: a limit is at most
            1 minus the sum of the other items' lower limits, and at least 1 minus the sum of the
            other items' upper limits.

    Raises:
        ParameterError: ``confidence`` is below 0.5 or not below 1.
    """
    checks.open_unit(confidence=confidence)
    if confidence < 0.5:
        raise ParameterError("confidence", confidence, "at least 0.5")
    tail = (1 - confidence) / 2 / (evidence.items if simultaneous else 1)
    low, high = _limits(evidence, tail)
    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    if simultaneous:
        low, high = (
            np.maximum(low, 1 - (high.sum() - high) - 1e-12),
            np.minimum(high, 1 - (low.sum() - low) + 1e-12),
        )
    return FrequencyIntervals(low, high, confidence, simultaneous)


def sampling_errors(shares: NDArray[np.float64], clients: float) -> NDArray[np.float64]:
    """Standard errors √(f(1 − f)/n) of shares in a simple random sample, shape (k,).

    Args:
        shares: estimated shares, clipped to [0, 1], shape (k,).
        clients: n, or a private estimate of n, above 0.
    """
    within = np.clip(shares, 0.0, 1.0)
    return np.sqrt(within * (1 - within) / clients)


def sampled_limits(
    counts: tuple[NDArray[np.float64], NDArray[np.float64]], clients: float, tail: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper confidence limits of population shares, each of shape (k,).

    Source: Clopper and Pearson's limits at the lowest and highest counts.

    Args:
        counts: lowest and highest count of each item in the sample, shape (k,) each.
        clients: n.
        tail: upper bound on the failure probability of each limit, in addition to the failure
            probability of ``counts``.
    """
    low, high = (np.clip(each, 0.0, clients) for each in counts)
    least = special.betaincinv(np.maximum(low, 1e-9), clients - low + 1, tail)
    most = special.betainccinv(high + 1, np.maximum(clients - high, 1e-9), tail)
    return np.where(low > 0, least, 0.0), np.where(high < clients, most, 1.0)


def binomial_p_values(counts: NDArray[np.int64], n: int, mean: float) -> NDArray[np.float64]:
    """P-value of each item's count if the item's mean share is ``mean``, shape (k,).

    Args:
        counts: number of messages that support each item, shape (k,).
        n: number of independent messages.
        mean: mean share in [0, 1]; the shares may differ from client to client.

    Returns:
        P(Bin(n, ``mean``) ≥ c) for each count c: p-values that are valid for significance levels up
        to 1/4.
    """
    # That tail is the regularised incomplete beta function I_μ(c, n − c + 1).
    tails = special.betainc(np.maximum(counts, 1), n - counts + 1, min(mean, 1.0))
    return np.where(counts > 0, tails, 1.0)


def _limits(evidence: Evidence, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One-sided lower and upper limits, each with a failure probability of at most ``tail``."""
    if evidence.counts is None:
        return _bernstein(evidence, tail)
    c = evidence.counts.astype(np.float64)
    low, high = sampled_limits((c, c), evidence.clients, tail)
    return (low - evidence.other) / evidence.lift, (high - evidence.other) / evidence.lift


def _bernstein(evidence: Evidence, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bernstein limits for means of scores in {−1, 0, 1}, from the sample variance.

    Source: Maurer, Pontil, Empirical Bernstein bounds and sample-variance penalization, COLT 2009,
        Theorem 11 (independent, not necessarily identical variables), scaled to a range of 2.
    """
    n = evidence.clients
    if n < 2:
        return np.zeros(evidence.items), np.ones(evidence.items)
    mean = evidence.sums / n
    variance = np.maximum(evidence.squares / n - mean**2, 0) * n / (n - 1)
    weight = log(2 / tail)
    radius = np.sqrt(2 * variance * weight / n) + 2 * 7 * weight / (3 * (n - 1))
    gain = evidence.gain
    return (mean - radius) / gain, (mean + radius) / gain


def items_above(evidence: Evidence, threshold: float, error: float = 0.05) -> NDArray[np.int64]:
    """Items whose frequency is above ``threshold``, in order of decreasing evidence.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Stat. 1979,
        on exact binomial p-values (`turnout.estimation.frequencies`).

    Guarantees:
        With probability at least 1 − ``error`` over the clients' random bits, no returned item has
        a frequency of ``threshold`` or less, whatever items the clients hold.

    Args:
        evidence: evidence of a tally.
        threshold: share of the clients, in [0, 1).
        error: family-wise error, above 0, at most 0.25.

    Returns:
        Item numbers, int64, shape (items found,).

    Raises:
        ParameterError: ``threshold`` is outside [0, 1], or ``error`` outside (0, 1/4].
    """
    checks.probability(threshold=threshold)
    check_error(error)
    if evidence.counts is None:
        # No exact p-values: simultaneous lower limits, each with half of its share of the error.
        low = frequency_intervals(evidence, 1 - error, simultaneous=True).low
        found = np.flatnonzero(low > threshold)
        return found[np.argsort(-low[found], kind="stable")]
    mean = evidence.other + evidence.lift * threshold
    return holm(binomial_p_values(evidence.counts, evidence.clients, mean), error)


def check_error(error: float) -> None:
    """Raise an error if the family-wise error is above 1/4, where p-values are not valid.

    Raises:
        ParameterError: ``error`` is not in (0, 1/4].
    """
    checks.open_unit(error=error)
    if error > 0.25:
        raise ParameterError("error", error, "at most 0.25")


def holm(p_values: NDArray[np.float64], error: float) -> NDArray[np.int64]:
    """Indices of the hypotheses that Holm's test rejects, by increasing p-value.

    Args:
        p_values: p-value of each hypothesis, shape (k,).
        error: family-wise error, above 0, at most 0.25.

    Raises:
        ParameterError: ``error`` is outside (0, 1/4].

    >>> holm(np.array([0.5, 0.001, 0.02, 0.026]), 0.06).tolist()
    [1, 2, 3]
    """
    check_error(error)
    order = np.argsort(p_values, kind="stable")
    passed = p_values[order] <= error / np.arange(len(order), 0, -1)
    stop = int(np.argmin(passed)) if not passed.all() else len(order)
    return order[:stop]


WAYS = (*POST_PROCESSING, "empirical-bayes")
"""Names of all post-processings from a raw estimate to frequencies."""


@dataclass(frozen=True, eq=False)
class FrequencyEstimate:
    """Estimated share of the clients that hold each item, with standard errors and privacy.

    Attributes:
        randomizer: the randomizer of all messages.
        evidence: evidence of the tally.
        frequencies: the estimate, shape (k,).
        post_processing: name of the step from `raw` to `frequencies` (see `estimate_frequencies`).
    """

    randomizer: FrequencyRandomizer
    evidence: Evidence
    frequencies: NDArray[np.float64]
    post_processing: str

    unit = "client"
    """The unit that ε protects: one client, its whole message."""
    trust = "local"
    """The trust model: local; the message is private on its own."""
    relation = "replace-one"
    """The neighbouring relation: the client's item against any other item."""

    @property
    def clients(self) -> int:
        """Number n of clients, each with one message."""
        return self.evidence.clients

    @property
    def epsilon(self) -> float:
        """Pure local privacy level ε₀ of a client's message; δ is 0."""
        return self.randomizer.epsilon0

    @property
    def bits(self) -> int:
        """Total number of bits that all clients sent, without the bits of public questions."""
        return self.clients * self.randomizer.message_bits

    @cached_property
    def raw(self) -> NDArray[np.float64]:
        """Unbiased estimate, shape (k,); entries may be negative and need not sum to 1."""
        shares = self.evidence.sums / self.clients
        return (shares - float(self.randomizer.offset)) / float(self.randomizer.gain)

    @cached_property
    def noise_errors(self) -> NDArray[np.float64]:
        """Standard errors of `raw` as an estimate of these clients' shares, shape (k,).

        The errors measure the privacy noise alone, by the variance formula at the projection of
        `raw`.
        """
        return np.sqrt(self.randomizer.variance(self._shares, self.clients))

    @cached_property
    def population_errors(self) -> NDArray[np.float64]:
        """Standard errors of `raw` as an estimate of a population's shares, shape (k,).

        The errors measure privacy noise and the sampling of the clients, who are a simple random
        sample of a large population.
        """
        return np.hypot(self.noise_errors, sampling_errors(self._shares, self.clients))

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        return POST_PROCESSING["simplex"](self.raw)

    def intervals(self, confidence: float = 0.95, simultaneous: bool = False) -> FrequencyIntervals:
        """Confidence limits of the shares among clients and in a population, valid for every n.

        `frequency_intervals` describes the arguments and errors.
        """
        return frequency_intervals(self.evidence, confidence, simultaneous)

    def heavy_hitters(self, threshold: float, error: float = 0.05) -> NDArray[np.int64]:
        """Items with a share above ``threshold``, with a bounded probability of a wrong item.

        `items_above` describes the arguments, the result, the errors and the guarantee.
        """
        return items_above(self.evidence, threshold, error)

    def __str__(self) -> str:
        """One-line text with the size and the privacy of the estimate."""
        return (
            f"frequencies of {self.randomizer.items} items among {self.clients:,} clients, "
            f"{self.post_processing}; ε = {self.epsilon:g} (pure, {self.relation}), unit: one "
            f"{self.unit}, trust: {self.trust}; {self.randomizer.message_bits} bits a client"
        )


def estimate_frequencies(
    tally: FrequencyTally, post_processing: str = "simplex"
) -> FrequencyEstimate:
    """Frequencies with standard errors, from a tally of the clients' messages.

    Args:
        tally: tally of at least one client.
        post_processing: "simplex", "empirical-bayes", "clip", "normalise" or "raw". The ℓ2 error of
            "simplex" is never larger than the ℓ2 error of "raw", and usually far smaller.
            "empirical-bayes" has the smallest error for hundreds of items, but without such a
            guarantee.

    Raises:
        ParameterError: an empty tally, or an unknown post-processing.

    >>> from turnout.estimation import collect
    >>> from turnout.randomizers import HadamardRandomizer
    >>> from turnout.randomness import SimulationStreams
    >>> randomizer = HadamardRandomizer(epsilon=1.0, items=3)
    >>> held = np.repeat([0, 1, 2], [600, 300, 100])
    >>> tally = collect(randomizer, held, SimulationStreams(1).source("clients"))
    >>> estimate = estimate_frequencies(tally)
    >>> bool(abs(estimate.frequencies - [0.6, 0.3, 0.1]).max() < 5 * estimate.noise_errors.max())
    True
    """
    checks.count(clients=tally.clients)
    if post_processing not in WAYS:
        expected = f"one of {', '.join(map(repr, WAYS))}"
        raise ParameterError("post_processing", post_processing, expected)
    found = FrequencyEstimate(tally.randomizer, evidence(tally), np.empty(0), post_processing)
    if post_processing == "empirical-bayes":
        frequencies = shrink(found.raw, found.noise_errors)
    else:
        frequencies = POST_PROCESSING[post_processing](found.raw)
    return FrequencyEstimate(found.randomizer, found.evidence, frequencies, post_processing)
