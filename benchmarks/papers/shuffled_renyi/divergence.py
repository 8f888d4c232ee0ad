"""Rényi divergences of shuffled messages, for blanket pairs and for binary response.

Notation
    n       clients         α > 1   the order
    X       the relative difference of the two worlds' likelihoods: their ratio is (1 + X)/(1 − X)

X is as often −x as x, so with tanh s = X the mean of the ratio's α-th power is

    e^{(α − 1)·D_α} = E[cosh((2α − 1)s)/cosh s] = 1 + E[2·sinh(αs)·sinh((α − 1)s)/cosh s],

for every real α, the same in both directions, and a sum of positive terms: nothing cancels where
the divergence is tiny. The mean of this convex even function of X is taken over the distribution of
messages half-way between the worlds; `ratio_groups` has a distribution of X above the true one in
convex order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shuffled_renyi.ratio_distributions import log_binomial_masses
from shuffled_renyi.ratio_groups import ratio_distribution
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.divergence.renyi import RenyiBounds, checked_orders
from turnout.core import checks

if TYPE_CHECKING:
    from turnout.accounting.published.renyi import RenyiFormula
    from turnout.accounting.shuffling.blanket_pairs import BlanketPair

FloatArray = np.ndarray
_DEVIATIONS = 9.0  # standard deviations around the relevant counts
_TILT_REACH = 1.6  # window of a walk, relative to the range of the largest order
_CELLS_A_DEVIATION = 50
_LARGEST_LOCAL_EPSILON = 600.0
_USUAL_DEVIATIONS = 4.0  # one distribution is used for ranges up to this, or 2, 4, … times this
_SLACK = 1e-10  # relative bound on the rounding error of a mass


def blanket_renyi(pair: BlanketPair, clients: int, orders: Sequence[float]) -> RenyiBounds:
    """Upper bounds on the Rényi divergences of n shuffled messages, from a blanket pair.

    Source: the module's notes. For the clones pair: Feldman, McMillan and Talwar 2021
    (feldman2021clones), Theorem 3.1, whose reduction holds for every f-divergence.

    Args:
        pair: a blanket pair.
        clients: n ≥ 1; each sends one message.
        orders: real α's above 1, rising.

    Returns:
        The same upper bounds in both directions, under replace-one; never below the divergences
        of the pair, and no larger than ln(v_h/v_l). The relative excess is about 1e-4, and about
        1e-3 with neutral messages. With 200 clients or fewer, 40 with neutral messages, all terms
        are summed and only rounding is added.

    Raises:
        ParameterError: n or the orders are out of range.
        NumericalError: neutral messages whose v₃/β₃ is so small that they take too long.
    """
    checks.count(clients=clients)
    alphas = np.array(checked_orders(orders))
    bounds = _log_moments(pair, clients, alphas) / (alphas - 1) * (1 + 8 * UNIT_ROUNDOFF)
    values = tuple(float(bound) for bound in bounds)
    return RenyiBounds(tuple(alphas.tolist()), values, values)


def blanket_renyi_formula(pair: BlanketPair, clients: int) -> RenyiFormula:
    """The bounds of `blanket_renyi` as a function of any real order, for composition and (ε, δ).

    Args:
        pair: a blanket pair.
        clients: n ≥ 1; each sends one message.

    Returns:
        Upper bounds on ln D_α, as those of the papers' theorems.

    Raises:
        NumericalError: neutral messages whose v₃/β₃ is so small that they take too long.

    >>> from turnout.accounting.shuffling.blanket_pairs import clones_pair
    >>> rounds = blanket_renyi_formula(clones_pair(0.5), 10**6).composed(1000)
    >>> round(rounds.epsilon(1e-8), 4)
    0.0972
    """
    from turnout.accounting.published.renyi import RenyiFormula  # it imports this package

    checks.count(clients=clients)
    return RenyiFormula(lambda orders: _log_moments(pair, clients, orders), real_orders=True)


def _log_moments(pair: BlanketPair, clients: int, alphas: FloatArray) -> FloatArray:
    """(α − 1)·D_α at given orders, rounded up."""
    # One distribution is used for all orders that δ of about 1e-10 needs for one use.
    usual = math.sqrt(clients * 2 * pair.share) * _USUAL_DEVIATIONS / (pair.high - pair.low)
    steps = max(0, math.ceil(math.log2(float(alphas.max()) / usual)))
    distribution = ratio_distribution(pair, clients, usual * 2**steps)
    most = pair.local_epsilon
    logs = distribution.log_excess(alphas)
    logs += _SLACK + 1e-13 * np.maximum(logs, 0.0) + 16 * UNIT_ROUNDOFF * alphas * (1 + most)
    moments = np.minimum(np.logaddexp(0.0, logs), (alphas - 1) * most)
    return moments * (1 + 8 * UNIT_ROUNDOFF)


def alike_renyi(
    local_epsilon: float, clients: int, orders: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds on Rényi divergences of shuffled binary response if all others hold one value.

    Source: Girgis 2023 (girgis2023thesis), Theorem 5.3.3, there for whole orders and the first
    direction. The divergences of another shuffled ε₀-randomizer may be larger: those of
    three-valued response are, at ε₀ > ln 2 (docs/errata.md, thesis 9).

    Args:
        local_epsilon: ε₀ > 0, under replacement.
        clients: n ≥ 1; each sends one message.
        orders: real α's above 1, rising.

    Returns:
        D_α(D′‖D) and D_α(D‖D′), shape of the orders; in D all hold one value, in D′ one client the
        other. Never above the true divergences, and below them by about 1e-4, relatively.
    """
    checks.positive(local_epsilon=local_epsilon)
    checks.count(clients=clients)
    local_epsilon = min(local_epsilon, _LARGEST_LOCAL_EPSILON)
    alphas = np.array(checked_orders(orders))
    rare = 1 / (1 + math.exp(local_epsilon))
    rise = 2 * math.sinh(local_epsilon) / clients  # change of the ratio by one more rare message
    deviation = math.sqrt(clients * rare * (1 - rare))
    ahead = _TILT_REACH * float(alphas[-1]) * math.tanh(local_epsilon / 2)
    reach = _DEVIATIONS * (deviation + 1) + ahead
    low = max(0, math.floor(clients * rare - reach))
    counts = np.arange(low, min(clients, math.ceil(clients * rare + reach)) + 1)
    logs = log_binomial_masses(clients, rare, counts)
    # Lower bound by Jensen: a convex function at the mean of each cell.
    starts = np.arange(0, counts.size, max(1, int(deviation / _CELLS_A_DEVIATION)))
    sizes = np.diff(starts, append=counts.size)
    top = np.maximum.reduceat(logs, starts)
    scaled = np.exp(logs - np.repeat(top, sizes))
    masses = np.add.reduceat(scaled, starts)
    away = np.add.reduceat(scaled * (counts - clients * rare), starts) / masses
    masses = top + np.log(masses) - _SLACK
    y, seen = rise * away, away / clients + rare
    ratios = math.exp(local_epsilon) * seen + math.exp(-local_epsilon) * (1 - seen)
    logs = np.where(y > -0.5, np.log1p(np.maximum(y, -0.5)), np.log(ratios))
    return (
        np.array([_convex_excess(a, y, logs, masses) / (a - 1) for a in alphas]),
        np.array([_convex_excess(1 - a, y, logs, masses) / (a - 1) for a in alphas]),
    )


def _convex_excess(
    power: float, y: FloatArray, log_ratios: FloatArray, masses: FloatArray
) -> float:
    """Ln(1 + E[x^p − 1 − p·y]), x = 1 + y, rounded down; E[y] = 0 and all terms are ≥ 0."""
    exponents = power * log_ratios
    small = exponents < 30.0
    inner = np.where(small, exponents, 0.0)
    error = 8 * UNIT_ROUNDOFF * (np.exp(inner) * (1 + np.abs(inner)) * np.abs(inner))
    terms = np.expm1(inner) - power * y - error - 8 * UNIT_ROUNDOFF * np.abs(power * y)
    with np.errstate(divide="ignore"):
        near = np.log(np.maximum(terms, 0.0))
    far = exponents + np.log1p(-(1 + power * y) * np.exp(-np.maximum(exponents, 30.0)))
    logs = masses + np.where(small, near, far) - 16 * UNIT_ROUNDOFF * np.abs(exponents)
    top = float(logs.max())
    if top == -math.inf:
        return 0.0
    found = top + math.log(float(np.exp(logs - top).sum()))
    return float(np.logaddexp(0.0, found)) * (1 - 8 * UNIT_ROUNDOFF)
