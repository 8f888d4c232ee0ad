"""Shuffles of sampled clients or records, by the thesis' own numbers.

Source: Girgis 2023 (girgis2023thesis), Chapters 4 and 5. Replace-one, both directions, one record.
`turnout.accounting.price` is what to quote: Theorem 5.4.1 is 5 to 8 times looser in the cases that
the thesis draws, and Lemma 4.3.1 composes (ε, δ) pairs instead of curves.

Notation
    ε₀  local_epsilon in (0, 300]; e = e^{ε₀}      m  records ≥ 1, of a client
    n   clients          k  sampled ≤ n, uniformly    s  samples ≤ m, drawn of these records
    γ = k/n              k̄ = ⌊(k − 1)/(2e)⌋ + 1
    q   chance that one record is used: ks/(nm) where k are sampled
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from turnout.accounting.divergence.pairs.prices import log_expm1
from turnout.accounting.published.binary_response import log_excess, log_moment_below
from turnout.accounting.published.renyi import RenyiFormula, RenyiLowerFormula
from turnout.accounting.published.results import Paper, PrivacyPoint, Status
from turnout.accounting.published.shuffling_rdp import (
    blanket_size,
    require_setting,
    sub_gaussian_moments,
)
from turnout.accounting.shuffling.blanket.blocks import clones_2021
from turnout.core import checks
from turnout.core.errors import UnsupportedError

FloatArray = np.ndarray
ShuffleBound = Callable[[float, int, float], float]
_ROUNDING = 1e-12


def theorem_5_4_1(local_epsilon: float, clients: int, sampled: int) -> RenyiFormula:
    """The thesis' upper bound on a shuffle of k of n clients.

    Source: Theorem 5.4.1 of Girgis 2023 (girgis2023thesis): D_α ≤ 1 + 4C(α,2)γ²(e − 1)²/(k̄e)
    + Σ_{j=3}^α C(α,j)γ^j·jΓ(j/2)·(2(e² − 1)²/(k̄e²))^{j/2} + Υ with
    Υ = ((1 + γ(e² − 1)/e)^α − 1 − αγ(e² − 1)/e)·e^{−(k−1)/(8e)}.

    Returns:
        The bound at whole orders α ≥ 2, rounded up; real ones by (5.6).

    >>> round(theorem_5_4_1(1.5, 60_000, 10_000).composed(1200).epsilon(1e-5), 3)
    3.086
    """
    _check_sampled(local_epsilon, clients, sampled)
    hidden, log_rate = blanket_size(local_epsilon, sampled), math.log(sampled / clients)
    log_second = (
        math.log(4) + 2 * log_rate + 2 * log_expm1(local_epsilon) - local_epsilon - math.log(hidden)
    )
    log_change = log_expm1(2 * local_epsilon) - local_epsilon
    log_ratio = math.log(2 / hidden) + 2 * (log_rate + log_change)
    moments = sub_gaussian_moments(log_second, log_ratio)
    exponent = (sampled - 1) * math.exp(-local_epsilon) / 8
    step = math.exp(log_rate + log_change)

    def log_moments(orders: FloatArray) -> FloatArray:
        unlucky = log_excess(step, orders) - exponent
        unlucky += 1e-9 + _ROUNDING * (exponent + orders * math.log1p(step))
        return np.logaddexp.reduce([np.zeros_like(orders), moments(orders), unlucky])

    return RenyiFormula(log_moments)


def theorem_5_4_2(local_epsilon: float, clients: int, sampled: int) -> RenyiLowerFormula:
    """NO GUARANTEE: what sampled binary randomized response attains when all others hold a zero.

    Source: Theorem 5.4.2 of Girgis 2023 (girgis2023thesis), summed over the number of ones.

    Returns:
        Exact at whole orders α ≥ 2 but for rounding (down).
    """
    _check_sampled(local_epsilon, clients, sampled)
    chance = sampled / clients
    return RenyiLowerFormula(
        lambda orders: log_moment_below(orders, local_epsilon, sampled, chance)
    )


def lemma_4_3_1(
    local_epsilon: float,
    clients: int,
    sampled: int,
    delta: float,
    *,
    records: int = 1,
    samples: int = 1,
    bound: ShuffleBound = clones_2021,
) -> float:
    """ε of one round in which k of n clients send s of their m records each, at the whole δ.

    Source: Lemma 4.3.1 of Girgis 2023 (girgis2023thesis): with (ε̃, δ̃) of a shuffle of ks
    messages, ε = ln(1 + q(e^{ε̃} − 1)) and δ = qδ̃ for s = 1. For s > 1 only the records' sampling
    amplifies, ε = ln(1 + (s/m)(e^{ε̃} − 1)) (Remark C.1.1). The lemma has ε̃ as O(·); here it is
    whatever bound is given, without the lemma's limit on ε₀.

    ``bound`` is (ε₀, messages, δ̃) ↦ ε̃, by default the numeric clones bound.

    Returns:
        ε for one record, never below the true one if ``bound`` is not; 0 where q ≤ δ.
    """
    _check_sampled(local_epsilon, clients, sampled)
    checks.open_unit(delta=delta)
    checks.count(records=records, samples=samples)
    checks.at_most("records", records, samples=samples)
    used = sampled * samples / (clients * records)
    if used <= delta:
        return 0.0
    amplifies = used if samples == 1 else samples / records
    shuffled = bound(local_epsilon, sampled * samples, delta / used * (1 - _ROUNDING))
    return amplified(shuffled, amplifies)


def lemma_4_4_1(
    local_epsilon: float, clients: int, probability: float, inner_delta: float
) -> PrivacyPoint:
    """(ε, δ) of one round of self-sampling clients with one record each.

    Source: Lemma 4.4.1 of Girgis 2023 (girgis2023thesis), evaluated where its proof still has
    numbers: ε = ln(1 + (3q/2)(e^{ε̃} − 1)) with ε̃ of a shuffle of ⌈qn/2⌉ messages at δ̃, by clones,
    and δ = qδ̃ + 2e^{ε₀}e^{−qn/12}. The lemma puts e^{−c'qn} for the last term, "for some constant
    c' in (0, 1)", which no constant gives: it needs c' ≤ 1/12 − (ε₀ + ln 2)/(qn).

    Raises:
        UnsupportedError: δ would be 1.
    """
    _expected(local_epsilon, clients, probability, inner_delta)
    missed = missed_by_coins(local_epsilon, clients, probability)
    point = _by_coins(local_epsilon, clients, probability, inner_delta, missed)
    if point.delta >= 1:
        raise UnsupportedError(
            f"Lemma 4.4.1 proves nothing: so few clients are expected ({probability * clients:.4g})"
            " that 2 e^(epsilon_0) e^(-qn/12) leaves no delta"
        )
    return point


def missed_by_coins(local_epsilon: float, clients: int, probability: float) -> float:
    """2e^{ε₀}e^{−qn/12}, at most 1: what too few or too many clients add to δ in `lemma_4_4_1`."""
    return math.exp(min(local_epsilon + math.log(2) - probability * clients / 12, 0.0))


def lemma_4_4_1_as_printed(
    local_epsilon: float, clients: int, probability: float, inner_delta: float, *, constant: float
) -> PrivacyPoint:
    """UNSAFE: `lemma_4_4_1` with e^{−c'qn} for what happens when too few or too many come."""
    expected = _expected(local_epsilon, clients, probability, inner_delta)
    checks.open_unit(constant=constant)
    missed = math.exp(-constant * expected)
    return _by_coins(local_epsilon, clients, probability, inner_delta, missed)


def amplified(epsilon: float, chance: float) -> float:
    """Ln(1 + q(e^ε − 1)), rounded up."""
    checks.non_negative(epsilon=epsilon)
    checks.probability(chance=chance)
    if epsilon > 1 and chance > 0:
        found = epsilon + math.log(chance + (1 - chance) * math.exp(-epsilon))
        return found * (1 + _ROUNDING) + 1e-15
    return math.log1p(chance * math.expm1(min(epsilon, 1.0))) * (1 + _ROUNDING)


def _by_coins(
    local_epsilon: float, clients: int, probability: float, inner_delta: float, missed: float
) -> PrivacyPoint:
    few = max(1, math.ceil(probability * clients / 2 * (1 - 1e-15)))
    epsilon = amplified(clones_2021(local_epsilon, few, inner_delta), min(1.0, 1.5 * probability))
    return PrivacyPoint(epsilon, (probability * inner_delta + missed) * (1 + _ROUNDING))


def _expected(local_epsilon: float, clients: int, probability: float, inner_delta: float) -> float:
    """The expected number of clients."""
    checks.positive(local_epsilon=local_epsilon, probability=probability)
    checks.count(clients=clients)
    checks.probability(probability=probability)
    checks.open_unit(inner_delta=inner_delta)
    return probability * clients


def _check_sampled(local_epsilon: float, clients: int, sampled: int) -> None:
    require_setting(local_epsilon, clients)
    checks.count(sampled=sampled)
    checks.at_most("clients", clients, sampled=sampled)


_THESIS, _PURE = Paper("thesis", "girgis2023thesis"), "pure epsilon_0"
RESULTS = (
    _THESIS.states(
        "Theorem 5.4.1", theorem_5_4_1, _PURE, "k of n clients; whole orders, real ones by (5.6)"
    ),
    _THESIS.states(
        "Theorem 5.4.2",
        theorem_5_4_2,
        "binary randomized response",
        "whole orders from 2 on; a lower bound: attained by binary response",
    ),
    _THESIS.states(
        "Lemma 4.3.1", lemma_4_3_1, _PURE, "s = 1: q = k/(nm); s > 1: s/m amplifies alone"
    ),
    _THESIS.states("Lemma 4.4.1", lemma_4_4_1, _PURE, "12(epsilon_0 + ln 2) < qn"),
    _THESIS.states(
        "Lemma 4.4.1, as printed",
        lemma_4_4_1_as_printed,
        _PURE,
        "c' in (0, 1), of which none is safe for all epsilon_0 and qn",
        Status.UNSAFE,
    ),
)
