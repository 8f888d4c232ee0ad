"""Amplification by random check-ins, by the paper's own numbers: pure ε₀ randomizers.

Source: Balle, Kairouz, McMahan, Thakkar, Guha Thakurta 2020 (balle2020checkins). Every bound is
under replace-one and needs nothing of the randomizer but its ε₀. All are proved and all are loose:
`turnout.accounting.price` is what to quote. docs/errata.md says where the print is wrong.

Notation
    ε₀  local_epsilon   > 0, of the local randomizer
    m   window          ≥ 1 steps, as many as updates
    n   population      ≥ 1
    p₀  probability     in [0, 1], of checking in at all
    δ   delta           in (0, 1)
    v   variance        bound on Σ εᵢ² of the steps given the past
    δ₂  load_delta      in (0, 1), probability that the steps' loads are unlucky

Each proof ends in the heterogeneous advanced composition of Kairouz, Oh and Viswanath, so each
bound is v/2 + √(2 v ln(1/δ)) for its own v.
"""

from __future__ import annotations

import math

from turnout.accounting.divergence.pairs.prices import log_expm1
from turnout.accounting.published.results import Paper, PrivacyPoint
from turnout.core import checks
from turnout.core.errors import ParameterError

_ROUNDING = 1e-12  # relative; exponents below 700 lose less
_LARGEST_EXPONENT = 700.0


def theorem_3_2(local_epsilon: float, window: int, delta: float, probability: float = 1.0) -> float:
    """ε of one window of check-ins with one client a step (Algorithm 1).

    Source: Theorem 3.2, as Theorem A.4 states it:
    p₀²e^{ε₀}(e^{ε₀} − 1)²/(2m) + p₀(e^{ε₀} − 1)√(2e^{ε₀} ln(1/δ)/m). The proof of Theorem 3.2
    prints m outside the root, which is unsafe.

    Returns:
        ε, never below the true one under replace-one; may exceed ε₀, which also holds.

    >>> round(theorem_3_2(1.0, 1000, 1e-6), 4)
    0.4749
    """
    checks.probability(probability=probability)
    return theorem_a_4(local_epsilon, window, delta, probability)


def theorem_a_4(local_epsilon: float, window: int, delta: float, largest_weight: float) -> float:
    """ε of replacing one of m records with probability at most ``largest_weight``.

    Source: Theorem A.4 (amplification via random replacement), pure branch.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(window=window)
    checks.open_unit(delta=delta)
    checks.probability(largest_weight=largest_weight)
    if largest_weight == 0:
        return 0.0
    log_variance = (
        local_epsilon + 2 * (math.log(largest_weight) + log_expm1(local_epsilon)) - math.log(window)
    )
    return composed(log_variance, delta)


def theorem_4_1(
    local_epsilon: float, population: int, window: int, delta: float, load_delta: float
) -> PrivacyPoint:
    """(ε, δ + δ₂) of one window of averaged check-ins, everybody comes (Algorithm 2).

    Source: Theorem 4.1: Theorem A.5 at the loads of Lemma A.6,
    ‖ℓ‖₂/n ≤ √(1/n + 1/m) + √(ln(1/δ₂)/n). Far from tight: given the loads the run is an
    adaptive shuffle of n clients (docs/errata.md, random check-ins 5).
    """
    checks.open_unit(delta=delta, load_delta=load_delta)
    if delta + load_delta >= 1:
        raise ParameterError("load_delta", load_delta, "less than 1 - delta")
    norm = lemma_a_6(population, window, load_delta)
    return PrivacyPoint(binned(local_epsilon, norm, population, delta), delta + load_delta)


def lemma_a_6(population: int, window: int, load_delta: float) -> float:
    """Bound on ‖L‖₂ of n balls in m bins that holds with probability 1 − δ₂.

    Source: Lemma A.6 (McDiarmid): √(n + n²/m) + √(n ln(1/δ₂)).
    """
    checks.count(population=population, window=window)
    checks.open_unit(load_delta=load_delta)
    mean = math.sqrt(population + population**2 / window)
    return _up(mean + math.sqrt(-population * math.log(load_delta)))


def theorem_5_1(local_epsilon: float, population: int, delta: float) -> float:
    """ε of n shuffled adaptive ε₀-randomizers, in an order that nobody knows.

    Source: Theorem 5.1, by swapping (Theorem A.7):
    e^{3ε₀}(e^{ε₀} − 1)²/(2n) + e^{3ε₀/2}(e^{ε₀} − 1)√(2 ln(1/δ)/n).
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(population=population)
    checks.open_unit(delta=delta)
    log_variance = 3 * local_epsilon + 2 * log_expm1(local_epsilon) - math.log(population)
    return composed(log_variance, delta)


def composed(log_variance: float, delta: float) -> float:
    """v/2 + √(2 v ln(1/δ)), rounded up; infinite where v exceeds the largest float."""
    if log_variance > _LARGEST_EXPONENT:
        return math.inf
    variance = math.exp(log_variance)
    return _up(variance / 2 + math.sqrt(-2 * variance * math.log(delta)))


def binned(local_epsilon: float, norm: float, population: int, delta: float) -> float:
    """ε of averages over bins whose loads have this ℓ2 norm, by Theorem A.5."""
    checks.positive(local_epsilon=local_epsilon)
    checks.open_unit(delta=delta)
    share = math.log(norm / population)
    return composed(2 * (share + 2 * local_epsilon + log_expm1(local_epsilon)), delta)


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


_PAPER, _PURE, _ALL = Paper("check-ins", "balle2020checkins"), "pure epsilon_0", "delta in (0, 1)"
RESULTS = (
    _PAPER.states("Theorem 3.2", theorem_3_2, _PURE, _ALL),
    _PAPER.states("Theorem A.4", theorem_a_4, _PURE, _ALL),
    _PAPER.states("Theorem 4.1", theorem_4_1, _PURE, "everybody checks in"),
    _PAPER.states("Theorem 5.1", theorem_5_1, _PURE, f"{_ALL}; adaptive, hidden order"),
)
