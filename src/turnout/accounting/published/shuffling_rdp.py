"""Published bounds on Rényi divergences of shuffled ε₀-messages.

`theorem_5_3_1`, `theorem_5_3_2`, `corollary_5_3_1`, `lemma_3_3_1` and `efm19_remark_1` are upper
bounds as `RenyiFormula`; `lemma_3_3_2` is a conjecture. `theorem_5_3_3` and `corollary_5_3_2` are
lower bounds that binary response attains (no guarantee); `log_moment_below` computes them.
`shuffling` and `comparison` convert these bounds to ε; `shuffled_training` builds on the formulas
here.

Source: Girgis 2023 (girgis2023thesis), Chapter 5; Erlingsson et al. 2019
(erlingsson2019amplification), Remark 1. Upper bounds hold under replace-one, in both directions,
for every ε₀-randomizer with values in a countable set. They are proved and loose: for guarantees
use `turnout.accounting.price`.

Notation
    ε₀  local_epsilon in (0, 300], of the local randomizer; e = e^{ε₀}, p = 1/(e + 1)
    n   clients ≥ 1      n̄ = ⌊(n − 1)/(2e)⌋ + 1
    α   order            D_α = E_Q[(dP/dQ)^α], R_α = ln D_α/(α − 1)
    k ~ Bin(n, p)        number of ones among the messages if every record is a zero
    γ   probability in (0, 1] that the victim sends a message

In Theorem 5.3.1 at least n̄ − 1 other clients send a message that hides the victim's record, except
with probability e^{−(n−1)/(8e)}, which adds the term e^{ε₀α − (n−1)/(8e)} to D_α. The theorem
bounds the moments of the likelihood ratio by those of a sub-Gaussian variable.

For binary response, if the victim holds a one in one world and all other records are zeros, the
ratio is known: 1 + γx, x = (e^{ε₀} − e^{−ε₀})(k/n − p). x has mean 0, so E(1 + γx)^α = 1 + E g with
g = (1 + γx)^α − 1 − αγx ≥ 0, a sum without cancellation even where the divergence is tiny.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, log_expm1
from turnout.accounting.published.renyi import (
    MOST_ORDERS,
    LogMoments,
    RenyiFormula,
    RenyiLowerFormula,
)
from turnout.accounting.published.results import Paper, Status
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError

_ALL = 4096  # counts that are all summed
_DEVIATIONS = 8.0  # on both sides of the largest term, where they are not
_SERIES = 1e-3  # |αγx| below which g is its series


def log_moment_below(
    orders: FloatArray, local_epsilon: float, messages: int, chance: float
) -> FloatArray:
    """Lower bound on ln E(1 + γx)^α at each order α ≥ 2, shape of ``orders``.

    x = (e^{ε₀} − e^{−ε₀})(k/n − p) with k ~ Bin(n, p) and p = 1/(e^{ε₀} + 1).

    Source: Theorems 5.3.3 and 5.4.2 of Girgis 2023 (girgis2023thesis); terms that are left out
    are not negative.

    Args:
        orders: α ≥ 2, any shape.
        local_epsilon: ε₀ of each message, in (0, 300].
        messages: n, number of messages.
        chance: γ in (0, 1], probability that the victim sends a message.
    """
    return np.array([_one(order, local_epsilon, messages, chance) for order in orders])


def _one(order: float, local_epsilon: float, messages: int, chance: float) -> float:
    p = math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
    # All counts, or those around the largest term.
    if messages <= _ALL:
        counts = np.arange(messages + 1.0)
    else:
        middle = _mode(order, local_epsilon, messages, chance)
        width = _DEVIATIONS * (math.sqrt(messages * p * (1 - p)) + 1)
        low, high = max(0.0, middle - width), min(float(messages), middle + width)
        counts = np.arange(math.floor(low), math.ceil(high) + 1.0)
    # Logarithms of the terms, summed; terms left out are not negative.
    log_masses = _log_binomial(counts, messages, p)
    x = chance * _change(counts, local_epsilon, messages)
    logs = log_masses + log_excess(x, order)
    largest = float(logs.max())
    if largest == -math.inf:
        return 0.0
    # Gamma functions of n carry the largest rounding error.
    error = 16 * UNIT_ROUNDOFF * (gammaln(messages + 1.0) + order * local_epsilon + 100) + 1e-10
    log_sum = largest + math.log(float(np.exp(logs - largest).sum())) - error
    return float(np.logaddexp(0.0, log_sum)) * (1 - 8 * UNIT_ROUNDOFF)


def _change(counts: FloatArray, local_epsilon: float, messages: int) -> FloatArray:
    """Likelihood ratio minus 1, at each number of ones among the messages."""
    p = math.exp(-local_epsilon) / (1 + math.exp(-local_epsilon))
    return 2 * math.sinh(local_epsilon) * (counts / messages - p)


def _log_binomial(counts: FloatArray, messages: int, p: float) -> FloatArray:
    """Logarithms of binomial masses at consecutive counts, by ratios from the middle count."""
    middle = counts.size // 2
    at = counts[middle]
    choices = gammaln(messages + 1.0) - gammaln(at + 1) - gammaln(messages - at + 1)
    start = choices + at * math.log(p) + (messages - at) * math.log1p(-p)
    rises = np.log((messages - counts[:-1]) / (counts[1:])) + math.log(p) - math.log1p(-p)
    above = start + np.cumsum(rises[middle:])
    below = start - np.cumsum(rises[:middle][::-1])[::-1]
    return np.concatenate([below, [start], above])


def log_excess(x: FloatArray | float, order: FloatArray | float) -> FloatArray:
    """ln((1 + x)^α − 1 − αx) for x > −1 and α ≥ 2, broadcast; the error is about 1e-10."""
    # The series overflows where it is not what is returned.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        powers = order * np.log1p(x)
        direct = np.where(
            powers > 30,
            powers + np.log1p(-np.exp(-np.maximum(powers, 30)) * (1 + order * x)),
            np.log(np.maximum(np.expm1(np.minimum(powers, 31.0)) - order * x, 0.0)),
        )
        # The first terms of the binomial series; the fifth is below 1e-9 of the second.
        third = (order - 2) / 3 * x
        fourth = third * (order - 3) / 4 * x
        series = np.log(order * (order - 1) / 2 * x**2 * (1 + third + fourth))
    return np.where(np.abs(order * x) < _SERIES, series, direct)


def _mode(order: float, local_epsilon: float, messages: int, chance: float) -> float:
    """Approximate number of ones at which the term mass·(1 + γx)^α is largest.

    The logarithm of the term is concave in the number.
    """
    odds = math.exp(-local_epsilon)

    def past(count: float) -> bool:
        slope = math.log((messages - count + 0.5) / (count + 0.5) * odds)
        ratio = 1 + chance * float(_change(np.array(count), local_epsilon, messages))
        slope += order * chance * 2 * math.sinh(local_epsilon) / messages / ratio
        return not slope > 0

    return bisected(past, 0.0, float(messages), halvings=60).middle


_LARGEST_LOCAL_EPSILON = 300.0


def efm19_remark_1(local_epsilon: float, clients: int) -> RenyiFormula:
    """Upper bound R_α ≤ 2αe^{4ε₀}(e^{ε₀} − 1)²/n on shuffled ε₀-messages, adaptive ones included.

    Source: Remark 1 of Erlingsson et al. 2019 (erlingsson2019amplification), (5.8) of Girgis 2023.
    Proof: given the messages before it, each message is ε₁-DP with ε₁ = 2e^{2ε₀}(e^{ε₀} − 1)/n
    (`shuffling.efm19_theorem_7`), so its R_α is at most αε₁²/2.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound at all real orders α > 1.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(efm19_remark_1(0.5, 10**6).divergence(2) * 1e6, 3)
    12.438
    """
    require_setting(local_epsilon, clients)
    log_slope = math.log(2) + 4 * local_epsilon + 2 * log_expm1(local_epsilon) - math.log(clients)
    slope = math.exp(log_slope) if log_slope < 700 else math.inf
    return RenyiFormula(lambda orders: (orders - 1) * orders * slope, real_orders=True)


def theorem_5_3_1(local_epsilon: float, clients: int) -> RenyiFormula:
    """First upper bound of the thesis on Rényi divergences of shuffled ε₀-messages.

    In the formula e = e^{ε₀} and n̄ = ⌊(n − 1)/(2e)⌋ + 1, C(α, i) are binomial coefficients, and
    D_α is the moment E_Q[(dP/dQ)^α].

    Source: Theorem 5.3.1 of Girgis 2023 (girgis2023thesis): D_α ≤ 1 + C(α,2)(e − 1)²/(n̄e)
    + Σ_{i=3}^α C(α,i)·iΓ(i/2)·((e² − 1)²/(2e²n̄))^{i/2} + exp(ε₀α − (n − 1)/(8e)).

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound, rounded up: at whole orders α ≥ 2 by the theorem, and between whole orders by
        (5.6) of the thesis.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(theorem_5_3_1(0.5, 10**4).epsilon(1e-6), 4)
    0.0409
    """
    require_setting(local_epsilon, clients)
    hidden = blanket_size(local_epsilon, clients)
    log_second = 2 * log_expm1(local_epsilon) - local_epsilon - math.log(hidden)
    log_ratio = 2 * (log_expm1(2 * local_epsilon) - local_epsilon) - math.log(2 * hidden)
    exponent = (clients - 1) * math.exp(-local_epsilon) / 8
    moments = sub_gaussian_moments(log_second, log_ratio)

    def log_moments(orders: FloatArray) -> FloatArray:
        unlucky = local_epsilon * orders - exponent
        return _log1p_sum(moments(orders), unlucky + 4 * UNIT_ROUNDOFF * np.abs(unlucky))

    return RenyiFormula(log_moments)


def corollary_5_3_1(local_epsilon: float, clients: int) -> RenyiFormula:
    """Upper bound of the thesis in closed form on moments of shuffled ε₀-messages.

    D_α = E_Q[(dP/dQ)^α] is at most 1 + C(α,2)·4(e^{ε₀} − 1)²/n if α⁴e^{5ε₀} < n/9.

    Source: Corollary 5.3.1 of Girgis 2023 (girgis2023thesis), (5.5).

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound at whole orders 2 ≤ α < (n/9)^{1/4}e^{−5ε₀/4}; between whole orders (5.6) of the
        thesis gives the bound.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: the condition leaves no order.
    """
    require_setting(local_epsilon, clients)
    largest = math.ceil(((clients / 9) * math.exp(-5 * local_epsilon)) ** 0.25 * (1 - 1e-12)) - 1
    if largest < 2:
        raise UnsupportedError(
            f"Corollary 5.3.1 needs alpha^4 e^(5 epsilon_0) < n/9, which leaves no order at "
            f"epsilon_0 = {local_epsilon:g}, n = {clients}"
        )
    log_slope = math.log(2) + 2 * log_expm1(local_epsilon) - math.log(clients)

    def log_moments(orders: FloatArray) -> FloatArray:
        return _log1p_sum(log_slope + np.log(orders) + np.log(orders - 1) + 64 * UNIT_ROUNDOFF)

    return RenyiFormula(log_moments, min(largest, MOST_ORDERS))


def lemma_3_3_1(local_epsilon: float, clients: int) -> RenyiFormula:
    """Upper bound R_α ≤ 2α(e^{ε₀} − 1)²/n, valid while α⁴e^{5ε₀} < n/9, by `corollary_5_3_1`.

    Source: Lemma 3.3.1 of Girgis 2023 (girgis2023thesis), the last term of (3.5), by ln(1 + x) ≤ x;
    the term before the last is `corollary_5_3_1`. The thesis admits every α, but the proof, by
    binomial sums, is for whole orders.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound at whole orders 2 ≤ α < (n/9)^{1/4}e^{−5ε₀/4}; between whole orders (5.6) of the
        thesis gives the bound.

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: the condition leaves no order.
    """
    largest = corollary_5_3_1(local_epsilon, clients).largest_order
    log_slope = math.log(2) + 2 * log_expm1(local_epsilon) - math.log(clients)

    def log_moments(orders: FloatArray) -> FloatArray:
        return np.exp(log_slope + 64 * UNIT_ROUNDOFF) * orders * (orders - 1)

    return RenyiFormula(log_moments, largest)


def theorem_5_3_2(local_epsilon: float, clients: int) -> RenyiFormula:
    """Second upper bound of the thesis on the moments E_Q[(dP/dQ)^α] of shuffled messages.

    The moment of order α is at most exp(α²(e^{ε₀} − 1)²/n̄) + exp(ε₀α − (n − 1)/(8e^{ε₀})) with
    n̄ = ⌊(n − 1)/(2e^{ε₀})⌋ + 1.

    Source: Theorem 5.3.2 of Girgis 2023 (girgis2023thesis). The proof is for α ≥ 2. For
    1 < α < 2 the chord of the moment's logarithm from α = 1 to 2 lies below the bound, so the
    claim holds.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound at all real orders α > 1, rounded up, so never below the true value.

    Raises:
        ParameterError: an argument is outside its domain.

    >>> round(theorem_5_3_2(0.5, 10**4).epsilon(1e-6), 4)
    0.0641
    """
    require_setting(local_epsilon, clients)
    hidden = blanket_size(local_epsilon, clients)
    log_square = 2 * log_expm1(local_epsilon) - math.log(hidden)
    exponent = (clients - 1) * math.exp(-local_epsilon) / 8

    def log_moments(orders: FloatArray) -> FloatArray:
        usual = np.exp(np.minimum(log_square + 2 * np.log(orders), 700.0))
        logs = np.logaddexp(usual, local_epsilon * orders - exponent)
        return logs * (1 + 1e-12)

    return RenyiFormula(log_moments, real_orders=True)


def lemma_3_3_2(local_epsilon: float, clients: int) -> RenyiFormula:
    """CONJECTURED for general randomizers: bound on Rényi divergences of shuffled ε₀-messages.

    With e = e^{ε₀}, R_α ≤ 48α(e − 1)²/(ne) while α ≤ n/(16ε₀e).

    Source: Lemma 3.3.2 of Girgis 2023 (girgis2023thesis), which quotes Corollary 4.3 of Feldman,
    McMillan and Talwar 2023 (feldman2023stronger) "for any ε₀-LDP mechanism". That paper's erratum
    withdraws the generality. The first step of the corollary's proof, to the stronger clones pair,
    holds by another proof (docs/design/shuffling.md, Theorem 3). `benchmarks/papers/shuffled_renyi`
    computes the pair's Rényi divergences, which are at least 48 times smaller than this bound.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound at real orders up to n/(16ε₀e).

    Raises:
        ParameterError: an argument is outside its domain.
        UnsupportedError: n/(16ε₀e) is less than 2.
    """
    require_setting(local_epsilon, clients)
    largest = math.floor(clients * math.exp(-local_epsilon) / (16 * local_epsilon) * (1 - 1e-12))
    if largest < 2:
        raise UnsupportedError(
            f"Lemma 3.3.2 needs alpha <= n/(16 epsilon_0 e^(epsilon_0)), which leaves no order "
            f"at epsilon_0 = {local_epsilon:g}, n = {clients}"
        )
    log_slope = math.log(48 / clients) + 2 * log_expm1(local_epsilon) - local_epsilon
    slope = math.exp(log_slope) * (1 + 1e-12)
    return RenyiFormula(
        lambda orders: (orders - 1) * orders * slope,
        min(largest, MOST_ORDERS),
        real_orders=True,
    )


def theorem_5_3_3(local_epsilon: float, clients: int) -> RenyiLowerFormula:
    """NO GUARANTEE: lower bound on Rényi divergences that binary response attains.

    All other clients hold a zero.

    Source: Theorem 5.3.3 of Girgis 2023 (girgis2023thesis), as a sum over the number of messages
    that are a one, instead of over moments. Every bound for all ε₀-randomizers lies above this
    bound. Contrary to Remark 5.3.7, binary response is not the worst case for ε₀ > ln 2: with a
    third value that all other clients hold, 3-ary response has larger divergences.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound at whole orders α ≥ 2, exact except that it is rounded down.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    require_setting(local_epsilon, clients)
    return RenyiLowerFormula(lambda orders: log_moment_below(orders, local_epsilon, clients, 1.0))


def corollary_5_3_2(local_epsilon: float, clients: int) -> RenyiLowerFormula:
    """NO GUARANTEE: lower bound on moments that shuffled binary response attains.

    D_α = E_Q[(dP/dQ)^α] is at least 1 + C(α,2)(e − 1)²/(ne) with e = e^{ε₀}.

    Source: Corollary 5.3.2 of Girgis 2023 (girgis2023thesis). Its proof uses Jensen's inequality
    for x³, which is not convex; the odd central moments of a binomial count with p ≤ 1/2 are
    nevertheless not negative.

    Args:
        local_epsilon: ε₀ of each message, in (0, 300].
        clients: n, number of clients, at least 1.

    Returns:
        The bound at whole orders α ≥ 2, which is below that of `theorem_5_3_3`.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    require_setting(local_epsilon, clients)
    log_half = 2 * log_expm1(local_epsilon) - local_epsilon - math.log(2 * clients)

    def log_moments(orders: FloatArray) -> FloatArray:
        return _log1p_sum(log_half + np.log(orders) + np.log(orders - 1) - 64 * UNIT_ROUNDOFF)

    return RenyiLowerFormula(log_moments)


def blanket_size(local_epsilon: float, clients: int) -> int:
    """Number n̄ = ⌊(n − 1)/(2e^{ε₀})⌋ + 1 in the bounds on shuffled ε₀-messages, rounded down.

    Raises:
        ParameterError: ε₀ is below 0, or n is not a whole number of at least 1.
    """
    checks.non_negative(local_epsilon=local_epsilon)
    checks.count(clients=clients)
    return math.floor((clients - 1) * math.exp(-local_epsilon) / 2 * (1 - 1e-14)) + 1


def sub_gaussian_moments(log_second: float, log_ratio: float) -> LogMoments:
    """Function α ↦ ln(C(α,2)s + Σ_{i=3}^α C(α,i)·iΓ(i/2)·r^{i/2}) at whole α, rounded up.

    ``log_second`` is ln s, and ``log_ratio`` is ln r.
    """
    tables: dict[str, FloatArray] = {}

    # Tables of ln i! and of the terms without α, made again for larger orders.
    def log_moments(orders: FloatArray) -> FloatArray:
        largest = int(orders.max(initial=2.0))
        if not tables or tables["factorials"].size <= largest:
            i = np.arange(2.0 * largest + 1)
            tables["factorials"] = gammaln(i + 1)
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.log(i) + gammaln(i / 2) + i / 2 * log_ratio
            terms[2] = log_second
            tables["terms"] = terms - tables["factorials"]
        return np.array([_one(int(order)) for order in orders])

    # The sum at one order, rounded up by its largest logarithm.
    def _one(order: int) -> float:
        factorials, terms = tables["factorials"], tables["terms"]
        left = factorials[order - 2 :: -1]  # (α − i)! for i = 2 … α
        logs = terms[2 : order + 1] - left
        largest = 3 * factorials[order] + order * (1 + abs(log_ratio)) + abs(log_second)
        return _log_sum(logs) + factorials[order] + 8 * UNIT_ROUNDOFF * (largest + 10)

    return log_moments


def _log_sum(logs: FloatArray) -> float:
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).sum()))


def _log1p_sum(*logs: FloatArray) -> FloatArray:
    """Logarithm of 1 + Σ e^x over the arrays x of logarithms, elementwise."""
    return np.logaddexp.reduce([np.zeros_like(logs[0]), *logs])


def require_setting(local_epsilon: float, clients: int) -> None:
    """Raise an error for an ε₀ or an n outside the domain of the formulas.

    Raises:
        ParameterError: ε₀ is outside (0, 300], or n is not a whole number of at least 1.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(clients=clients)
    if local_epsilon > _LARGEST_LOCAL_EPSILON:
        raise ParameterError(
            "local_epsilon", local_epsilon, f"at most {_LARGEST_LOCAL_EPSILON:g} for this formula"
        )


_THESIS, _PURE = Paper("thesis", "girgis2023thesis"), "pure epsilon_0"
_BINARY, _SMALL_ORDERS = "binary randomized response", "alpha^4 e^(5 epsilon_0) < n/9"
_WHOLE, _ATTAINED = "whole orders from 2 on", "a lower bound: attained by binary response"
RESULTS = (
    Paper("EFM19", "erlingsson2019amplification").states(
        "Remark 1", efm19_remark_1, _PURE, "all real orders; adaptive, hidden order"
    ),
    _THESIS.states("Theorem 5.3.1", theorem_5_3_1, _PURE, f"{_WHOLE}; real ones by (5.6)"),
    _THESIS.states("Corollary 5.3.1", corollary_5_3_1, _PURE, f"{_WHOLE}, {_SMALL_ORDERS}"),
    _THESIS.states("Lemma 3.3.1", lemma_3_3_1, _PURE, f"{_WHOLE}, {_SMALL_ORDERS}"),
    _THESIS.states("Theorem 5.3.2", theorem_5_3_2, _PURE, "all real orders"),
    _THESIS.states(
        "Lemma 3.3.2",
        lemma_3_3_2,
        _PURE,
        "alpha <= n/(16 epsilon_0 e^(epsilon_0)); proved for binary randomized response alone",
        Status.CONJECTURED,
    ),
    _THESIS.states("Theorem 5.3.3", theorem_5_3_3, _BINARY, f"{_WHOLE}; {_ATTAINED}"),
    _THESIS.states("Corollary 5.3.2", corollary_5_3_2, _BINARY, f"{_WHOLE}; {_ATTAINED}"),
)
