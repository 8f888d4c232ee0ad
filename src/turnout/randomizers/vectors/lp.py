"""Means of vectors of bounded ℓp norm, by the norm for which we have a randomizer.

Notation: d coordinates, r the bound on ‖x‖_p. For q ≥ p ‖x‖_q ≤ ‖x‖_p, and for q < p
‖x‖_q ≤ d^{1/q − 1/p}‖x‖_p.
"""

from __future__ import annotations

import math

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.randomizers.vectors.l1 import L1Randomizer
from turnout.randomizers.vectors.l2 import L2Randomizer
from turnout.randomizers.vectors.linf import LInfRandomizer
from turnout.randomizers.vectors.spherical_code import SphericalCode
from turnout.randomizers.vectors.vector_randomizer import VectorRandomizer


def contained_radius(norm: float, other: float, dimension: int, radius: float) -> float:
    """The least R with ‖x‖_other ≤ R wherever ‖x‖_norm ≤ ``radius``.

    >>> contained_radius(1, 2, 100, 1.0), contained_radius(float("inf"), 2, 100, 1.0)
    (1.0, 10.0)
    """
    if not (norm >= 1 and other >= 1):
        raise ParameterError("norm", min(norm, other), "a number of at least 1")
    checks.count(dimension=dimension)
    checks.positive(radius=radius)
    return radius * dimension ** max(0.0, 1 / other - 1 / norm)


def best_randomizer(
    norm: float,
    dimension: int,
    epsilon: float,
    radius: float = 1.0,
    *,
    message_bits: float = math.inf,
    public_seed: int | None = None,
) -> VectorRandomizer:
    """The randomizer of least error bound for vectors with ‖x‖_p ≤ r.

    Source: Remark 3.4.1 (girgis2023thesis) for p < 2. It puts the ℓp ball inside the ℓ1 ball of
    the same radius; it is the other way round, and the ℓ1 radius needed is d^{1 − 1/p}·r. The ℓ2
    ball of radius r does contain it, so its rate d/n still holds.

    Args:
        norm: p ≥ 1, may be infinite.
        dimension: d.
        epsilon: ε₀ of one message.
        radius: r.
        message_bits: budget of bits a client.
        public_seed: of public randomness that clients may use; with it, messages are short. None:
            only the rotation is public.

    Returns:
        One whose radius is in its own norm; every vector with ‖x‖_p ≤ r is within it.

    >>> [type(best_randomizer(p, 300, 1.0)).__name__ for p in (1, 1.5, 2, float("inf"))]
    ['L1Randomizer', 'L2Randomizer', 'L2Randomizer', 'LInfRandomizer']
    """
    checks.positive(radius=radius, epsilon=epsilon)

    def within(other: float) -> float:
        return contained_radius(norm, other, dimension, radius)

    candidates: list[VectorRandomizer] = [
        L1Randomizer(dimension, epsilon, within(1), public_seed),
        LInfRandomizer.best(dimension, epsilon, within(math.inf), message_bits, public_seed),
    ]
    if dimension > 1 and public_seed is not None:
        seed = public_seed
        candidates.append(
            SphericalCode.best(dimension, epsilon, within(2), message_bits, seed=seed)
        )
    elif dimension > 1:
        candidates.append(L2Randomizer.best(dimension, epsilon, within(2), message_bits))
    fitting = [c for c in candidates if c.message_bits <= message_bits]
    return min(fitting, key=lambda candidate: candidate.worst_squared_error)
