"""Published bounds on training by shuffled messages: composition, sampled rounds, whole runs.

`lemma_2_1_2` and the functions ``kov_…`` compose T rounds of one (ε, δ). `theorem_5_4_1`,
`lemma_4_3_1` and `lemma_4_4_1` are rounds of sampled clients or records. `theorem_4_3_1` and
`theorem_4_4_1` are whole runs, and `thesis_epsilons` evaluates them for a scheme. `comparison` and
`reporting` use them; for guarantees use `turnout.accounting.price`, which composes privacy curves.

**Strong composition.** Source: Dwork, Rothblum and Vadhan 2010 (dwork2010boosting) as Lemma 2.1.2
of Girgis 2023 (girgis2023thesis); Kairouz, Oh and Viswanath 2015 (kairouz2015composition), Theorems
3.3 and 3.4. The bounds hold for adaptive composition under any relation, in both directions. They
use a single (ε, δ) of a round, which contains far less information than its privacy curve.

Notation
    ε, δ   point             of one round, ε > 0
    T      rounds            number of rounds, which may exceed 10⁵
    δ'     slack             in (0, 1), of the composition; the total δ is 1 − (1 − δ)^T (1 − δ')
    p = e^ε/(1 + e^ε)

Each round is dominated by binary randomized response at ε, except with probability δ, so
δ'(ε') = P(Bin(T, p) > t) − e^{ε'} P(Bin(T, 1 − p) > t) with t = (T + ε'/ε)/2.

**Sampled clients or records.** Source: Girgis 2023 (girgis2023thesis), Chapters 4 and 5. The bounds
are under replace-one of one record, in both directions. In the cases of the thesis's figures, the ε
of Theorem 5.4.1 is 5 to 8 times that of `price`. Lemma 4.3.1 composes (ε, δ) pairs, not curves.

Notation
    ε₀  local_epsilon in (0, 300]; e = e^{ε₀}
    n   number of clients            k  number of clients in the uniform sample of a round
    m   number of records of a client, at least 1
    s   number of records that a sampled client sends, at most m
    γ = k/n              k̄ = ⌊(k − 1)/(2e)⌋ + 1
    q   probability that one record is used, ks/(nm) if k clients are sampled

**Runs.** Source: Girgis 2023 (girgis2023thesis), Theorems 4.3.1 and 4.4.1, with the constants of
their proofs, which the statements replace by O(·). The bounds are under replace-one for m = s = 1:
each client holds one record and sends one message of it per round. Half of δ is for the
composition, and δ/2T for each round; q is the probability that a client takes part.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betainc

from turnout.accounting.divergence.pairs import log_expm1
from turnout.accounting.published.renyi import RenyiFormula, RenyiLowerFormula
from turnout.accounting.published.results import THESIS, Paper, PrivacyPoint, Status
from turnout.accounting.published.shuffling_rdp import (
    blanket_size,
    log_excess,
    log_moment_below,
    require_setting,
    sub_gaussian_moments,
    theorem_5_3_1,
)
from turnout.accounting.shuffling.blanket import clones_2021
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.schemes import (
    EveryStep,
    FixedSize,
    NonAdaptiveRandomizer,
    RepeatedMessages,
    Scheme,
    SelfSampling,
    TrustModel,
)

ShuffleBound = Callable[[float, int, float], float]
_SLACK = 1e-9  # relative error that a binomial tail may have
_ROUNDING = 1e-12
_HALVINGS = 60


def lemma_2_1_2(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """Point (√(2T ln(1/δ'))·ε + Tε(e^ε − 1), Tδ + δ') of T rounds, by strong composition.

    Source: Lemma 2.1.2 of Girgis 2023 (girgis2023thesis); Dwork, Rothblum and Vadhan 2010
    (dwork2010boosting).

    Args:
        point: (ε, δ) of one round, with ε > 0 and 0 ≤ δ < 1.
        rounds: T, number of rounds, at least 1.
        slack: δ' of the composition, strictly between 0 and 1.

    Returns:
        The point of all T rounds, rounded up; ε is infinite if the ε of one round is 700 or more.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(lemma_2_1_2(PrivacyPoint(0.01, 0.0), 100, 1e-6).epsilon, 4)
    0.5357
    """
    _check(point, rounds, slack)
    epsilon = point.epsilon * math.sqrt(-2 * rounds * math.log(slack))
    if point.epsilon < 700:
        epsilon += rounds * point.epsilon * math.expm1(point.epsilon)
    else:
        epsilon = math.inf
    return PrivacyPoint(_up(epsilon), _up(rounds * point.delta + slack))


def kov_theorem_3_3(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """Point (ε', δ) for T rounds, with the smallest ε' = (T − 2i)ε that slack δ' allows.

    i is a whole number from 0 to T/2. At ε' composition needs the slack
    P(Bin(T, p) > t) − e^{ε'}·P(Bin(T, 1 − p) > t) with p = e^ε/(1 + e^ε) and t = (T + ε'/ε)/2. The
    δ of the result is the total δ of the rounds and of the composition.

    Source: Theorem 3.3 of Kairouz, Oh and Viswanath 2015 (kairouz2015composition), at the ε' that
    the theorem lists. `kov_optimal` is smaller, at an ε' between these values.

    Args:
        point: (ε, δ) of one round, with ε > 0 and 0 ≤ δ < 1.
        rounds: T, number of rounds, at least 1.
        slack: δ' of the composition, strictly between 0 and 1.

    Returns:
        The point of all T rounds, rounded up.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    _check(point, rounds, slack)
    enough, too_many = 0, rounds // 2 + 1
    while too_many - enough > 1:
        i = (enough + too_many) // 2
        if _composed_delta((rounds - 2 * i) * point.epsilon, point.epsilon, rounds) <= slack:
            enough = i
        else:
            too_many = i
    return PrivacyPoint(_up((rounds - 2 * enough) * point.epsilon), _whole(point, rounds, slack))


def kov_optimal(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """Point (ε', δ) for T rounds, with the smallest real ε' that slack δ' allows.

    The slack at ε' is that of `kov_theorem_3_3`. No bound that uses only the (ε, δ) of a round is
    smaller.

    Source: the privacy region of Theorem 3.3 of Kairouz, Oh and Viswanath 2015
    (kairouz2015composition), between the ε' that the theorem lists.

    Args:
        point: (ε, δ) of one round, with ε > 0 and 0 ≤ δ < 1.
        rounds: T, number of rounds, at least 1.
        slack: δ' of the composition, strictly between 0 and 1.

    Returns:
        ε and δ, never below the optimum; they exceed it only by the rounding of binomial tails.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    _check(point, rounds, slack)

    def met(epsilon: float) -> bool:
        return _composed_delta(epsilon, point.epsilon, rounds) <= slack

    most = 0.0 if met(0.0) else rounds * point.epsilon
    found = bisected(met, 0.0, most, halvings=_HALVINGS).holding
    return PrivacyPoint(_up(found), _whole(point, rounds, slack))


def kov_theorem_3_4(point: PrivacyPoint, rounds: int, slack: float) -> PrivacyPoint:
    """Point (ε', δ) for T rounds in closed form, where ε' is the smallest of three bounds.

    The bounds are Tε, and Tε·tanh(ε/2) + ε√(2T ln g) with g = 1/δ' or g = exp(1) + √(Tε²)/δ'.

    Source: Theorem 3.4 of Kairouz, Oh and Viswanath 2015 (kairouz2015composition).

    Args:
        point: (ε, δ) of one round, with ε > 0 and 0 ≤ δ < 1.
        rounds: T, number of rounds, at least 1.
        slack: δ' of the composition, strictly between 0 and 1.

    Returns:
        The point of all T rounds, rounded up.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    _check(point, rounds, slack)
    mean = rounds * point.epsilon * math.tanh(point.epsilon / 2)
    growth = min(1 / slack, math.e + math.sqrt(rounds) * point.epsilon / slack)
    deviation = point.epsilon * math.sqrt(2 * rounds * math.log(growth))
    epsilon = min(rounds * point.epsilon, mean + deviation)
    return PrivacyPoint(_up(epsilon), _whole(point, rounds, slack))


def kov_of_shuffle(
    local_epsilon: float,
    clients: int,
    delta: float,
    rounds: int,
    *,
    bound: ShuffleBound = clones_2021,
    share: float | None = None,
) -> float:
    """ε of T rounds of shuffled ε₀-messages, from the (ε, δ) of one round.

    Source: the method of the curves "Clones + strong composition" in Figure 5.4 of Girgis 2023
    (girgis2023thesis): a shuffle bound at δ̃ = sδ/T, composed by `kov_optimal` at δ' = (1 − s)δ. If
    s is not given, two values are tried: ½, and the value that minimizes √(ln(1/δ̃) ln(1/δ')) to
    first order, s/(1 − s) = ln(1/δ)/ln(T/δ).

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        delta: δ, strictly between 0 and 1.
        rounds: T, number of rounds, at least 1.
        bound: function (ε₀, messages, δ̃) ↦ ε of one shuffle; the numeric clones bound by default.
        share: s, strictly between 0 and 1; if None, the one of the two values with the smaller ε.

    Returns:
        ε under replace-one, never below the true value if ``bound`` never is.

    Raises:
        ParameterError: an argument is outside its domain.
        TurnoutError: any error of ``bound``, for example if it has no value at δ̃.
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    if share is not None:
        checks.open_unit(share=share)
    odds = math.log(delta) / (math.log(delta) - math.log(rounds))
    found = math.inf
    for part in (0.5, odds / (1 + odds)) if share is None else (share,):
        tilde = part * delta / rounds
        epsilon = bound(local_epsilon, clients, tilde)
        if epsilon <= 0:
            return 0.0
        slack = (1 - part) * delta * (1 - _ROUNDING)
        found = min(found, kov_optimal(PrivacyPoint(epsilon, tilde), rounds, slack).epsilon)
    return found


def _composed_delta(total: float, epsilon: float, rounds: int) -> float:
    """Upper bound on δ'(ε') of T binary randomized responses at ε' = ``total``."""
    least = math.floor((rounds + total / epsilon) / 2 * (1 - 1e-15)) + 1
    if least > rounds:
        return 0.0
    rest = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    gain = float(betainc(least, rounds - least + 1, 1 - rest))
    tail = float(betainc(least, rounds - least + 1, rest))
    loss = math.exp(min(total + math.log(tail), 0.0)) if tail > 0 else 0.0
    return max(gain - loss, 0.0) + _SLACK * (gain + loss)


def _whole(point: PrivacyPoint, rounds: int, slack: float) -> float:
    """Total δ of T rounds and of their composition, 1 − (1 − δ)^T (1 − δ')."""
    return _up(-math.expm1(rounds * math.log1p(-point.delta) + math.log1p(-slack)))


def _check(point: PrivacyPoint, rounds: int, slack: float) -> None:
    checks.positive(epsilon=point.epsilon)
    checks.non_negative(delta=point.delta)
    if point.delta >= 1:
        raise ParameterError("delta", point.delta, "below 1")
    checks.count(rounds=rounds)
    checks.open_unit(slack=slack)


def _up(value: float) -> float:
    return value * (1 + _ROUNDING)


_KOV = Paper("KOV", "kairouz2015composition", None)
_POINT, _RANGE = "(epsilon, delta)", "delta' in (0, 1); adaptive"


def theorem_5_4_1(local_epsilon: float, clients: int, sampled: int) -> RenyiFormula:
    """Upper bound of the thesis on Rényi divergences of a shuffle of k of n clients.

    In the formula e = e^{ε₀}, γ = k/n and k̄ = ⌊(k − 1)/(2e)⌋ + 1, C(α, j) are binomial
    coefficients, and D_α is the moment E_Q[(dP/dQ)^α].

    Source: Theorem 5.4.1 of Girgis 2023 (girgis2023thesis): D_α ≤ 1 + 4C(α,2)γ²(e − 1)²/(k̄e)
    + Σ_{j=3}^α C(α,j)γ^j·jΓ(j/2)·(2(e² − 1)²/(k̄e²))^{j/2} + Υ with
    Υ = ((1 + γ(e² − 1)/e)^α − 1 − αγ(e² − 1)/e)·exp(−(k − 1)/(8e)).

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        sampled: k, number of clients that send in a round, from 1 to n.

    Returns:
        The bound, rounded up: at whole orders α ≥ 2 by the theorem, and between whole orders by
        (5.6) of the thesis.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(theorem_5_4_1(1.5, 60_000, 10_000).composed(1200).epsilon(1e-5), 3)
    3.086
    """
    _check_sampled(local_epsilon, clients, sampled)
    # Logarithms of the second moment and of the sub-Gaussian ratio of the theorem.
    hidden, log_rate = blanket_size(local_epsilon, sampled), math.log(sampled / clients)
    log_second = (
        math.log(4) + 2 * log_rate + 2 * log_expm1(local_epsilon) - local_epsilon - math.log(hidden)
    )
    log_change = log_expm1(2 * local_epsilon) - local_epsilon
    log_ratio = math.log(2 / hidden) + 2 * (log_rate + log_change)
    moments = sub_gaussian_moments(log_second, log_ratio)
    # Υ, the part for too few hiding messages, is added and rounded up.
    exponent = (sampled - 1) * math.exp(-local_epsilon) / 8
    step = math.exp(log_rate + log_change)

    def log_moments(orders: FloatArray) -> FloatArray:
        unlucky = log_excess(step, orders) - exponent
        unlucky += 1e-9 + _ROUNDING * (exponent + orders * math.log1p(step))
        return np.logaddexp.reduce([np.zeros_like(orders), moments(orders), unlucky])

    return RenyiFormula(log_moments)


def theorem_5_4_2(local_epsilon: float, clients: int, sampled: int) -> RenyiLowerFormula:
    """NO GUARANTEE: lower bound on Rényi divergences that sampled binary response attains.

    All other clients hold a zero.

    Source: Theorem 5.4.2 of Girgis 2023 (girgis2023thesis), summed over the number of ones sent.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        sampled: k, number of clients that send in a round, from 1 to n.

    Returns:
        The bound at whole orders α ≥ 2, exact except that it is rounded down.

    Raises:
        ParameterError: an argument is outside its domain.
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
    """ε at a total δ of one round in which k of n clients send s of their m records each.

    A record is used with probability q = ks/(nm). A shuffle of ks messages has the point (ε̃, δ̃),
    and the round has δ = qδ̃. For s = 1, ε = ln(1 + q(e^{ε̃} − 1)). For s > 1 only the sampling of
    records lowers ε, to ln(1 + (s/m)(e^{ε̃} − 1)) (Remark C.1.1).

    Source: Lemma 4.3.1 of Girgis 2023 (girgis2023thesis). The lemma states ε̃ as O(·). Here ε̃ is
    the given bound at δ̃, without the lemma's limit on ε₀.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        sampled: k, number of clients that send in a round, from 1 to n.
        delta: δ, strictly between 0 and 1.
        records: m, number of records of a client, at least 1.
        samples: s, number of records that a client sends, from 1 to m.
        bound: function (ε₀, messages, δ̃) ↦ ε of one shuffle; the numeric clones bound by default.

    Returns:
        ε for one record, never below the true value if ``bound`` never is; 0 where q ≤ δ.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    _check_sampled(local_epsilon, clients, sampled)
    checks.open_unit(delta=delta)
    checks.count(records=records, samples=samples)
    checks.at_most("records", records, samples=samples)
    used = sampled * samples / (clients * records)
    if used <= delta:
        return 0.0
    # The sampling of clients lowers ε only if a client sends one record (Remark C.1.1).
    amplifies = used if samples == 1 else samples / records
    # δ̃ = δ/q, rounded down such that qδ̃ is at most δ.
    shuffled = bound(local_epsilon, sampled * samples, delta / used * (1 - _ROUNDING))
    return amplified(shuffled, amplifies)


def lemma_4_4_1(
    local_epsilon: float, clients: int, probability: float, inner_delta: float
) -> PrivacyPoint:
    """Point (ε, δ) for one round of self-sampling clients that hold one record each.

    Source: Lemma 4.4.1 of Girgis 2023 (girgis2023thesis), with the explicit constants of its proof:
    ε = ln(1 + (3q/2)(e^{ε̃} − 1)) with ε̃ of a shuffle of ⌈qn/2⌉ messages at δ̃, by clones, and
    δ = qδ̃ + 2e^{ε₀}e^{−qn/12}. The lemma has e^{−c'qn} as the last term, "for some constant c' in
    (0, 1)". No constant suffices for all ε₀ and qn, since c' ≤ 1/12 − (ε₀ + ln 2)/(qn) is needed.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        probability: q, probability that a client takes part, in (0, 1].
        inner_delta: δ̃ of the shuffle, strictly between 0 and 1.

    Returns:
        The point (ε, δ) under replace-one, never below true values.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: δ would be at least 1.
    """
    _expected(local_epsilon, clients, probability, inner_delta)
    missed = unusual_count_delta(local_epsilon, clients, probability)
    point = _self_sampled(local_epsilon, clients, probability, inner_delta, missed)
    if point.delta >= 1:
        raise UnsupportedError(
            f"Lemma 4.4.1 of the thesis proves nothing: {probability * clients:.4g} clients are "
            f"expected to take part, so delta would be {point.delta:.3g}, which includes the term "
            f"2 e^(epsilon_0) e^(-qn/12) = {missed:.3g}"
        )
    return point


def unusual_count_delta(local_epsilon: float, clients: int, probability: float) -> float:
    """Term of δ in `lemma_4_4_1` for an unusual number of clients, min(2e^{ε₀}e^{−qn/12}, 1)."""
    return math.exp(min(local_epsilon + math.log(2) - probability * clients / 12, 0.0))


def lemma_4_4_1_as_printed(
    local_epsilon: float, clients: int, probability: float, inner_delta: float, *, constant: float
) -> PrivacyPoint:
    """UNSAFE: `lemma_4_4_1` with the term e^{−c'qn} of δ that is printed in the thesis.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        probability: q, probability that a client takes part, in (0, 1].
        inner_delta: δ̃ of the shuffle, strictly between 0 and 1.
        constant: c' of the printed lemma, strictly between 0 and 1.

    Returns:
        The point (ε, δ); its δ may be below the true value.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    expected = _expected(local_epsilon, clients, probability, inner_delta)
    checks.open_unit(constant=constant)
    missed = math.exp(-constant * expected)
    return _self_sampled(local_epsilon, clients, probability, inner_delta, missed)


def amplified(epsilon: float, chance: float) -> float:
    """Amplified ε of a mechanism on a random sample at rate q, ln(1 + q(e^ε − 1)), rounded up."""
    checks.non_negative(epsilon=epsilon)
    checks.probability(chance=chance)
    if epsilon > 1 and chance > 0:
        found = epsilon + math.log(chance + (1 - chance) * math.exp(-epsilon))
        return found * (1 + _ROUNDING) + 1e-15
    return math.log1p(chance * math.expm1(min(epsilon, 1.0))) * (1 + _ROUNDING)


def _self_sampled(
    local_epsilon: float, clients: int, probability: float, inner_delta: float, missed: float
) -> PrivacyPoint:
    few = max(1, math.ceil(probability * clients / 2 * (1 - 1e-15)))
    epsilon = amplified(clones_2021(local_epsilon, few, inner_delta), min(1.0, 1.5 * probability))
    return PrivacyPoint(epsilon, (probability * inner_delta + missed) * (1 + _ROUNDING))


def _expected(local_epsilon: float, clients: int, probability: float, inner_delta: float) -> float:
    """Expected number qn of participating clients, after a check of all arguments."""
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


_SHARE_ROUNDING = 1e-9


def theorem_4_3_1(
    local_epsilon: float, clients: int, sampled: int, rounds: int, delta: float
) -> float:
    """ε of CLDP-SGD at δ: T rounds in each of which k of n clients send.

    Source: the proof of Theorem 4.3.1 of Girgis 2023 (girgis2023thesis): `lemma_4_3_1` for one
    round, and strong composition of the rounds (`lemma_2_1_2`).

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.
        sampled: k, number of clients that send in a round, from 1 to n.
        rounds: T, number of rounds, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε, never below the true value; infinite where a round's ε is above 700.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(theorem_4_3_1(1.5, 60_000, 10_000, 1200, 1e-5), 2)
    4.13
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    each, slack = _divided(delta, rounds)
    epsilon = lemma_4_3_1(local_epsilon, clients, sampled, each)
    return _composed(PrivacyPoint(epsilon, each), rounds, slack)


def theorem_4_4_1(
    local_epsilon: float, clients: int, probability: float, rounds: int, delta: float
) -> float:
    """ε of dss-SGD at δ: T rounds in which each of n clients takes part with probability q.

    Source: the proof of Theorem 4.4.1 of Girgis 2023 (girgis2023thesis), by `lemma_4_4_1`.

    Args:
        local_epsilon: ε₀ of each message, positive.
        clients: n, number of clients, at least 1.
        probability: q, probability that a client takes part, in (0, 1].
        rounds: T, number of rounds, at least 1.
        delta: δ, strictly between 0 and 1.

    Returns:
        ε under replace-one, never below the true value; infinite where a round's ε is above 700.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: so few clients are expected that no δ is left for a round.
    """
    checks.open_unit(delta=delta)
    checks.count(rounds=rounds)
    each, slack = _divided(delta, rounds)
    left = each - unusual_count_delta(local_epsilon, clients, probability)
    if left <= 0:
        raise UnsupportedError(
            f"Theorem 4.4.1 of the thesis proves nothing: {probability * clients:.4g} clients are "
            f"expected to take part in a round, so a round needs a delta above "
            f"2 e^(epsilon_0) e^(-qn/12) = {each - left:.3g}, but has {each:.3g}"
        )
    inner = min(left / probability, 0.5) * (1 - _SHARE_ROUNDING)
    point = lemma_4_4_1(local_epsilon, clients, probability, inner)
    return _composed(PrivacyPoint(point.epsilon, each), rounds, slack)


def thesis_epsilons(scheme: Scheme, delta: float) -> dict[str, float]:
    """ε of a run of shuffled messages at δ, by each theorem of the thesis that applies.

    Returns:
        Finite values of ε by the names of the theorems, never below the true value. The result
        is empty for other trust models, for several messages in a step, and for participation that
        no theorem covers.
    """
    found = _epsilons_by_theorem(scheme, delta)
    return {name: epsilon for name, epsilon in found.items() if math.isfinite(epsilon)}


def _epsilons_by_theorem(scheme: Scheme, delta: float) -> dict[str, float]:
    # The theorems are for shuffled messages of one known randomizer.
    participation, randomizer, clients = scheme.participation, scheme.randomizer, scheme.population
    known = isinstance(randomizer, NonAdaptiveRandomizer)
    several = isinstance(randomizer, RepeatedMessages)
    if scheme.trust is not TrustModel.SHUFFLED or clients is None or not known or several:
        return {}
    # Self-sampling has a theorem of its own.
    level, rounds = randomizer.epsilon0, participation.steps
    if isinstance(participation, SelfSampling):
        try:
            return {
                "Theorem 4.4.1": theorem_4_4_1(level, clients, participation.rate, rounds, delta)
            }
        except UnsupportedError:
            return {}
    # All clients, or a uniform subset: a Rényi bound, and strong composition.
    if isinstance(participation, EveryStep):
        name, renyi, size = "Theorem 5.3.1", theorem_5_3_1(level, clients), clients
    elif isinstance(participation, FixedSize):
        name, renyi, size = (
            "Theorem 5.4.1",
            theorem_5_4_1(level, clients, participation.size),
            participation.size,
        )
    else:
        return {}
    strong = theorem_4_3_1(level, clients, size, rounds, delta)
    return {"Theorem 4.3.1": strong, name: renyi.composed(rounds).epsilon(delta)}


def _composed(each: PrivacyPoint, rounds: int, slack: float) -> float:
    """ε of all rounds together, from the (ε, δ) of a round; 0 if a round has ε = 0."""
    return lemma_2_1_2(each, rounds, slack).epsilon if each.epsilon > 0 else 0.0


def _divided(delta: float, rounds: int) -> tuple[float, float]:
    """Values of δ for each round and for the composition, with a total just below ``delta``."""
    return delta / (2 * rounds) * (1 - _SHARE_ROUNDING), delta / 2 * (1 - _SHARE_ROUNDING)


RESULTS = (
    THESIS.states("Lemma 2.1.2", lemma_2_1_2, _POINT, _RANGE),
    _KOV.states("Theorem 3.3", kov_theorem_3_3, _POINT, _RANGE),
    _KOV.states("Theorem 3.3, optimal", kov_optimal, _POINT, _RANGE),
    _KOV.states("Theorem 3.4", kov_theorem_3_4, _POINT, _RANGE),
    Paper("clones with KOV", "kairouz2015composition").states(
        "Theorem 3.3", kov_of_shuffle, "pure epsilon_0", f"{_RANGE}, hidden order"
    ),
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
    _THESIS.states("Theorem 4.3.1", theorem_4_3_1, _PURE, "m = s = 1, strong composition"),
    _THESIS.states("Theorem 4.4.1", theorem_4_4_1, _PURE, "m = s = 1, 12(epsilon_0 + ln 2) < qn"),
)
