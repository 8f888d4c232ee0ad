"""Means of clients with many samples each, where ε₀ protects all samples of a client together.

`UserLevelMean` is a scheme of two messages, `UserLevelEstimate` the result. `concentration_radius`
and `wrong_bin_chance` bound the probabilities that the scheme fails.

Notation
    n, m    number of clients, and of samples of each; y_i the mean of a client's samples
    σ       `deviation`: samples are σ²-sub-Gaussian about a common mean, in each coordinate
    γ       `chance`: bound on the probability that a y_i is further than τ from the common mean
    τ       `radius`: σ·√(2 ln(2nd/γ)/m)
    B       `bound`: samples lie in [−B, B]^d; k = ⌈B/τ⌉ bins of width 2τ cover [−B, B]
    C       (e^ε + 1)/(e^ε − 1), with the ε of the first message

In a first message every client reports the bin of y_i, and the server selects the most frequent
bin. All y_i are then within 3τ of the middle of this bin, so in a second message the client sends
y_i clipped to this range, where the noise is proportional to τ and not to B. The two messages of a
client together are ε₀-private for *all* its samples, for any samples: only the accuracy depends on
σ and γ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import bisected
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation.frequencies import estimate_frequencies
from turnout.estimation.means import MeanEstimate, MeanTally, collect_mean, estimate_mean
from turnout.estimation.tallies import FrequencyTally
from turnout.randomizers import OneBitHadamard
from turnout.randomizers.interface import level_above
from turnout.randomizers.vectors import LInfRandomizer
from turnout.randomizers.vectors.interface import ratio_of_flips
from turnout.randomness import Source

_HALVINGS = 60
_LARGEST_SHARE = 0.9  # largest share of ε₀ for the first message


def concentration_radius(
    deviation: float, samples: int, clients: int, chance: float, dimension: int = 1
) -> float:
    """Radius τ within which all clients' means lie with probability at least 1 − γ.

    Source: Section 3.7 (girgis2023thesis), where √2 is missing: with 1000 clients and γ = 0.01 the
    thesis' radius is exceeded with probability 0.38.

    Args:
        deviation: σ, above 0, in the unit of the samples.
        samples: m, at least 1.
        clients: n, at least 1.
        chance: γ, in (0, 1).
        dimension: d, at least 1; τ is a distance in each coordinate.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.positive(deviation=deviation)
    checks.count(samples=samples, clients=clients, dimension=dimension)
    checks.open_unit(chance=chance)
    return deviation * math.sqrt(2 * math.log(2 * clients * dimension / chance) / samples)


def wrong_bin_chance(epsilon: float, bins: int, clients: int) -> float:
    """Upper bound on the probability that an empty bin is selected, if at most two bins are in use.

    One of the two bins has at least n/2 clients. The lead of this bin over an empty bin is a sum
    with one term for each client. The terms have means of at least ½ on average, variances of at
    most 2C², and values from −2C to 2C. Bernstein's inequality and a union bound over bins give the
    result. The thesis uses Hoeffding's inequality, with the bound 2k·exp(−n/(200C²)), which needs
    12 times as many clients for small ε.

    Args:
        epsilon: ε of one client's message about its bin.
        bins: k.
        clients: number n of clients that report this coordinate.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    checks.positive(epsilon=epsilon)
    checks.count(bins=bins, clients=clients)
    c = 1 / math.tanh(epsilon / 2)
    exponent = clients / 8 / (2 * c**2 + (2 * c + 0.5) / 6)
    return min(1.0, max(bins - 1, 0) * math.exp(-exponent))


@dataclass(frozen=True)
class UserLevelMean:
    """Two-message scheme for a mean: a private range first, then the mean of clipped values.

    Source: Algorithms 3.7.1–3.7.4 (girgis2023thesis), Theorem 3.7.1, with τ corrected. Scalars
    have d = 1. For vectors the thesis runs the scalar scheme on each coordinate with ε₀/d. In this
    class client i reports the range of coordinate i mod d alone, with the whole budget of the first
    message, and the second message covers all coordinates. ε₀ is not halved: the first message gets
    the least budget for which a wrong range has probability at most γ, the second gets the rest.

    Guarantees:
        `epsilon0`-private for all samples of one client (local, replacement, δ = 0).
        With probability at least 1 − `failure` no mean y_i is clipped. Then the estimate of the
        mean of the y_i is unbiased, with a mean squared error of at most `mse_bound`.

    Attributes:
        dimension: d.
        epsilon: requested ε₀ of both messages together.
        bound: B, above 0.
        deviation: σ, above 0.
        samples: m, at least 1.
        clients: n, at least d.
        chance: γ, in (0, 1).
        public_seed: seed of the public coordinates of the second message; None: each message
            contains its coordinates.

    Raises:
        ParameterError: a value is outside its domain.
    """

    dimension: int
    epsilon: float
    bound: float
    deviation: float
    samples: int
    clients: int
    chance: float = 0.01
    public_seed: int | None = None

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon, bound=self.bound)
        if self.clients < self.dimension:
            raise ParameterError("clients", self.clients, "at least one client for each coordinate")
        self.radius  # noqa: B018 checks the other parameters

    @cached_property
    def radius(self) -> float:
        """Concentration radius τ of the clients' means, in the unit of the samples."""
        return concentration_radius(
            self.deviation, self.samples, self.clients, self.chance, self.dimension
        )

    @property
    def bins(self) -> int:
        """Number of bins k; 1 if a single range suffices and the first message is omitted."""
        return 1 if self.bound <= 3 * self.radius else math.ceil(self.bound / self.radius)

    @cached_property
    def range_epsilon(self) -> float:
        """Budget ε of the first message; 0 if the first message is omitted.

        Raises:
            UnsupportedError: there are too few clients for a private range.
        """
        if self.bins == 1:
            return 0.0

        def seldom(epsilon: float) -> bool:
            return self._wrong_bins(epsilon) <= self.chance

        most = _LARGEST_SHARE * self.epsilon
        if self._wrong_bins(most) > self.chance:
            raise UnsupportedError(
                f"{self.clients} clients are too few for the range at ε₀ = {self.epsilon:g} "
                f"with failure chance {self.chance:g}: use more clients, or a larger ε₀ or chance"
            )
        return bisected(seldom, 0.0, most, halvings=_HALVINGS).holding

    def _wrong_bins(self, epsilon: float) -> float:
        if self.bins == 1:
            return 0.0
        if epsilon < 1e-12:
            return 1.0
        group = self.clients // self.dimension
        return min(1.0, self.dimension * wrong_bin_chance(epsilon, self.bins, group))

    @property
    def failure(self) -> float:
        """Upper bound on the probability that a mean is clipped: γ, plus that of a wrong bin.

        Raises:
            UnsupportedError: there are too few clients for a private range.
        """
        return min(1.0, self.chance + self._wrong_bins(self.range_epsilon))

    @property
    def range_randomizer(self) -> OneBitHadamard | None:
        """Randomizer of the first message; None if the first message is omitted."""
        return None if self.bins == 1 else OneBitHadamard(self.range_epsilon, max(self.bins, 2))

    @cached_property
    def mean_randomizer(self) -> LInfRandomizer:
        """Randomizer of the second message, which encodes y_i minus the middle of the range."""
        left = math.nextafter(self.epsilon - self.range_epsilon, 0.0)
        reach = self.bound if self.bins == 1 else 3 * self.radius
        return LInfRandomizer.best(self.dimension, left, reach, public_seed=self.public_seed)

    @property
    def epsilon0(self) -> float:
        """Joint ε₀ of a client's two messages, rounded up by less than an ulp."""
        first = self.range_randomizer
        bits = self.mean_randomizer.bits
        second = ratio_of_flips(bits.flips, bits.samples)
        return level_above(second if first is None else first.ratio * second)

    @property
    def message_bits(self) -> int:
        """Total number of bits in the two messages of a client."""
        first = self.range_randomizer
        return self.mean_randomizer.message_bits + (0 if first is None else first.message_bits)

    @property
    def mse_bound(self) -> float:
        """Upper bound on E‖estimate − mean y_i‖² if no client's mean is clipped."""
        return self.mean_randomizer.mse_bound(self.clients)

    @property
    def middles(self) -> FloatArray:
        """Middles of the bins, shape (k,), in the unit of the samples."""
        if self.bins == 1:
            return np.zeros(1)
        numbers = np.arange(self.bins, dtype=np.float64)
        return np.asarray(self.radius * (2 * numbers + 1) - self.bound, dtype=np.float64)

    def range_messages(
        self, means: ArrayLike, source: Source, first: int = 0
    ) -> list[tuple[int, NDArray[np.int64]]]:
        """First messages of a block of clients: for each coordinate, the messages about its range.

        Args:
            means: y_i, shape (n, d); clipped to ±B.
            source: source of all private randomness.
            first: number of the block's first client.

        Returns:
            Pairs (coordinate, messages), with one int64 message from each client that reports this
            coordinate; an empty list if a single range suffices, so that there is no first message.

        Raises:
            ParameterError: ``means`` has another shape, or contains NaN.
        """
        randomizer = self.range_randomizer
        vectors = self._checked(means)
        if randomizer is None:
            return []
        # Bin of each mean: bins have width 2τ and start at −B; the end B is in the last bin.
        held = np.floor(
            (np.clip(vectors, -self.bound, self.bound) + self.bound) / (2 * self.radius)
        )
        bins = np.minimum(held.astype(np.int64), self.bins - 1)
        # A client reports one coordinate only, its number modulo d, with the whole budget ε.
        found = []
        for coordinate in range(self.dimension):
            mine = (np.arange(first, first + len(vectors)) % self.dimension) == coordinate
            found.append((coordinate, randomizer.encode(bins[mine, coordinate], source)))
        return found

    def centre(self, messages: list[tuple[int, NDArray[np.int64]]]) -> FloatArray:
        """Middle of the fullest bin in each coordinate, shape (d,).

        Args:
            messages: results of `range_messages` for all blocks of clients, concatenated.
        """
        randomizer = self.range_randomizer
        if randomizer is None:
            return np.zeros(self.dimension)
        tallies = [FrequencyTally.zero(randomizer) for _ in range(self.dimension)]
        for coordinate, sent in messages:
            tallies[coordinate] += FrequencyTally.of(randomizer, sent)
        full = [int(np.argmax(estimate_frequencies(tally, "raw").raw)) for tally in tallies]
        return self.middles[np.array(full)]

    def mean_messages(
        self, means: ArrayLike, centre: FloatArray, source: Source, first: int = 0
    ) -> NDArray[np.int64]:
        """Second messages, shape (n, numbers of a message): y_i minus ``centre``, clipped to ±3τ.

        If the first message is omitted, y_i is clipped to ±B instead.

        Args:
            means: y_i, shape (n, d).
            centre: result of `centre`, shape (d,).
            source: source of all private randomness.
            first: number of the block's first client.

        Raises:
            ParameterError: ``means`` has another shape, or contains NaN.
        """
        return self.mean_randomizer.encode(self._offsets(means, centre), source, first)

    def _offsets(self, means: ArrayLike, centre: FloatArray) -> FloatArray:
        reach = self.mean_randomizer.radius
        return np.clip(self._checked(means) - centre, -reach, reach)

    def _checked(self, means: ArrayLike) -> FloatArray:
        vectors = np.asarray(means, dtype=np.float64)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension or np.isnan(vectors).any():
            raise ParameterError("means", vectors.shape, f"shape (clients, {self.dimension})")
        return vectors

    def estimate(self, means: ArrayLike, source: Source) -> UserLevelEstimate:
        """Estimate from both messages of all clients, for simulation.

        Args:
            means: y_i, shape (n, d).
            source: source of all private randomness.

        Raises:
            ParameterError: ``means`` has another shape, or contains NaN.
        """
        vectors = self._checked(means)
        centre = self.centre(self.range_messages(vectors, source))
        tally = collect_mean(self.mean_randomizer, self._offsets(vectors, centre), source)
        return self.finish(centre, tally)

    def finish(self, centre: FloatArray, tally: MeanTally) -> UserLevelEstimate:
        """Estimate from the result of `centre`, shape (d,), and the tally of second messages."""
        return UserLevelEstimate(self, centre, estimate_mean(tally))


@dataclass(frozen=True, eq=False)
class UserLevelEstimate:
    """Estimated mean of the clients' means, with its standard error and its privacy.

    Attributes:
        scheme: the scheme of the messages.
        centre: middle of the range, shape (d,).
        offset: estimate of the mean of y_i minus ``centre``, from the second messages.
    """

    scheme: UserLevelMean
    centre: FloatArray
    offset: MeanEstimate

    unit = "client, with all its samples"
    """The unit that ε protects."""
    trust = "local"
    """The trust model: local; the messages are private on their own."""
    relation = "replace-one"
    """The neighbouring relation: all of a client's samples against any other samples."""

    @property
    def value(self) -> FloatArray:
        """Estimated mean, shape (d,)."""
        return self.centre + self.offset.value

    @property
    def epsilon(self) -> float:
        """Joint pure local ε₀ of a client's two messages; δ is 0."""
        return self.scheme.epsilon0

    @property
    def noise_error(self) -> float:
        """Upper bound on a coordinate's standard error from noise, if no mean is clipped."""
        return self.offset.noise_error

    def __str__(self) -> str:
        """One-line text with the size and the privacy of the estimate."""
        return (
            f"mean over {self.offset.clients:,} clients of {self.scheme.samples:,} samples each, "
            f"±{self.noise_error:.3g} a number (noise alone) but for a chance of "
            f"{self.scheme.failure:.2g}; ε = {self.epsilon:g} (pure, {self.relation}), unit: one "
            f"{self.unit}, trust: {self.trust}; {self.scheme.message_bits} bits a client"
        )
