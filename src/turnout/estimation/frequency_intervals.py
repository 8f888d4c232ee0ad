"""Intervals for frequencies that hold at every number of clients, not in the limit only.

Notation: n clients, c_v the messages that support item v, μ_v = q + (p − q)·f_v their mean share,
where a message supports the client's own item with p and any other one with q.

c_v is a sum of n independent coins, of which n·f_v fall with p and the others with q. By Hoeffding
(1956, Theorem 5) its tails, one or more away from the mean, are no heavier than those of a binomial
of mean n·μ_v; and at a tail below 1/4 the limits of Clopper and Pearson never look nearer to the
mean. So the exact binomial interval for μ_v holds, and with it the one for f_v = (μ_v − q)/(p − q).

The same limits cover the share π_v in the population, if the clients are independent draws from it:
then c_v *is* binomial, of chance q + (p − q)·π_v. So do the limits from sample variances, whose
messages are then independent of one law.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy import special

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation.frequency_scores import Evidence


@dataclass(frozen=True, eq=False)
class FrequencyIntervals:
    """Lower and upper limits of all items' frequencies.

    Attributes:
        low: shape (k,), at least 0.
        high: shape (k,), at most 1.
        confidence: probability that the limits hold: each item's on its own, or, where
            ``simultaneous``, all of them at once. For the shares of these clients it is over their
            coins; for the shares of a population it is over who was sampled, too.
        simultaneous: whether they hold all at once.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    confidence: float
    simultaneous: bool


def frequency_intervals(
    evidence: Evidence, confidence: float = 0.95, simultaneous: bool = False
) -> FrequencyIntervals:
    """Two-sided limits for the shares of clients that hold each item.

    They cover the shares of these n clients, and those of a large population from which the
    clients are a simple random sample, each with the stated probability.

    Args:
        evidence: what the messages say.
        confidence: at least 0.5, below 1.
        simultaneous: whether all limits must hold at once (Bonferroni over the k items, then
            made consistent: shares sum to 1, so each is at most 1 minus the others' lower limits
            and at least 1 minus their upper limits).
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
    """Standard errors of the shares in a simple random sample, √(f(1 − f)/n), shape (k,).

    Args:
        shares: estimates; what lies outside [0, 1] counts as its nearer end.
        clients: n, or a private estimate of it.
    """
    within = np.clip(shares, 0.0, 1.0)
    return np.sqrt(within * (1 - within) / clients)


def sampled_limits(
    counts: tuple[NDArray[np.float64], NDArray[np.float64]], clients: float, tail: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Limits of the shares in a population, from limits of counts among its sample.

    Source: Clopper and Pearson's limits, at the ends of what the counts may be.

    Args:
        counts: lowest and highest count of each item among the sampled, shape (k,) each.
        clients: n.
        tail: chance that either side may miss, beside what the counts' limits miss.
    """
    low, high = (np.clip(each, 0.0, clients) for each in counts)
    least = special.betaincinv(np.maximum(low, 1e-9), clients - low + 1, tail)
    most = special.betainccinv(high + 1, np.maximum(clients - high, 1e-9), tail)
    return np.where(low > 0, least, 0.0), np.where(high < clients, most, 1.0)


def binomial_p_values(counts: NDArray[np.int64], n: int, mean: float) -> NDArray[np.float64]:
    """The probability that so many of n independent messages support an item, at a mean share
    ``mean``.

    Args:
        counts: messages that support each item, shape (k,).
        n: messages.
        mean: in [0, 1]; it may be the mean of shares that differ from client to client.

    Returns:
        P(Bin(n, ``mean``) ≥ c), shape (k,): p-values that hold at every level up to 1/4.
    """
    # That tail is the regularised incomplete beta function I_μ(c, n − c + 1).
    tails = special.betainc(np.maximum(counts, 1), n - counts + 1, min(mean, 1.0))
    return np.where(counts > 0, tails, 1.0)


def _limits(evidence: Evidence, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One-sided limits, each wrong with probability ``tail`` at most."""
    if evidence.counts is None:
        return _bernstein(evidence, tail)
    c = evidence.counts.astype(np.float64)
    low, high = sampled_limits((c, c), evidence.clients, tail)
    return (low - evidence.other) / evidence.lift, (high - evidence.other) / evidence.lift


def _bernstein(evidence: Evidence, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Limits for means of scores in {−1, 0, 1}, from their sample variance.

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
