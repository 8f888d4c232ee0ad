"""Means from shuffled messages: what local messages are worth once nobody knows who sent them.

Every client sends L messages, and each goes through a shuffler of its own together with the others'
messages of the same number (one shuffler serves, if messages carry their number). A message is
drawn independently of the client's other messages, so the shufflers' outputs compose.

Notation: n clients, L messages each, the j-th ε_j-private on its own; (ε, δ) of all shuffled
messages together under replacement of one client's vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from turnout.accounting import shuffled_price
from turnout.estimation.private.shuffled_levels import largest_affordable
from turnout.randomizers.vectors import (
    CosineRotation,
    L2Randomizer,
    LInfRandomizer,
    VectorRandomizer,
)
from turnout.randomizers.vectors.l2 import CLIP
from turnout.randomizers.vectors.sampled_bits import level_weights


@dataclass(frozen=True)
class ShuffledMean:
    """A randomizer whose messages are shuffled, and what that is worth.

    Attributes:
        randomizer: what each client uses.
        clients: n; all of them follow the protocol.
        delta: δ.
        epsilon: of all shuffled messages together, never below the true one.
    """

    randomizer: VectorRandomizer
    clients: int
    delta: float
    epsilon: float

    unit = "client"
    trust = "shuffled"
    relation = "replace-one"

    @property
    def messages(self) -> int:
        """Messages of a client, L."""
        return sum(count for _, count in self.randomizer.laws)

    @property
    def mse_bound(self) -> float:
        """Largest E‖estimate − mean‖₂² over what the clients hold, clipping included."""
        return self.randomizer.mse_bound(self.clients)

    def __str__(self) -> str:
        """The messages that are sent, and their privacy, as text."""
        return (
            f"{self.messages} messages of {self.clients:,} clients, {self.randomizer.message_bits} "
            f"bits a client; ε = {self.epsilon:g} at δ = {self.delta:g} ({self.relation}), unit: "
            f"one {self.unit}, trust: {self.trust}; assumes: all {self.clients:,} clients follow "
            f"the protocol; without the shuffler ε₀ = {self.randomizer.epsilon0:g} (pure, local)"
        )


def shuffled_epsilon(randomizer: VectorRandomizer, clients: int, delta: float) -> float:
    """ε of all shuffled messages together.

    Source: the blanket of each message by its law (`VectorRandomizer.laws`,
    docs/design/shuffling.md), composed numerically over the shufflers. The closed forms of Theorems
    3.3.2, 3.5.2 and 3.6.2 (girgis2023thesis) are wrong by constants in either direction (errata,
    5–7).

    Args:
        randomizer: what each client uses, with private coordinates.
        clients: n, all of whom follow the protocol.
        delta: δ in (0, 1).

    Returns:
        ε under replace-one, never below the true one and never above ε₀.

    Raises:
        UnsupportedError: nothing is known of its messages, or coordinates are public.

    >>> from turnout.randomizers.vectors import BinaryVectorRandomizer
    >>> messages = BinaryVectorRandomizer(10, 5.0, samples=10)
    >>> shuffled_epsilon(messages, 100_000, 1e-6) < 0.1
    True
    """
    price = shuffled_price(randomizer.laws, clients, delta)
    return min(price, randomizer.epsilon0)


def shuffled_randomizer(
    make: Callable[[float], VectorRandomizer],
    clients: int,
    epsilon: float,
    delta: float,
    start: float | None = None,
) -> ShuffledMean:
    """The randomizer with the least noise whose shuffled messages are (ε, δ)-private.

    Args:
        make: gives the randomizer at a local level ε₀; more ε₀ is less noise.
        clients: n.
        epsilon: ε > 0, of all messages together.
        delta: δ in (0, 1).
        start: a level at which to begin, if that is within ε.

    Returns:
        One on the private side of ε; within about 0.1 % of it where shuffling helps.
    """
    found = largest_affordable(
        make, lambda randomizer: shuffled_epsilon(randomizer, clients, delta), epsilon, start
    )
    return ShuffledMean(found.made, clients, delta, found.epsilon)


def shuffled_linf(
    dimension: int,
    clients: int,
    epsilon: float,
    delta: float,
    *,
    samples: int,
    levels: int,
    radius: float = 1.0,
) -> ShuffledMean:
    """One bit of each of m·s coordinates, shuffled: the ℓ∞ scheme of the multi-message model.

    Source: Algorithm 3.5.1 and Theorem 3.5.2 (girgis2023thesis), calibrated numerically. What
    shuffled levels cost adds up as their squares while they are small, so the best shares are as
    w_k^{1/2}, where the local model has w_k^{2/3}.
    """
    make = linf_of_level(dimension, samples, levels, radius)
    return shuffled_randomizer(make, clients, epsilon, delta)


def linf_of_level(
    dimension: int, samples: int, levels: int, radius: float = 1.0
) -> Callable[[float], LInfRandomizer]:
    """The randomizer of `shuffled_linf` as a function of ε₀."""

    def make(epsilon0: float) -> LInfRandomizer:
        shares = _shuffled_shares(epsilon0 / samples, levels)
        return LInfRandomizer(
            dimension, epsilon0, radius, samples, levels, shared=False, shares=shares
        )

    return make


def shuffled_l2(
    dimension: int,
    clients: int,
    epsilon: float,
    delta: float,
    *,
    samples: int,
    redundancy: float = 4.0,
    radius: float = 1.0,
    seed: int = 0,
) -> ShuffledMean:
    """One bit of each of s Kashin coefficients, shuffled: the ℓ2 scheme of that model.

    Source: Algorithm 3.6.1, Theorem 3.6.2 and Remark 3.6.1 (girgis2023thesis), calibrated
    numerically. The error falls as K², which is 2.5 for four coefficients a coordinate.
    A ``redundancy`` of at most 1 is a rotation, clipped.
    """
    make = l2_of_level(dimension, samples, redundancy, radius, seed)
    return shuffled_randomizer(make, clients, epsilon, delta)


def l2_of_level(
    dimension: int, samples: int, redundancy: float = 4.0, radius: float = 1.0, seed: int = 0
) -> Callable[[float], L2Randomizer]:
    """The randomizer of `shuffled_l2` as a function of ε₀."""
    if redundancy <= 1:
        bound = CLIP * radius / math.sqrt(dimension)
        inner = LInfRandomizer(dimension, 1.0, bound, samples)
        some = L2Randomizer(inner, CosineRotation(dimension, seed), radius)
    else:
        width = samples * math.ceil(redundancy * dimension / samples)
        some = L2Randomizer.kashin(dimension, 1.0, radius, width=width, samples=samples, seed=seed)

    def make(epsilon0: float) -> L2Randomizer:
        return replace(some, inner=replace(some.inner, epsilon=epsilon0))

    return make


def _shuffled_shares(epsilon: float, levels: int) -> tuple[float, ...]:
    roots = np.sqrt(level_weights(levels))
    return tuple(float(share) for share in epsilon * roots / roots.sum())
