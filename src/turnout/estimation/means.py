"""Means of vectors among n clients, from one randomized message a client."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation.simplex import project_simplex
from turnout.randomizers.vectors import BinaryVectorRandomizer, VectorRandomizer
from turnout.randomness import Source

FloatArray = NDArray[np.float64]
_BLOCK_NUMBERS = 2**21  # coordinates of clients that `collect_mean` holds at once, 16 MiB


@dataclass(frozen=True, eq=False)
class MeanTally:
    """The sum of what messages stand for, and how many there were: a commutative monoid.

    Attributes:
        randomizer: what the clients used.
        total: float64, in the randomizer's own coordinates.
        clients: how many messages went into it.
    """

    randomizer: VectorRandomizer
    total: FloatArray
    clients: int

    def __post_init__(self) -> None:
        checks.count(0, clients=self.clients)

    @classmethod
    def of(cls, randomizer: VectorRandomizer, messages: NDArray, first: int = 0) -> MeanTally:
        """The tally of neighbouring clients' messages.

        Args:
            randomizer: what the clients used.
            messages: as `VectorRandomizer.encode` or ``unpack`` gave them.
            first: number of the first client; matters to public randomness.

        Raises:
            ParameterError: these are no messages of this randomizer.
        """
        return cls(randomizer, randomizer.total(messages, first), len(messages))

    def __add__(self, other: MeanTally) -> MeanTally:
        """The tally of both groups, which must not share a client."""
        if self.randomizer != other.randomizer:
            raise ParameterError("randomizer", other.randomizer, f"{self.randomizer}, as before")
        return MeanTally(self.randomizer, self.total + other.total, self.clients + other.clients)


@dataclass(frozen=True, eq=False)
class MeanEstimate:
    """An estimated mean, and how far to trust it.

    Attributes:
        randomizer: what the clients used.
        value: unbiased (but for what the randomizer clips), shape (d,).
        clients: n.
    """

    randomizer: VectorRandomizer
    value: FloatArray
    clients: int

    unit = "client"
    """Whom ε protects: one client, her whole message."""
    trust = "local"
    """Whom she need not trust: anybody; her message is private on its own."""
    relation = "replace-one"
    """What ε compares: her vector with any other vector."""

    @property
    def epsilon(self) -> float:
        """Pure local privacy level ε₀ of a client's message; δ is 0."""
        return self.randomizer.epsilon0

    @property
    def bits(self) -> int:
        """Bits that all clients sent, public randomness excluded."""
        return self.clients * self.randomizer.message_bits

    @property
    def mse_bound(self) -> float:
        """Largest E‖value − mean‖₂² over what the clients hold."""
        return self.randomizer.worst_squared_error / self.clients

    @property
    def standard_error(self) -> float:
        """Of a coordinate, at most: the root of `mse_bound` over d.

        For ℓ2 randomizers it is the root mean square over coordinates.
        """
        return math.sqrt(self.mse_bound / self.randomizer.dimension)

    @property
    def projected(self) -> FloatArray:
        """The nearest vector that can be a mean: of norm at most the radius. Not unbiased.

        In ℓ2 never further from the truth than ``value``.
        """
        if isinstance(self.randomizer, BinaryVectorRandomizer):
            return np.clip(self.value, 0.0, 1.0)
        return project_ball(self.value, self.randomizer.norm, self.randomizer.radius)

    def __str__(self) -> str:
        """What was estimated, from how much, at which privacy."""
        return (
            f"mean of vectors of {self.randomizer.dimension} numbers among {self.clients:,} "
            f"clients, ±{self.standard_error:.3g} a number; ε = {self.epsilon:g} (pure, "
            f"{self.relation}), unit: one {self.unit}, trust: {self.trust}; "
            f"{self.randomizer.message_bits} bits a client, public randomness: "
            f"{self.randomizer.public_randomness}"
        )


def collect_mean(
    randomizer: VectorRandomizer,
    values: ArrayLike,
    source: Source,
    first: int = 0,
    block_clients: int | None = None,
) -> MeanTally:
    """The tally of one message for each vector, made block by block.

    This plays both sides, for simulation: the messages of a block exist, are summed and go.

    Args:
        randomizer: what the clients use.
        values: shape (n, d), n at least 1; a memory-mapped array is read block by block.
        source: of what is private.
        first: number of the first client.
        block_clients: how many clients' messages exist at once; None: about 16 MiB of vectors.
    """
    array = np.asanyarray(values)
    step = block_clients or max(1, _BLOCK_NUMBERS // max(1, randomizer.dimension))
    checks.count(block_clients=step, clients=len(array))
    tallies = None
    for start in range(0, len(array), step):
        messages = randomizer.encode(array[start : start + step], source, first + start)
        tally = MeanTally.of(randomizer, messages, first + start)
        tallies = tally if tallies is None else tallies + tally
    assert tallies is not None
    return tallies


def estimate_mean(tally: MeanTally) -> MeanEstimate:
    """The mean with its error bar from the clients' messages.

    Args:
        tally: of at least one client.

    >>> from turnout.randomizers.vectors import SphericalCode
    >>> from turnout.randomness import SimulationStreams
    >>> held = np.tile([0.6, 0.8], (20_000, 1))
    >>> randomizer = SphericalCode(2, epsilon=2.0, code_bits=3)
    >>> source = SimulationStreams(1).source("clients")
    >>> estimate = estimate_mean(collect_mean(randomizer, held, source))
    >>> bool(np.all(abs(estimate.value - [0.6, 0.8]) < 5 * estimate.standard_error))
    True
    """
    checks.count(clients=tally.clients)
    value = tally.randomizer.mean(tally.total, tally.clients)
    return MeanEstimate(tally.randomizer, value, tally.clients)


def project_ball(vector: FloatArray, norm: float, radius: float) -> FloatArray:
    """The vector of ℓ_norm norm at most ``radius`` that is nearest in ℓ2.

    Args:
        vector: shape (d,).
        norm: 1, 2 or infinity.
        radius: above 0.

    >>> project_ball(np.array([3.0, 0.5]), 1, 2.0).tolist()
    [2.0, 0.0]
    """
    checks.positive(radius=radius)
    if norm == math.inf:
        return np.clip(vector, -radius, radius)
    if norm == 2:
        return vector * min(1.0, radius / max(float(np.linalg.norm(vector)), 1e-300))
    if norm == 1:
        if np.abs(vector).sum() <= radius:
            return vector
        return np.sign(vector) * project_simplex(np.abs(vector) / radius) * radius
    raise ParameterError("norm", norm, "1, 2 or infinity")
