"""Means of n clients' vectors, from one randomized message of each client.

`collect_mean` returns a `MeanTally` of messages; `estimate_mean` computes a `MeanEstimate` with
standard errors from a tally. `turnout.estimation.private` also uses `sampling_bounds` and
`project_ball`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.estimation.tallies import project_simplex
from turnout.randomizers.vectors import BinaryVectorRandomizer, VectorRandomizer
from turnout.randomness import Source

_BLOCK_NUMBERS = 2**21  # coordinates of clients that `collect_mean` holds at once, 16 MiB
_SAMPLED = 2**8  # messages of a block from which the variance of messages is computed
_FEW_COORDINATES = 32  # largest dimension with a variance of each coordinate


@shows_shapes()
@dataclass(frozen=True, eq=False)
class MeanTally:
    """Sum of the vectors that messages encode, and the number of messages; tallies can be added.

    Attributes:
        randomizer: the randomizer of all messages.
        total: sum of the encoded vectors, float64, in the randomizer's own coordinates.
        clients: number of messages in the tally.
        moments: for each coordinate j, the sums of y_j and of y_j² over the vectors y that messages
            encode, shape (2, d). The sums are extrapolated from some messages of each block.

    Raises:
        ParameterError: ``clients`` is negative.
    """

    randomizer: VectorRandomizer
    total: FloatArray
    clients: int
    moments: FloatArray

    def __post_init__(self) -> None:
        checks.count(0, clients=self.clients)

    @classmethod
    def of(cls, randomizer: VectorRandomizer, messages: NDArray, first: int = 0) -> MeanTally:
        """Tally of the messages of consecutive clients.

        Args:
            randomizer: the randomizer of all messages.
            messages: result of the randomizer's ``encode`` or ``unpack``, shape (n, …).
            first: number of the first client.

        Raises:
            ParameterError: the messages are not of this randomizer.
        """
        total = randomizer.total(messages, first)
        return cls(randomizer, total, len(messages), _moments(randomizer, messages, first))

    def __add__(self, other: MeanTally) -> MeanTally:
        """Sum of two tallies, of disjoint groups of clients.

        Raises:
            ParameterError: the tallies have different randomizers.
        """
        if self.randomizer != other.randomizer:
            raise ParameterError(
                "randomizer",
                other.randomizer,
                f"{self.randomizer}, the randomizer of the other tally",
            )
        return MeanTally(
            self.randomizer,
            self.total + other.total,
            self.clients + other.clients,
            self.moments + other.moments,
        )


def _moments(randomizer: VectorRandomizer, messages: NDArray, first: int) -> FloatArray:
    """Estimated sums of y_j and of y_j² over a block, (2, d), from evenly spaced messages."""
    many = max(_SAMPLED * _FEW_COORDINATES // max(randomizer.dimension, _FEW_COORDINATES), 2)
    places = np.unique(np.linspace(0, len(messages) - 1, many).astype(np.int64))
    found = np.zeros((2, randomizer.dimension))
    for place in places.tolist() if len(messages) else ():
        alone = randomizer.total(messages[place : place + 1], first + place)
        vector = randomizer.mean(alone, 1)
        found += np.stack([vector, vector**2])
    return found * (len(messages) / max(len(places), 1))


@dataclass(frozen=True, eq=False)
class MeanEstimate:
    """Estimated mean of the clients' vectors, with standard errors and privacy.

    Attributes:
        value: estimated mean, unbiased except for the clipping of the randomizer, shape (d,).
        clients: n.
        moments: means of y_j and y_j² over the sampled messages, shape (2, d).
    """

    randomizer: VectorRandomizer
    value: FloatArray
    clients: int
    moments: FloatArray

    unit = "client"
    """The unit that ε protects: one client, its whole message."""
    trust = "local"
    """The trust model: local; the message is private on its own."""
    relation = "replace-one"
    """The neighbouring relation: the client's vector against any other vector."""

    @property
    def epsilon(self) -> float:
        """Pure local privacy level ε₀ of a client's message; δ is 0."""
        return self.randomizer.epsilon0

    @property
    def bits(self) -> int:
        """Total number of bits that all clients sent, without the bits of public randomness."""
        return self.clients * self.randomizer.message_bits

    @property
    def mse_bound(self) -> float:
        """Upper bound on E‖value − mean‖₂² over all possible vectors, clipping included."""
        return self.randomizer.mse_bound(self.clients)

    @property
    def noise_error(self) -> float:
        """Upper bound on the standard error of a coordinate from privacy noise alone.

        The error is that of the mean of *these* clients: the root of `worst_squared_error`/(nd),
        without the error of clipping. For ℓ2 randomizers the bound is on the root mean square over
        coordinates.
        """
        variance = self.randomizer.worst_squared_error / self.clients
        return math.sqrt(variance / self.randomizer.dimension)

    @property
    def population_errors(self) -> FloatArray:
        """Standard errors for a population's mean, from noise and sampling, shape (d,).

        The clients are a simple random sample of a large population. Messages vary by the noise
        *and* by the sampling, so the variance of messages divided by n covers both, and nothing but
        messages is read. The errors are never below `noise_error`. With more than 32 coordinates
        all errors are equal to the root mean square over coordinates, as the variance is computed
        from a part of the messages.
        """
        spread = np.maximum(self.moments[1] - self.moments[0] ** 2, 0.0)
        if spread.size > _FEW_COORDINATES:
            spread = np.full(spread.size, spread.mean())
        errors = np.sqrt(spread / max(self.clients - 1, 1))
        return np.maximum(errors, self.noise_error)

    @property
    def projected(self) -> FloatArray:
        """Vector, (d,), nearest to ``value`` in the ball of possible means; a biased estimate.

        In ℓ2 the vector is never further from the true mean than ``value``.
        """
        if isinstance(self.randomizer, BinaryVectorRandomizer):
            return np.clip(self.value, 0.0, 1.0)
        return project_ball(self.value, self.randomizer.norm, self.randomizer.radius)

    def __str__(self) -> str:
        """One-line text with the size and the privacy of the estimate."""
        return (
            f"mean of vectors of {self.randomizer.dimension} numbers among {self.clients:,} "
            f"clients, ±{self.noise_error:.3g} a number (noise alone); ε = {self.epsilon:g} (pure, "
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
    """Tally of one message for each vector, made block by block, to simulate clients and server.

    The messages of a block are summed and then discarded.

    Args:
        randomizer: randomizer of all clients.
        values: vectors, shape (n, d), n at least 1; a memory-mapped array is read block by block.
        source: source of all private randomness.
        first: number of the first client.
        block_clients: number of clients whose messages are in memory at once; None chooses blocks
            of about 16 MiB of vectors.

    Raises:
        ParameterError: there is no vector, or ``block_clients`` is below 1.
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
    """Mean with standard errors, from a tally of at least one message.

    Raises:
        ParameterError: the tally has no message.

    >>> from turnout.randomizers.vectors import SphericalCode
    >>> from turnout.randomness import SimulationStreams
    >>> held = np.tile([0.6, 0.8], (20_000, 1))
    >>> randomizer = SphericalCode(2, epsilon=2.0, code_bits=3)
    >>> source = SimulationStreams(1).source("clients")
    >>> estimate = estimate_mean(collect_mean(randomizer, held, source))
    >>> bool(np.all(abs(estimate.value - [0.6, 0.8]) < 5 * estimate.noise_error))
    True
    """
    checks.count(clients=tally.clients)
    value = tally.randomizer.mean(tally.total, tally.clients)
    return MeanEstimate(tally.randomizer, value, tally.clients, tally.moments / tally.clients)


def sampling_bounds(
    value: FloatArray, noise_errors: FloatArray, norm: float, radius: float, clients: float
) -> FloatArray:
    """Estimates of upper bounds on the standard errors from sampling n vectors, shape (d,).

    The bounds are computed from public numbers and the estimate only. A random number in [−r, r]
    with mean μ has variance at most r² − μ² (Bhatia and Davis 2000). A random vector with
    ‖x‖₂ ≤ r and mean μ has a sum of coordinate variances of at most r² − ‖μ‖₂².

    Args:
        value: the estimated mean, shape (d,).
        noise_errors: standard errors of ``value``, whose squares are subtracted from the squares of
            ``value``, shape (d,).
        norm: norm that bounds the vectors: 1, 2 or infinity.
        radius: r, the bound, above 0.
        clients: n, or a private estimate of n, above 0.

    Returns:
        Bounds, shape (d,): in ℓ∞ a bound for each coordinate, in ℓ1 and ℓ2 the root mean square.
    """
    squares = value**2 - noise_errors**2
    if norm == math.inf:
        return np.sqrt((radius**2 - np.clip(squares, 0.0, radius**2)) / clients)
    left = radius**2 - min(max(float(squares.sum()), 0.0), radius**2)
    return np.full(value.size, math.sqrt(left / (value.size * clients)))


def project_ball(vector: FloatArray, norm: float, radius: float) -> FloatArray:
    """Vector nearest to ``vector`` in ℓ2 whose ℓ_norm norm is at most ``radius``.

    Args:
        vector: shape (d,).
        norm: 1, 2 or infinity.
        radius: radius of the ball, above 0.

    Raises:
        ParameterError: the radius is not above 0, or the norm is not 1, 2 or infinity.

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
