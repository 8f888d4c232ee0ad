"""Amplification by random check-ins, by the paper's own numbers: pure ε₀ randomizers.

Source: Balle, Kairouz, McMahan, Thakkar, Guha Thakurta 2020 (balle2020checkins). Every bound is
under replace-one and needs nothing of the randomizer but its ε₀. All are proved and all are loose:
`turnout.accounting.price` is what to quote. docs/errata.md says where the print is wrong.

Notation
    ε₀  local_epsilon   of the local randomizer
    m   window          steps, as many as updates
    n   population
    p₀  probability     of checking in at all
    v   variance        bound on Σ εᵢ² of the steps given the past
    δ₂  load_delta      probability that the steps' loads are unlucky

Each proof ends in the heterogeneous advanced composition of Kairouz, Oh and Viswanath, so each
bound is v/2 + √(2 v ln(1/δ)) for its own v.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from turnout.accounting.published.results import PrivacyPoint, Result, Status
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.spec import Relation

_ROUNDING = 1e-12  # relative; exponents below 700 lose less
_LARGEST_EXPONENT = 700.0


def theorem_3_2(local_epsilon: float, window: int, delta: float, probability: float = 1.0) -> float:
    """ε of one window of check-ins with one client a step (Algorithm 1).

    Source: Theorem 3.2, as Theorem A.4 states it:
    p₀²e^{ε₀}(e^{ε₀} − 1)²/(2m) + p₀(e^{ε₀} − 1)√(2e^{ε₀} ln(1/δ)/m). The proof of Theorem 3.2
    prints m outside the root, which is unsafe (`theorem_3_2_as_printed`).

    Args:
        local_epsilon: ε₀ > 0.
        window: m ≥ 1, the steps among which she draws one.
        delta: δ in (0, 1).
        probability: p₀ in [0, 1], the chance of checking in at all.

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

    Args:
        local_epsilon: ε₀ > 0.
        window: m ≥ 1.
        delta: δ in (0, 1).
        largest_weight: w_max in [0, 1].
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(window=window)
    checks.open_unit(delta=delta)
    checks.probability(largest_weight=largest_weight)
    if largest_weight == 0:
        return 0.0
    log_variance = (
        local_epsilon
        + 2 * (math.log(largest_weight) + _log_expm1(local_epsilon))
        - math.log(window)
    )
    return composed(log_variance, delta)


def theorem_3_2_simple(
    local_epsilon: float, window: int, delta: float, probability: float = 1.0
) -> float:
    """7p₀ε₀√(ln(1/δ)/m), never below `theorem_3_2`.

    Source: Theorem 3.2 and Theorem A.4, "in particular", for ε₀ ≤ 1 and δ ≤ 1/100.

    Raises:
        ParameterError: ε₀ > 1 or δ > 1/100.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(window=window)
    checks.open_unit(delta=delta)
    checks.probability(probability=probability)
    if local_epsilon > 1:
        raise ParameterError("local_epsilon", local_epsilon, "at most 1 for this closed form")
    if delta > 0.01:
        raise ParameterError("delta", delta, "at most 1/100 for this closed form")
    return _up(7 * probability * local_epsilon * math.sqrt(-math.log(delta) / window))


def theorem_3_2_as_printed(
    local_epsilon: float, window: int, delta: float, probability: float = 1.0
) -> float:
    """UNSAFE: the formula that the proof of Theorem 3.2 prints, with m outside the root.

    At ε₀ = 1, m = 1000, δ = 1e-6 it says 0.017; two-valued randomized response has 0.127.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(window=window)
    checks.open_unit(delta=delta)
    checks.probability(probability=probability)
    if local_epsilon > _LARGEST_EXPONENT / 3:
        return math.inf
    growth = math.exp(local_epsilon)
    change = probability * math.expm1(local_epsilon)
    first = change**2 * growth / (2 * window)
    return first + change * math.sqrt(-2 * growth * math.log(delta)) / window


def corollary_3_3(
    local_epsilon: float, population: int, window: int, beta: float, delta: float
) -> PrivacyPoint:
    """(ε, δ) of n/m windows of check-ins with p₀ = m/n, by advanced composition.

    Source: inequality (7) in the proof of Corollary 3.3, evaluated as it stands:
    ε₁√(2r ln(1/δ)) + r ε₁(e^{ε₁} − 1) with ε₁ of Theorem 3.2 at β and r = ⌈n/m⌉ windows.

    Args:
        local_epsilon: ε₀ > 0.
        population: n.
        window: m, at most n.
        beta: δ of each window.
        delta: δ of the composition.

    Returns:
        ε and the whole δ, which is δ + rβ.
    """
    first = _first_epsilon(local_epsilon, population, window, beta)
    checks.open_unit(delta=delta)
    windows = -(-population // window)
    total = windows * beta + delta
    if total >= 1:
        raise ParameterError("beta", beta, "so small that all windows together stay below 1")
    if first > _LARGEST_EXPONENT:
        return PrivacyPoint(math.inf, total)
    epsilon = first * math.sqrt(-2 * windows * math.log(delta))
    return PrivacyPoint(_up(epsilon + windows * first * math.expm1(first)), _up(total))


def corollary_3_3_closed_form(
    local_epsilon: float, population: int, window: int, beta: float, delta: float
) -> PrivacyPoint:
    """(ε, δ) of n/m windows by the last line of the proof, in n and ε₀ alone.

    Source: Corollary 3.3: 4(e^{ε₀} − 1)√(e^{ε₀} ln(1/β) ln(1/δ)/n) +
    12(e^{ε₀} − 1)²e^{ε₀} ln(1/β)/n. It needs ε₁ ≤ ½, which is checked here. The proof draws that
    from ε₀ ≤ ⅔ ln(n/(8√m)) alone, which does not give it; together with the corollary's other
    condition n ≥ (e^{ε₀} − 1)²e^{ε₀}√m ln(1/β) it does.

    Raises:
        ParameterError: m does not divide n.
        UnsupportedError: ε₁ > ½.
    """
    first = _first_epsilon(local_epsilon, population, window, beta)
    checks.open_unit(delta=delta)
    if population % window:
        raise ParameterError("window", window, f"a divisor of the population {population}")
    if first > 0.5 or beta > 0.5:
        raise UnsupportedError(
            f"Corollary 3.3 in closed form needs beta <= 1/2 and one window's epsilon <= 1/2; "
            f"it is {first:.4g}"
        )
    growth, log_beta = math.exp(local_epsilon), -math.log(beta)
    change = math.expm1(local_epsilon) ** 2 * growth * log_beta / population
    epsilon = 4 * math.sqrt(-change * math.log(delta)) + 12 * change
    return PrivacyPoint(_up(epsilon), _up(population // window * beta + delta))


def theorem_4_1(
    local_epsilon: float, population: int, window: int, delta: float, load_delta: float
) -> PrivacyPoint:
    """(ε, δ + δ₂) of one window of averaged check-ins, everybody comes (Algorithm 2).

    Source: Theorem 4.1: Theorem A.5 at the loads of Lemma A.6,
    ‖ℓ‖₂/n ≤ √(1/n + 1/m) + √(ln(1/δ₂)/n). Far from tight: given the loads the run is an
    adaptive shuffle of n clients (docs/errata.md, random check-ins 5).

    Args:
        local_epsilon: ε₀ > 0.
        population: n.
        window: m.
        delta: δ in (0, 1).
        load_delta: δ₂ in (0, 1).
    """
    checks.open_unit(delta=delta, load_delta=load_delta)
    if delta + load_delta >= 1:
        raise ParameterError("load_delta", load_delta, "less than 1 - delta")
    norm = lemma_a_6(population, window, load_delta)
    return PrivacyPoint(_binned(local_epsilon, norm, population, delta), delta + load_delta)


def theorem_4_1_best_split(
    local_epsilon: float, population: int, window: int, delta: float
) -> float:
    """ε of averaged check-ins where the *whole* δ is given, at the best split that was tried.

    Source: Theorem 4.1.
    """
    checks.open_unit(delta=delta)
    shares = (2.0**-power for power in range(1, 30))
    return min(
        theorem_4_1(local_epsilon, population, window, (1 - share) * delta, share * delta).epsilon
        for share in shares
    )


def theorem_a_5(local_epsilon: float, loads: Sequence[int], delta: float) -> float:
    """ε of averaged updates over bins of known sizes, one record swapped in at random.

    Source: Theorem A.5, pure branch.

    Args:
        local_epsilon: ε₀ > 0.
        loads: ℓ, how many clients came at each step; their sum n is at least 1.
        delta: δ in (0, 1).
    """
    for load in loads:
        checks.count(0, load=load)
    population = sum(loads)
    checks.count(population=population)
    return _binned(local_epsilon, math.hypot(*loads), population, delta)


def lemma_a_6(population: int, window: int, load_delta: float) -> float:
    """Bound on ‖L‖₂ of n balls in m bins that holds with probability 1 − δ₂.

    Source: Lemma A.6 (McDiarmid): √(n + n²/m) + √(n ln(1/δ₂)).
    """
    checks.count(population=population, window=window)
    checks.open_unit(load_delta=load_delta)
    mean = math.sqrt(population + population**2 / window)
    return _up(mean + math.sqrt(-population * math.log(load_delta)))


def theorem_4_3(local_epsilon: float, window: int, delta: float) -> float:
    """ε of check-ins over a sliding window, one client a step.

    Source: Theorem 4.3: Theorem A.4 with m the length of *her* window and w_max = 1.

    Args:
        local_epsilon: ε₀ > 0.
        window: m, slots in which she may wake.
        delta: δ in (0, 1).
    """
    return theorem_a_4(local_epsilon, window, delta, 1.0)


def theorem_5_1(local_epsilon: float, population: int, delta: float) -> float:
    """ε of n shuffled adaptive ε₀-randomizers, in an order that nobody knows.

    Source: Theorem 5.1, by swapping (Theorem A.7):
    e^{3ε₀}(e^{ε₀} − 1)²/(2n) + e^{3ε₀/2}(e^{ε₀} − 1)√(2 ln(1/δ)/n).

    Args:
        local_epsilon: ε₀ > 0.
        population: n ≥ 1 messages.
        delta: δ in (0, 1).
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(population=population)
    checks.open_unit(delta=delta)
    log_variance = 3 * local_epsilon + 2 * _log_expm1(local_epsilon) - math.log(population)
    return composed(log_variance, delta)


def composed(log_variance: float, delta: float) -> float:
    """v/2 + √(2 v ln(1/δ)), rounded up; infinite where v exceeds the largest float."""
    if log_variance > _LARGEST_EXPONENT:
        return math.inf
    variance = math.exp(log_variance)
    return _up(variance / 2 + math.sqrt(-2 * variance * math.log(delta)))


def _binned(local_epsilon: float, norm: float, population: int, delta: float) -> float:
    checks.positive(local_epsilon=local_epsilon)
    checks.open_unit(delta=delta)
    share = math.log(norm / population)
    return composed(2 * (share + 2 * local_epsilon + _log_expm1(local_epsilon)), delta)


def _first_epsilon(local_epsilon: float, population: int, window: int, beta: float) -> float:
    checks.count(population=population, window=window)
    checks.at_most("population", population, window=window)
    checks.open_unit(beta=beta)
    return theorem_3_2(local_epsilon, window, beta, window / population)


def _log_expm1(value: float) -> float:
    return value + math.log(-math.expm1(-value))


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


def _stated(
    number: str,
    function: Callable[..., object],
    holds: str = "all epsilon_0 > 0, delta in (0, 1)",
    status: Status = Status.PROVED,
) -> Result:
    return Result(
        f"check-ins {number}",
        f"balle2020checkins, {number}",
        status,
        Relation.REPLACE_ONE,
        ("replace",),
        "pure epsilon_0",
        holds,
        function,
    )


RESULTS = (
    _stated("Theorem 3.2", theorem_3_2),
    _stated("Theorem 3.2, simple", theorem_3_2_simple, "epsilon_0 <= 1, delta <= 1/100"),
    _stated("Theorem 3.2, proof", theorem_3_2_as_printed, status=Status.UNSAFE),
    _stated("Theorem A.4", theorem_a_4),
    _stated("Corollary 3.3", corollary_3_3, "window <= population"),
    _stated(
        "Corollary 3.3, closed form",
        corollary_3_3_closed_form,
        "window divides population, one window's epsilon <= 1/2, beta <= 1/2",
    ),
    _stated("Theorem 4.1", theorem_4_1, "everybody checks in"),
    _stated("Theorem 4.1, best split", theorem_4_1_best_split, "everybody checks in"),
    _stated("Theorem A.5", theorem_a_5),
    _stated("Theorem 4.3", theorem_4_3),
    _stated(
        "Theorem 5.1",
        theorem_5_1,
        "all epsilon_0 > 0, delta in (0, 1); adaptive, hidden order",
    ),
)
