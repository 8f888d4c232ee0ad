"""Utility theorems on random check-ins: dummy updates and excess risk.

Source: Balle, Kairouz, McMahan, Thakkar, Guha Thakurta 2020 (balle2020checkins). No function here
returns a privacy guarantee. Risk bounds contain the constants of the proofs, where the theorems
state Õ.

Notation
    n  population            m  window (steps, updates)         p₀  probability
    L  lipschitz             R  diameter of the model space     p   dimension
    σ  noise, the standard deviation of each coordinate of one client's noise
    β  smoothness
"""

from __future__ import annotations

import math
from collections.abc import Callable

from turnout.accounting.published.results import PublishedResult, Status
from turnout.core import checks
from turnout.core.errors import UnsupportedError


def proposition_3_4(population: int, window: int, probability: float = 1.0) -> float:
    """Exact expected number of dummy updates in one window: m(1 − p₀/m)ⁿ.

    Source: Proposition 3.4, first part.

    >>> round(proposition_3_4(1000, 1000), 3)
    367.695
    """
    checks.count(population=population, window=window)
    checks.probability(probability=probability)
    share = probability / window
    return 0.0 if share == 1 else window * math.exp(population * math.log1p(-share))


def proposition_3_4_closed_form(population: int, window: int, probability: float = 1.0) -> float:
    """m·e^{−c} with c = np₀/m, an upper bound on `proposition_3_4`.

    Source: Proposition 3.4, second part.
    """
    checks.count(population=population, window=window)
    checks.probability(probability=probability)
    return window * math.exp(-population * probability / window)


def proposition_4_4(population: int, window: int) -> float:
    """Upper bound on the expected number of dummy updates of a sliding window: (n − m + 1)/e.

    Source: Proposition 4.4, with one client for each slot. Its proof prints the range of steps as
    m … n − m + 1; the steps after the warm-up are m … n, which is what the bound counts.
    """
    checks.count(population=population, window=window)
    checks.at_most("population", population, window=window)
    return (population - window + 1) / math.e


def theorem_3_5(
    population: int,
    window: int,
    *,
    lipschitz: float,
    diameter: float,
    dimension: int,
    noise: float,
    probability: float = 1.0,
) -> float:
    """Upper bound on the excess population risk of Algorithm 1's last model, convex loss.

    Source: Theorem 3.5, at the learning rate of its proof, p' = 2e^{−np₀/m}:
    R√(pσ² + L²)·(1 + 1/(1 − p'))·(2 + ln m)/√m.

    Raises:
        UnsupportedError: np₀/m ≤ ln 2, where 1 − p' ≤ 0 and the theorem is void.
    """
    _check_problem(population, window, (lipschitz, diameter), dimension, noise)
    checks.probability(probability=probability)
    served = -math.expm1(math.log(2) - population * probability / window)
    if served <= 0:
        raise UnsupportedError(
            "Theorem 3.5 needs more than ln 2 check-ins a step: population * probability > "
            "ln 2 * window"
        )
    size = math.sqrt(dimension * noise**2 + lipschitz**2)
    return diameter * size * (1 + 1 / served) * (2 + math.log(window)) / math.sqrt(window)


def theorem_4_2(
    population: int,
    window: int,
    *,
    lipschitz: float,
    diameter: float,
    dimension: int,
    noise: float,
) -> float:
    """Upper bound on the excess population risk of Algorithm 2's last model, convex loss.

    Source: Theorem 4.2, first part, at the learning rate of its proof:
    2R√(mpσ²/n + L²)·(2 + ln m)/√m. Its step E‖h̃‖² ≤ mpσ²/n + L² replaces E[1/S] by 1/E[S] = m/n; a
    proved bound on E[1/S] is 2m/(n + 1), so the noise term may be √2 times larger.
    """
    _check_problem(population, window, (lipschitz, diameter), dimension, noise)
    size = math.sqrt(window * dimension * noise**2 / population + lipschitz**2)
    return 2 * diameter * size * (2 + math.log(window)) / math.sqrt(window)


def theorem_4_2_smooth(
    population: int,
    window: int,
    *,
    lipschitz: float,
    diameter: float,
    dimension: int,
    noise: float,
    smoothness: float,
) -> float:
    """Upper bound on the excess population risk of Algorithm 2's average model, smooth convex loss.

    Source: Theorem 4.2, second part: Rκ√(2/m) + βR²/m, with the O(m/n) of its proof as
    κ² = 2m/(n + 1)·(L² + pσ²), since E[1/S; S > 0] ≤ 2m/(n + 1) for S ~ Bin(n, 1/m).
    """
    _check_problem(population, window, (lipschitz, diameter), dimension, noise)
    checks.non_negative(smoothness=smoothness)
    spread = 2 * window / (population + 1) * (lipschitz**2 + dimension * noise**2)
    return diameter * math.sqrt(2 * spread / window) + smoothness * diameter**2 / window


def _check_problem(
    population: int, window: int, sizes: tuple[float, float], dimension: int, noise: float
) -> None:
    checks.count(population=population, window=window, dimension=dimension)
    checks.positive(lipschitz=sizes[0], diameter=sizes[1])
    checks.non_negative(noise=noise)


def _stated(
    number: str, function: Callable[..., object], holds: str, status: Status
) -> PublishedResult:
    return PublishedResult(
        f"check-ins {number}",
        f"balle2020checkins, {number}",
        status,
        None,
        (),
        "any (dummy updates)" if status is Status.PROVED else "Gaussian at the client",
        holds,
        function,
    )


RESULTS = (
    _stated("Proposition 3.4", proposition_3_4, "any n, m, p_0", Status.PROVED),
    _stated(
        "Proposition 3.4, closed form", proposition_3_4_closed_form, "any n, m, p_0", Status.PROVED
    ),
    _stated("Proposition 4.4", proposition_4_4, "one client a slot, m <= n", Status.PROVED),
    _stated("Theorem 3.5", theorem_3_5, "convex, n p_0 / m > ln 2", Status.REPRODUCTION),
    _stated("Theorem 4.2", theorem_4_2, "convex", Status.REPRODUCTION),
    _stated("Theorem 4.2, smooth", theorem_4_2_smooth, "convex and smooth", Status.REPRODUCTION),
)
