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
from dataclasses import dataclass

import numpy as np

from turnout.accounting.curves import Direction, Side
from turnout.accounting.runs import run_epsilon
from turnout.accounting.shuffling import BlanketBlock, clones_pair
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.levels import LARGEST_EPSILON
from turnout.randomizers.vectors import (
    BinaryVectorRandomizer,
    CosineRotation,
    L1Randomizer,
    L2Randomizer,
    LInfRandomizer,
    VectorRandomizer,
)
from turnout.randomizers.vectors.flips import epsilon_of_flips
from turnout.randomizers.vectors.l2 import CLIP
from turnout.randomizers.vectors.sampled_bits import SampledBits, level_weights

_STEPS = 12  # of the search for the local level, each halves its logarithm's interval


@dataclass(frozen=True)
class ShuffledMean:
    """A randomizer whose messages are shuffled, and what that is worth.

    Attributes:
        randomizer: what each client uses.
        clients: n; all of them send.
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
        return sum(count for _, count in message_levels(self.randomizer))

    @property
    def mse_bound(self) -> float:
        """Largest E‖estimate − mean‖₂² over what the clients hold."""
        return self.randomizer.worst_squared_error / self.clients

    def __str__(self) -> str:
        """What is sent, and at which privacy."""
        return (
            f"{self.messages} messages of {self.clients:,} clients, {self.randomizer.message_bits} "
            f"bits a client; ε = {self.epsilon:g} at δ = {self.delta:g} ({self.relation}), unit: "
            f"one {self.unit}, trust: {self.trust}; without the shuffler ε₀ = "
            f"{self.randomizer.epsilon0:g} (pure, local)"
        )


def message_levels(randomizer: VectorRandomizer) -> list[tuple[float, int]]:
    """ε_j of a client's messages, and how many have it.

    Raises:
        UnsupportedError: a randomizer whose message is one piece of unknown parts.
    """
    if isinstance(randomizer, L1Randomizer):
        return [(randomizer.epsilon0, 1)]
    if isinstance(randomizer, L2Randomizer):
        randomizer = randomizer.inner
    if isinstance(randomizer, LInfRandomizer | BinaryVectorRandomizer):
        bits: SampledBits = randomizer.bits
        if bits.shared:
            return [(epsilon_of_flips(bits.flips), bits.samples)]
        return [(epsilon_of_flips([p]), bits.samples) for p in bits.flips]
    raise UnsupportedError(f"no messages are known of {type(randomizer).__name__}")


def shuffled_epsilon(randomizer: VectorRandomizer, clients: int, delta: float) -> float:
    """ε of all shuffled messages together.

    Source: clones of Feldman, McMillan and Talwar 2021 (feldman2021clones), Theorem 3.1,
    numerically, and composed numerically over the shufflers. The closed forms of Theorems 3.3.2,
    3.5.2 and 3.6.2 (girgis2023thesis) are wrong by constants in either direction (errata, 5–7).

    Args:
        randomizer: what each client uses, with private coordinates.
        clients: n.
        delta: δ in (0, 1).

    Returns:
        ε under replace-one, never below the true one and never above ε₀.

    >>> messages = BinaryVectorRandomizer(10, 5.0, samples=10)
    >>> shuffled_epsilon(messages, 100_000, 1e-6) < 0.1
    True
    """
    checks.count(clients=clients)
    checks.open_unit(delta=delta)
    run = [
        (BlanketBlock(clones_pair(level), clients), count)
        for level, count in message_levels(randomizer)
    ]
    amplified = run_epsilon(run, Direction.REMOVE, Side.UPPER, delta, 0)
    return min(amplified, randomizer.epsilon0)


def shuffled_randomizer(
    make: Callable[[float], VectorRandomizer], clients: int, epsilon: float, delta: float
) -> ShuffledMean:
    """The randomizer with the least noise whose shuffled messages are (ε, δ)-private.

    Args:
        make: gives the randomizer at a local level ε₀; more ε₀ is less noise.
        clients: n.
        epsilon: ε > 0, of all messages together.
        delta: δ in (0, 1).

    Returns:
        One on the private side of ε; within about 0.1 % of it where shuffling helps.
    """
    checks.positive(epsilon=epsilon)
    best = make(epsilon)
    reached = shuffled_epsilon(best, clients, delta)
    low, high = math.log(epsilon), math.log(epsilon) + 1.0
    while True:
        trial = _tried(make, math.exp(high))
        found = math.inf if trial is None else shuffled_epsilon(trial, clients, delta)
        if trial is None or found > epsilon:
            break
        best, reached, low, high = trial, found, high, high + 1.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        trial = _tried(make, math.exp(middle))
        found = math.inf if trial is None else shuffled_epsilon(trial, clients, delta)
        if trial is None or found > epsilon:
            high = middle
        else:
            best, reached, low = trial, found, middle
    return ShuffledMean(best, clients, delta, reached)


def _tried(make: Callable[[float], VectorRandomizer], epsilon0: float) -> VectorRandomizer | None:
    """The randomizer at a local level; None where one bit would get too much of it."""
    try:
        return make(epsilon0)
    except ParameterError as error:
        if error.name == "epsilon" and epsilon0 > LARGEST_EPSILON:
            return None
        raise


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

    Args:
        dimension: d.
        clients: n.
        epsilon: ε.
        delta: δ.
        samples: s, coordinates a level.
        levels: m.
        radius: largest |x_j|.
    """

    def make(epsilon0: float) -> LInfRandomizer:
        shares = _shuffled_shares(epsilon0 / samples, levels)
        return LInfRandomizer(
            dimension, epsilon0, radius, samples, levels, shared=False, shares=shares
        )

    return shuffled_randomizer(make, clients, epsilon, delta)


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

    Args:
        dimension: d.
        clients: n.
        epsilon: ε.
        delta: δ.
        samples: s, the messages of a client.
        redundancy: coefficients a coordinate; at most 1: a rotation, clipped.
        radius: largest ‖x‖₂.
        seed: of the frame.
    """

    def make(epsilon0: float) -> L2Randomizer:
        if redundancy <= 1:
            bound = CLIP * radius / math.sqrt(dimension)
            inner = LInfRandomizer(dimension, epsilon0, bound, samples)
            return L2Randomizer(inner, CosineRotation(dimension, seed), radius)
        width = samples * math.ceil(redundancy * dimension / samples)
        return L2Randomizer.kashin(
            dimension, epsilon0, radius, width=width, samples=samples, seed=seed
        )

    return shuffled_randomizer(make, clients, epsilon, delta)


def _shuffled_shares(epsilon: float, levels: int) -> tuple[float, ...]:
    roots = np.sqrt(level_weights(levels))
    return tuple(float(share) for share in epsilon * roots / roots.sum())
