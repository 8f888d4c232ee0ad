"""Amplification by random check-ins, with the paper's constants: pure and (ε₀, δ₀) randomizers.

`theorem_3_2`, `theorem_4_1` and `theorem_5_1` are the paper's bounds for ε₀-randomizers, the
functions ``…_approximate`` are the paper's bounds for (ε₀, δ₀)-randomizers. `at_total_delta`
evaluates a bound for (ε₀, δ₀)-randomizers at a given total δ'. `comparison` uses these functions.

Source: Balle, Kairouz, McMahan, Thakkar, Guha Thakurta 2020 (balle2020checkins). Every bound is
under replace-one and depends on the randomizer only through its ε₀ (and δ₀). All bounds are proved
and loose: for guarantees use `turnout.accounting.price`. docs/errata.md lists misprints.

Notation
    ε₀  local_epsilon   > 0, of the local randomizer
    δ₀  local_delta     in (0, 1), of the local randomizer
    m   window          ≥ 1, number of steps, each of which makes one update
    n   population      ≥ 1, number of clients
    p₀  probability     in [0, 1], of checking in at all
    δ   delta           in (0, 1)
    v   variance        bound on Σ εᵢ² of the steps given the past
    δ₂  load_delta      in (0, 1), probability that the loads of the steps exceed their bound
    δ₁  slack           distance of one message from a message of the pure randomizer
    T   rounds          of the rejection sampler in the proof

Each proof ends in the heterogeneous advanced composition of Kairouz, Oh and Viswanath, so each
bound is v/2 + √(2 v ln(1/δ)), where v depends on the theorem.

For (ε₀, δ₀)-randomizers Lemma A.3 replaces every message by a message of an 8ε₀-randomizer at a
distance of δ₁. So each bound is the pure bound at 8ε₀ with δ' = δ + messages·(e^{ε'} + 1)·δ₁. The
factor 8 makes these bounds useless in practice (docs/errata.md, random check-ins 6); they are here
for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from turnout.accounting.divergence.pairs import log_expm1
from turnout.accounting.published.results import Paper, PrivacyPoint, Status
from turnout.core import checks
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError

_ROUNDING = 1e-12  # relative; exponents below 700 lose less
_LARGEST_EXPONENT = 700.0


def theorem_3_2(local_epsilon: float, window: int, delta: float, probability: float = 1.0) -> float:
    """Upper bound on ε of one window of check-ins with one client per step (Algorithm 1).

    Source: Theorem 3.2, as Theorem A.4 states it:
    p₀²e^{ε₀}(e^{ε₀} − 1)²/(2m) + p₀(e^{ε₀} − 1)√(2e^{ε₀} ln(1/δ)/m). The proof of Theorem 3.2
    prints m outside the root; that formula is unsafe.

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        window: m, number of steps of the window, at least 1.
        delta: δ, strictly between 0 and 1.
        probability: p₀ in [0, 1], probability of checking in at all.

    Returns:
        ε, never below the true value under replace-one. It may exceed ε₀, which is a bound as well.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(theorem_3_2(1.0, 1000, 1e-6), 4)
    0.4749
    """
    checks.probability(probability=probability)
    return theorem_a_4(local_epsilon, window, delta, probability)


def theorem_a_4(local_epsilon: float, window: int, delta: float, largest_weight: float) -> float:
    """Upper bound on ε of random replacement of one of m records.

    Each of the m records is replaced with probability at most ``largest_weight``.

    Source: Theorem A.4 (amplification via random replacement), pure branch.

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        window: m, number of records, at least 1: the steps of a window of check-ins.
        delta: δ, strictly between 0 and 1.
        largest_weight: largest probability that a record is replaced, in [0, 1].

    Returns:
        ε, never below the true value under replace-one; 0 if ``largest_weight`` is 0.

    Raises:
        ParameterError: an argument is outside its domain.
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
    """Point (ε, δ + δ₂) for one window of averaged check-ins of all clients (Algorithm 2).

    Source: Theorem 4.1: Theorem A.5 at the loads of Lemma A.6,
    ‖ℓ‖₂/n ≤ √(1/n + 1/m) + √(ln(1/δ₂)/n). The bound is far from tight: given the loads, the run is
    an adaptive shuffle of n clients (docs/errata.md, random check-ins 5).

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        population: n, number of clients, at least 1.
        window: m, number of steps of the window, at least 1.
        delta: δ, strictly between 0 and 1.
        load_delta: δ₂, probability of larger loads, strictly between 0 and 1, less than 1 − δ.

    Returns:
        The point (ε, δ + δ₂); ε is never below the true value under replace-one.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.open_unit(delta=delta, load_delta=load_delta)
    if delta + load_delta >= 1:
        raise ParameterError("load_delta", load_delta, "less than 1 - delta")
    norm = lemma_a_6(population, window, load_delta)
    return PrivacyPoint(binned(local_epsilon, norm, population, delta), delta + load_delta)


def lemma_a_6(population: int, window: int, load_delta: float) -> float:
    """Upper bound on the norm ‖L‖₂ of the loads of m bins with n balls.

    The bound holds with probability 1 − δ₂.

    Source: Lemma A.6 (McDiarmid): √(n + n²/m) + √(n ln(1/δ₂)).

    Args:
        population: n, number of clients, at least 1.
        window: m, number of steps of the window, at least 1.
        load_delta: δ₂, probability of larger loads, strictly between 0 and 1.

    Returns:
        The bound on ‖L‖₂, rounded up.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.count(population=population, window=window)
    checks.open_unit(load_delta=load_delta)
    mean = math.sqrt(population + population**2 / window)
    return _up(mean + math.sqrt(-population * math.log(load_delta)))


def theorem_5_1(local_epsilon: float, population: int, delta: float) -> float:
    """Upper bound on ε of n shuffled adaptive ε₀-randomizers whose order is hidden.

    Source: Theorem 5.1, by swapping (Theorem A.7):
    e^{3ε₀}(e^{ε₀} − 1)²/(2n) + e^{3ε₀/2}(e^{ε₀} − 1)√(2 ln(1/δ)/n).

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        population: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε, never below the true value under replace-one. It may exceed ε₀, which is a bound as well.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(population=population)
    checks.open_unit(delta=delta)
    log_variance = 3 * local_epsilon + 2 * log_expm1(local_epsilon) - math.log(population)
    return composed(log_variance, delta)


def composed(log_variance: float, delta: float) -> float:
    """Bound v/2 + √(2 v ln(1/δ)) on ε, rounded up; infinite where v exceeds the largest float.

    Args:
        log_variance: ln v, where v bounds Σ εᵢ² of the steps given the past.
        delta: δ, strictly between 0 and 1.
    """
    if log_variance > _LARGEST_EXPONENT:
        return math.inf
    variance = math.exp(log_variance)
    return _up(variance / 2 + math.sqrt(-2 * variance * math.log(delta)))


def binned(local_epsilon: float, norm: float, population: int, delta: float) -> float:
    """Upper bound on ε of averages over bins, from the ℓ2 norm of the bins' loads (Theorem A.5).

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        norm: ℓ2 norm of the loads, the vector of the number of clients in each bin.
        population: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε, never below the true value under replace-one.

    Raises:
        ParameterError: ε₀ or δ is outside its domain.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.open_unit(delta=delta)
    share = math.log(norm / population)
    return composed(2 * (share + 2 * local_epsilon + log_expm1(local_epsilon)), delta)


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


_FACTOR = 8  # of ε₀ in Lemma A.3


def lemma_a_3_rounds(local_epsilon: float, slack: float) -> float:
    """Number T of rounds of the rejection sampler: a whole number, infinite on overflow.

    Source: Lemma A.3: ⌈ln(2/δ₁) / ln(1/(1 − e^{−5ε₀}))⌉. The paper has e^{5ε₀} in one place, and
    does not round T to a whole number; rounding up is the safe side.

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        slack: δ₁, distance of a message from a pure one, strictly between 0 and 1.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.open_unit(slack=slack)
    rate = -math.log1p(-math.exp(-5 * local_epsilon))
    return math.ceil(math.log(2 / slack) / rate) if rate > 1e-290 else math.inf


def lemma_a_3_largest_delta(local_epsilon: float, slack: float) -> float:
    """Largest δ₀ at which Lemma A.3 proves an 8ε₀-randomizer at distance δ₁.

    Source: Lemma A.3: (1 − e^{−ε₀})δ₁ / (4e^{ε₀}(2 + T)), rounded down.

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        slack: δ₁, distance of a message from a pure one, strictly between 0 and 1.

    Returns:
        The largest δ₀, rounded down; 0 if T overflows.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    rounds = lemma_a_3_rounds(local_epsilon, slack)
    if math.isinf(rounds):
        return 0.0
    largest = -math.expm1(-local_epsilon) * slack / (4 * math.exp(local_epsilon) * (2 + rounds))
    return largest * (1 - _ROUNDING)


def lemma_a_3_slack(local_epsilon: float, local_delta: float) -> float:
    """Smallest δ₁ at which Lemma A.3 covers δ₀, rounded up to six digits.

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        local_delta: δ₀ of the local randomizer, strictly between 0 and 1.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: Lemma A.3 covers δ₀ at no δ₁ below 1.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.open_unit(local_delta=local_delta)

    def fits(log_slack: float) -> bool:
        return lemma_a_3_largest_delta(local_epsilon, math.exp(log_slack)) >= local_delta

    most = -1e-12
    if not fits(most):
        raise UnsupportedError(
            f"local_delta = {local_delta:g}: expected a smaller value; Lemma A.3 does not cover it "
            f"at epsilon_0 = {local_epsilon:g}"
        )
    return math.exp(bisected(fits, math.log(local_delta), most, gap=1e-6).holding)


def theorem_3_2_approximate(
    local_epsilon: float,
    local_delta: float,
    window: int,
    delta: float,
    *,
    probability: float = 1.0,
    slack: float | None = None,
) -> PrivacyPoint:
    """Point (ε', δ') for one window with one (ε₀, δ₀)-randomized check-in per step.

    Source: Theorem 3.2 and Theorem A.4, second branch, with m messages.

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        local_delta: δ₀ of the local randomizer, strictly between 0 and 1.
        window: m, number of steps of the window, at least 1.
        delta: δ of the pure branch, strictly between 0 and 1; δ' of the result is larger.
        probability: p₀ in [0, 1], probability of checking in at all.
        slack: δ₁, strictly between 0 and 1; the smallest possible if None.

    Returns:
        The point (ε', δ') under replace-one, never below true values.

    Raises:
        ParameterError: an argument is outside its domain, or δ₀ is too large for the given δ₁.
        UnsupportedError: Lemma A.3 does not cover δ₀, or δ' would be at least 1.
    """
    return at_eightfold(
        lambda pure: theorem_3_2(pure, window, delta, probability),
        window,
        (local_epsilon, local_delta, delta, slack),
    )


def theorem_5_1_approximate(
    local_epsilon: float,
    local_delta: float,
    population: int,
    delta: float,
    slack: float | None = None,
) -> PrivacyPoint:
    """Point (ε', δ') for n shuffled adaptive (ε₀, δ₀)-randomizers whose order is hidden.

    Source: Theorem 5.1, second branch, with n messages. Theorem A.7 has the term m(e^{ε'} + 1)δ₁,
    where m is no parameter of the theorem (`theorem_a_7_as_printed`).

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        local_delta: δ₀ of the local randomizer, strictly between 0 and 1.
        population: n, number of clients, at least 1.
        delta: δ of the pure branch, strictly between 0 and 1; δ' of the result is larger.
        slack: δ₁, strictly between 0 and 1; the smallest possible if None.

    Returns:
        The point (ε', δ') under replace-one, never below true values.

    Raises:
        ParameterError: an argument is outside its domain, or δ₀ is too large for the given δ₁.
        UnsupportedError: Lemma A.3 does not cover δ₀, or δ' would be at least 1.
    """
    return theorem_a_7_as_printed(
        local_epsilon, local_delta, population, delta, messages=population, slack=slack
    )


def theorem_a_7_as_printed(
    local_epsilon: float,
    local_delta: float,
    population: int,
    delta: float,
    *,
    messages: int,
    slack: float | None = None,
) -> PrivacyPoint:
    """UNSAFE unless ``messages`` is n: the point (ε', δ + messages·(e^{ε'} + 1)·δ₁) as printed.

    Theorem A.7 has m in the place of ``messages``, but n messages are replaced.

    Args:
        local_epsilon: ε₀ of the local randomizer, positive.
        local_delta: δ₀ of the local randomizer, strictly between 0 and 1.
        population: n, number of clients, at least 1.
        delta: δ of the pure branch, strictly between 0 and 1; δ' of the result is larger.
        messages: number of messages that are replaced, at least 1; n is safe.
        slack: δ₁, strictly between 0 and 1; the smallest possible if None.

    Returns:
        The point (ε', δ'); below the true δ' if ``messages`` is too small.

    Raises:
        ParameterError: an argument is outside its domain, or δ₀ is too large for the given δ₁.
        UnsupportedError: Lemma A.3 does not cover δ₀, or δ' would be at least 1.
    """
    checks.count(messages=messages)
    return at_eightfold(
        lambda pure: theorem_5_1(pure, population, delta),
        messages,
        (local_epsilon, local_delta, delta, slack),
    )


def at_total_delta(point: Callable[[float], PrivacyPoint], delta: float) -> float:
    """Upper bound on ε for (ε₀, δ₀)-randomizers at a given total δ'.

    Several values of the inner δ are tried, and the smallest ε is returned.

    Args:
        point: function from the inner δ to the bound (ε', δ'), such as
            ``lambda d: theorem_3_2_approximate(0.5, 1e-12, 100, d)``.
        delta: δ', strictly between 0 and 1.

    Returns:
        ε under replace-one at the total ``delta``, never below the true value.

    Raises:
        ParameterError: ``delta`` is outside (0, 1), or ``point`` raises the error.
        UnsupportedError: no inner δ keeps δ' within ``delta``.
    """
    checks.open_unit(delta=delta)
    shares = [1 - 2.0**-power for power in range(40, 0, -1)]
    for share in [*shares, *(2.0**-power for power in range(2, 40))]:
        try:
            found = point(share * delta)
        except UnsupportedError:
            continue
        if found.delta <= delta:
            return found.epsilon
    raise UnsupportedError(
        f"the bound has no total delta of {delta:g} or less, since Lemma A.3 adds too much to delta"
    )


def at_eightfold(
    epsilon_of: Callable[[float], float],
    messages: int,
    given: tuple[float, float, float, float | None],
) -> PrivacyPoint:
    """Point (ε', δ') with ε' the pure bound at 8ε₀, and δ' = δ + messages·(e^{ε'} + 1)·δ₁.

    Args:
        epsilon_of: function from the ε₀ of a pure randomizer to the bound ε'.
        messages: number of messages that Lemma A.3 replaces.
        given: ε₀, δ₀, δ and δ₁; the smallest possible δ₁ if it is None.

    Raises:
        ParameterError: an argument is outside its domain, or δ₀ is too large for the given δ₁.
        UnsupportedError: Lemma A.3 covers δ₀ at no δ₁, or δ' would be at least 1.
    """
    local_epsilon, local_delta, delta, slack = given
    slack = lemma_a_3_slack(local_epsilon, local_delta) if slack is None else slack
    largest = lemma_a_3_largest_delta(local_epsilon, slack)
    if not 0 <= local_delta <= largest:
        raise ParameterError("local_delta", local_delta, f"at most {largest:.4g} (Lemma A.3)")
    epsilon = epsilon_of(_FACTOR * local_epsilon)
    total = math.inf
    if epsilon < _LARGEST_EXPONENT:
        total = (delta + messages * (math.exp(epsilon) + 1) * slack) * (1 + _ROUNDING)
    if total >= 1:
        raise UnsupportedError(
            "the bound for approximate randomizers is vacuous: no delta' is below 1 at epsilon' = "
            f"{epsilon:.4g}; use a smaller local_epsilon, local_delta or slack"
        )
    return PrivacyPoint(epsilon, total)


_PAPER, _PURE, _ALL = Paper("check-ins", "balle2020checkins"), "pure epsilon_0", "delta in (0, 1)"
_RANDOMIZER, _RANGE = "(epsilon_0, delta_0)", "delta_0 as Lemma A.3 allows"

RESULTS = (
    _PAPER.states("Theorem 3.2", theorem_3_2, _PURE, _ALL),
    _PAPER.states("Theorem A.4", theorem_a_4, _PURE, _ALL),
    _PAPER.states("Theorem 4.1", theorem_4_1, _PURE, "all clients check in"),
    _PAPER.states("Theorem 5.1", theorem_5_1, _PURE, f"{_ALL}; adaptive, hidden order"),
    _PAPER.states("Theorem 3.2, approximate", theorem_3_2_approximate, _RANDOMIZER, _RANGE),
    _PAPER.states("Theorem 5.1, approximate", theorem_5_1_approximate, _RANDOMIZER, _RANGE),
    _PAPER.states(
        "Theorem A.7, approximate", theorem_a_7_as_printed, _RANDOMIZER, _RANGE, Status.UNSAFE
    ),
)
