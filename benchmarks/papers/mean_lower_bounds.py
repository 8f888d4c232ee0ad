"""Lower bounds on the error of private means, with constants, and the orders printed in the thesis.

Source: Girgis 2023 (girgis2023thesis), Theorems 3.4.3, 3.6.3 and 3.6.4. They are no privacy
guarantees: they bound the error of a private mean from below. The thesis states orders without
constants; its printed orders are kept under `*_order_as_printed` and are no bounds. The constants
are ours (docs/errata.md has the counterexamples to the printed forms).

Notation
    n  clients    d  dimension    r  radius: ‖x_i‖_p ≤ r    x̄  the clients' mean
    ε₀ epsilon0, of every client's message (local)    ε  epsilon, of the whole mechanism (central)
    MSE = sup over x_1 … x_n of E‖x̂ − x̄‖₂², x̂ unbiased: E[x̂ | x] = x̄ at all of them

Proof of the local constants. Draw the x_i independently from a distribution of mean θ near 0. Then
x̂ is unbiased for θ, and E‖x̂ − θ‖² = E‖x̂ − x̄‖² + E‖x̄ − θ‖². By Cramér and Rao, and Cauchy and
Schwarz, the left side is at least d²/(nT) at θ = 0, if T bounds the trace of one message's Fisher
information, whatever earlier messages it depends on. Let w(x) = Q(y | x)/Q(y), of mean 1 over x and
within a factor e^{ε₀}; for a message y the trace is Σ_j E[w s_j]², s_j the scores.

* ±r·e_j, each with 1/(2d) ± θ_j/(2r): s_j = ±d/r on its two points. With u the mean of the
  |w(+j) − w(−j)| over their largest possible value, the sum is at most
  (d/4r²)·u(e^{ε₀} − 1)²/(1 + u(e^{ε₀} − 1)/2)², largest at u = min(1, 2/(e^{ε₀} − 1)). So
  T = (d/4r²)·B, B = 4tanh²(ε₀/2) while e^{ε₀} ≤ 3 and (e^{ε₀} − 1)/2 beyond; E‖x̄ − θ‖² = r²/n.
* {±a}^d uniform, a = r·d^{−1/p}: s_j = x_j/a². The x_j/a are orthonormal and orthogonal to 1, so
  by Bessel the sum is at most Var(w)/a² ≤ sinh²(ε₀/2)/a². It is at most 2·KL/a² ≤ 2ε₀/a² too, as
  x is sub-Gaussian, and d/a², as |x_j| = a. E‖x̄ − θ‖² = d·a²/n.
"""

from __future__ import annotations

import math

from turnout.accounting.published.results import THESIS, Status
from turnout.core import checks
from turnout.core.errors import ParameterError

_ROUNDING = 1e-12
_LARGEST_EPSILON = 600.0


def theorem_3_4_3(
    epsilon0: float, dimension: int, clients: int, *, norm: float = 1.0, radius: float = 1.0
) -> float:
    """Lower bound on the MSE of unbiased means from ε₀-private messages, ‖x‖_p ≤ r, 1 ≤ p < 2.

    (r²/n)·(d·coth²(ε₀/2) − 1) while e^{ε₀} ≤ 3, and (r²/n)·(8d/(e^{ε₀} − 1) − 1) beyond, with
    the constants of the module's proof. `L1Randomizer` attains the former for vectors ±r·e_j.

    Source: Theorem 3.4.3 of Girgis 2023 (girgis2023thesis), which states an order alone.

    Args:
        epsilon0: ε₀ > 0; a message may depend on those before it.
        dimension: d.
        clients: n.
        norm: p in [1, 2).
        radius: r.

    Returns:
        Never above the least possible MSE; 0 where nothing is proved.

    >>> round(theorem_3_4_3(1.0, 100, 1000), 4)
    0.4673
    """
    _check(epsilon0, dimension, clients, radius)
    if not 1 <= norm < 2:
        raise ParameterError("norm", norm, "from 1 to below 2 (Theorem 3.4.3)")
    growth = math.expm1(epsilon0)
    information = 4 * math.tanh(epsilon0 / 2) ** 2 if growth <= 2 else growth / 2
    return _down(radius**2 / clients, 4 * dimension / information - 1)


def theorem_3_6_3(
    epsilon0: float, dimension: int, clients: int, *, norm: float = 2.0, radius: float = 1.0
) -> float:
    """Lower bound on the MSE of unbiased means from ε₀-private messages, ‖x‖_p ≤ r, p ≥ 2.

    (r²d^{1−2/p}/n)·(d/min(sinh²(ε₀/2), 2ε₀, d) − 1), with the constants of the module's proof.

    Source: Theorem 3.6.3 of Girgis 2023 (girgis2023thesis), which states an order alone.

    Args:
        epsilon0: ε₀ > 0; a message may depend on those before it.
        dimension: d.
        clients: n.
        norm: p ≥ 2, or infinity.
        radius: r.

    Returns:
        Never above the least possible MSE; 0 where nothing is proved.

    >>> round(theorem_3_6_3(1.0, 300, 1000), 4)
    1.1038
    """
    _check(epsilon0, dimension, clients, radius)
    if not norm >= 2:
        raise ParameterError("norm", norm, "at least 2 (Theorem 3.6.3)")
    information = min(math.sinh(epsilon0 / 2) ** 2, 2 * epsilon0, float(dimension))
    scale = radius**2 * dimension ** (1 - 2 / norm) / clients
    return _down(scale, dimension / information - 1)


def theorem_3_6_4_pure(
    epsilon: float, dimension: int, clients: int, *, radius: float = 1.0
) -> float:
    """Lower bound on the MSE of unbiased (ε, 0)-private means with a trusted server, ‖x‖₂ ≤ r.

    r²d/(n²·sinh²(ε/2)) for d ≤ n, and a quarter of it for more coordinates.

    Source: Theorem 3.6.4 of Girgis 2023 (girgis2023thesis), which states an order, for δ > 0.
    Proof: let client j ≤ d hold −r·e_j, and the others nothing. Replacing that vector by r·e_j
    moves the j-th mean by 2r/n and its distribution by a χ² of at most 4sinh²(ε/2), so by
    Hammersley, Chapman and Robbins its variance is at least r²/(n²sinh²(ε/2)). For d > n all hold
    nothing and the mean moves by r/n.

    Args:
        epsilon: ε > 0 under replacement of one client's vector; δ = 0.
        dimension: d.
        clients: n.
        radius: r.

    Returns:
        Never above the least possible MSE.

    >>> round(theorem_3_6_4_pure(1.0, 300, 1000), 6)
    0.001105
    """
    _check(epsilon, dimension, clients, radius)
    parts = 1 if dimension <= clients else 4
    spread = clients * math.sinh(epsilon / 2)
    return _down(radius**2 / parts, dimension / spread / spread)


def theorem_3_4_3_order_as_printed(
    epsilon0: float, dimension: int, clients: int, radius: float = 1.0
) -> float:
    """UNSAFE: the order r²d/(nε₀²), which is no lower bound for all ε₀, whatever its constant.

    For d = 1, the error of k-ary response with 512 values is 0.0021 times this order at ε₀ = 20.
    With the constant 3 it is a lower bound for ε₀ ≤ 1: see `theorem_3_4_3`.
    """
    _check(epsilon0, dimension, clients, radius)
    return radius**2 * dimension / (clients * epsilon0**2)


def theorem_3_6_3_order_as_printed(
    epsilon0: float, dimension: int, clients: int, *, norm: float = 2.0, radius: float = 1.0
) -> float:
    """UNSAFE: the order r²d^{2−2/p}/(n·min(ε₀, ε₀²)), which is no lower bound for all ε₀.

    No constant makes it a bound for all ε₀: for d = 1, the error of k-ary response with 512 values
    is 1.1e-4 times this order at ε₀ = 20. With the constant ¼ it is a lower bound for min(ε₀, ε₀²)
    ≤ d/4, an assumption of its proof: see `theorem_3_6_3`.
    """
    _check(epsilon0, dimension, clients, radius)
    if not norm >= 2:
        raise ParameterError("norm", norm, "at least 2 (Theorem 3.6.3)")
    spent = min(epsilon0, epsilon0**2)
    return radius**2 * dimension ** (2 - 2 / norm) / (clients * spent)


def theorem_3_6_4_order_as_printed(
    epsilon: float, delta: float, dimension: int, clients: int, *, bits: float, radius: float = 1.0
) -> float:
    """UNSAFE: the order (r²d/n²)·max(ln(1/δ)/ε², n/(d·4^{b/d})), no lower bound for all δ.

    For fewer than d bits per client the second term is n/b. No constant makes it a bound for all δ:
    Laplace noise is (ε, δ)-private for every δ, with an error that does not depend on δ (d = 1:
    8r²/(n²ε²)).
    """
    _check(epsilon, dimension, clients, radius)
    checks.open_unit(delta=delta)
    checks.positive(bits=bits)
    few = bits < dimension
    shown = clients / bits if few else clients / dimension * 4 ** (-bits / dimension)
    return radius**2 * dimension / clients**2 * max(-math.log(delta) / epsilon**2, shown)


def _check(epsilon: float, dimension: int, clients: int, radius: float) -> None:
    checks.positive(epsilon=epsilon, radius=radius)
    checks.count(dimension=dimension, clients=clients)
    if epsilon > _LARGEST_EPSILON:
        raise ParameterError("epsilon", epsilon, f"at most {_LARGEST_EPSILON:g} for this formula")


def _down(scale: float, multiple: float) -> float:
    """Product rounded down, at least 0; ``multiple`` may be a difference from 1."""
    return max(0.0, scale * (multiple - _ROUNDING * (abs(multiple) + 1)))


_LOCAL = "pure epsilon_0, messages in any order"
_BOUND = "a lower bound on the MSE, no guarantee; unbiased means; constants ours"
_ORDER = "order only, constants not stated"
RESULTS = (
    THESIS.states("Theorem 3.4.3, with constants", theorem_3_4_3, _LOCAL, f"{_BOUND}; 1 <= p < 2"),
    THESIS.states(
        "Theorem 3.4.3, as printed",
        theorem_3_4_3_order_as_printed,
        _LOCAL,
        f"{_ORDER}; false for epsilon_0 far above 1",
        Status.UNSAFE,
    ),
    THESIS.states("Theorem 3.6.3, with constants", theorem_3_6_3, _LOCAL, f"{_BOUND}; p >= 2"),
    THESIS.states(
        "Theorem 3.6.3, as printed",
        theorem_3_6_3_order_as_printed,
        _LOCAL,
        f"{_ORDER}; false for epsilon_0 far above d",
        Status.UNSAFE,
    ),
    THESIS.states(
        "Theorem 3.6.4, delta = 0, with constants",
        theorem_3_6_4_pure,
        "pure epsilon, trusted server",
        _BOUND,
    ),
    THESIS.states(
        "Theorem 3.6.4, as printed",
        theorem_3_6_4_order_as_printed,
        "(epsilon, delta), trusted server, b bits a client",
        f"{_ORDER}; false as delta goes to 0",
        Status.UNSAFE,
    ),
)
