"""Means where each client holds many samples, and all of them are protected together.

Notation
    n, m    clients, and samples of each; y_i the mean of its samples
    σ       `deviation`: samples are σ²-sub-Gaussian about a common mean, each coordinate
    γ       `chance` that some y_i may be further than τ from that mean
    τ       `radius`: σ·√(2 ln(2nd/γ)/m)
    B       `bound`: samples lie in [−B, B]^d; k = ⌈B/τ⌉ bins of width 2τ cover that
    C       (e^ε + 1)/(e^ε − 1) of the first message

First every client says which bin holds y_i, and the server picks the bin with most. All y_i are
then within 3τ of its middle, so in a second message the client sends y_i cut to that range, where
noise is as τ and not as B. Its messages together are ε₀-private for *all* its samples, whatever
they are: σ and γ serve accuracy only.
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
_LARGEST_SHARE = 0.9  # of ε that finding the range may take


def concentration_radius(
    deviation: float, samples: int, clients: int, chance: float, dimension: int = 1
) -> float:
    """τ: with probability 1 − γ every client's mean is this near in every coordinate.

    Source: Section 3.7 (girgis2023thesis), where √2 is missing: with 1000 clients and γ = 0.01
    the printed radius is exceeded with probability 0.38.
    """
    checks.positive(deviation=deviation)
    checks.count(samples=samples, clients=clients, dimension=dimension)
    checks.open_unit(chance=chance)
    return deviation * math.sqrt(2 * math.log(2 * clients * dimension / chance) / samples)


def wrong_bin_chance(epsilon: float, bins: int, clients: int) -> float:
    """Bound on the chance that an empty bin wins, where the clients are in two at most.

    One of the two has at least n/2 of them. What a client adds to its lead over an empty bin has
    mean ½ at least, variance 2C² at most and is at most 2C; Bernstein, and a union over bins. The
    print uses Hoeffding: 2k·exp(−n/(200C²)), needing 12 times as many clients for small ε.

    Args:
        epsilon: of one client's message about its bin.
        bins: k.
        clients: n, those who speak of this coordinate.
    """
    checks.positive(epsilon=epsilon)
    checks.count(bins=bins, clients=clients)
    c = 1 / math.tanh(epsilon / 2)
    exponent = clients / 8 / (2 * c**2 + (2 * c + 0.5) / 6)
    return min(1.0, max(bins - 1, 0) * math.exp(-exponent))


@dataclass(frozen=True)
class UserLevelMean:
    """Private range by Hadamard frequencies, projection, mean: two messages a client.

    Source: Algorithms 3.7.1–3.7.4 (girgis2023thesis), Theorem 3.7.1, with τ corrected. A scalar
    is d = 1. For vectors the print runs the scalar scheme on each coordinate, each with ε₀/d; here
    client i speaks of the range of coordinate i mod d alone, with all of that stage's budget, and
    the second message is about all coordinates. ε₀ is not halved: the range gets as little as
    makes a wrong one as unlikely as γ, the mean the rest.

    Guarantees:
        `epsilon0`-private for all samples of one client (local, replacement, δ = 0), for any
        samples. With probability 1 − `failure` no projection changes anything, and then the
        estimate of mean y_i is unbiased, with the error that `mse_bound` states.

    Attributes:
        epsilon: ε₀ asked for, of both messages together.
        public_seed: of public randomness of the second message; None: it is sent.
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
            raise ParameterError("clients", self.clients, "at least one a coordinate")
        self.radius  # noqa: B018 checks the other parameters

    @cached_property
    def radius(self) -> float:
        """τ."""
        return concentration_radius(
            self.deviation, self.samples, self.clients, self.chance, self.dimension
        )

    @property
    def bins(self) -> int:
        """k; 1 if one range holds everything, and then nobody is asked for a bin."""
        return 1 if self.bound <= 3 * self.radius else math.ceil(self.bound / self.radius)

    @cached_property
    def range_epsilon(self) -> float:
        """Budget of the first message; 0 if there is none."""
        if self.bins == 1:
            return 0.0

        def seldom(epsilon: float) -> bool:
            return self._wrong_bins(epsilon) <= self.chance

        most = _LARGEST_SHARE * self.epsilon
        if self._wrong_bins(most) > self.chance:
            raise UnsupportedError(
                f"{self.clients} clients are too few to find the range at ε₀ = {self.epsilon:g} "
                f"but for a chance of {self.chance:g}"
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
        """Bound on the chance that some client's mean is cut: γ and a wrong bin."""
        return min(1.0, self.chance + self._wrong_bins(self.range_epsilon))

    @property
    def range_randomizer(self) -> OneBitHadamard | None:
        """Of the first message: one bit of the bin's Hadamard code, and which."""
        return None if self.bins == 1 else OneBitHadamard(self.range_epsilon, max(self.bins, 2))

    @cached_property
    def mean_randomizer(self) -> LInfRandomizer:
        """Of the second message: what is left of y_i less the middle of the range."""
        left = math.nextafter(self.epsilon - self.range_epsilon, 0.0)
        reach = self.bound if self.bins == 1 else 3 * self.radius
        return LInfRandomizer.best(self.dimension, left, reach, public_seed=self.public_seed)

    @property
    def epsilon0(self) -> float:
        """Exact ε₀ of both messages together, rounded up by less than an ulp."""
        first = self.range_randomizer
        bits = self.mean_randomizer.bits
        second = ratio_of_flips(bits.flips, bits.samples)
        return level_above(second if first is None else first.ratio * second)

    @property
    def message_bits(self) -> int:
        """Bits of both messages."""
        first = self.range_randomizer
        return self.mean_randomizer.message_bits + (0 if first is None else first.message_bits)

    @property
    def mse_bound(self) -> float:
        """Largest E‖estimate − mean y_i‖² where no projection changes anything."""
        return self.mean_randomizer.mse_bound(self.clients)

    @property
    def middles(self) -> FloatArray:
        """Middles of the bins, shape (k,)."""
        if self.bins == 1:
            return np.zeros(1)
        numbers = np.arange(self.bins, dtype=np.float64)
        return np.asarray(self.radius * (2 * numbers + 1) - self.bound, dtype=np.float64)

    def range_messages(
        self, means: ArrayLike, source: Source, first: int = 0
    ) -> list[tuple[int, NDArray[np.int64]]]:
        """First messages by coordinate; ``means`` beyond ±B, shape (n, d), count as ±B."""
        randomizer = self.range_randomizer
        vectors = self._checked(means)
        if randomizer is None:
            return []
        held = np.floor(
            (np.clip(vectors, -self.bound, self.bound) + self.bound) / (2 * self.radius)
        )
        bins = np.minimum(held.astype(np.int64), self.bins - 1)
        found = []
        for coordinate in range(self.dimension):
            mine = (np.arange(first, first + len(vectors)) % self.dimension) == coordinate
            found.append((coordinate, randomizer.encode(bins[mine, coordinate], source)))
        return found

    def centre(self, messages: list[tuple[int, NDArray[np.int64]]]) -> FloatArray:
        """The middle of the fullest bin in each coordinate, shape (d,).

        Args:
            messages: of all clients, as `range_messages` gave them; of several blocks in a row.
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
        """Second messages: y_i less ``centre``, cut to ±3τ."""
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
        """Both rounds with everybody, for simulation, from all clients' y_i, shape (n, d)."""
        vectors = self._checked(means)
        centre = self.centre(self.range_messages(vectors, source))
        tally = collect_mean(self.mean_randomizer, self._offsets(vectors, centre), source)
        return self.finish(centre, tally)

    def finish(self, centre: FloatArray, tally: MeanTally) -> UserLevelEstimate:
        """The estimate from the centre and the tally of second messages."""
        return UserLevelEstimate(self, centre, estimate_mean(tally))


@dataclass(frozen=True, eq=False)
class UserLevelEstimate:
    """An estimated mean of the clients' means, and how far to trust it.

    Attributes:
        centre: of the range, shape (d,).
        offset: the estimated mean of what was sent.
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
        """The estimate, shape (d,)."""
        return self.centre + self.offset.value

    @property
    def epsilon(self) -> float:
        """Pure local privacy level ε₀ of both messages of a client; δ is 0."""
        return self.scheme.epsilon0

    @property
    def noise_error(self) -> float:
        """Bound on a coordinate's error, unless the range was missed (`UserLevelMean.failure`)."""
        return self.offset.noise_error

    def __str__(self) -> str:
        """The estimate as text: its size and its privacy."""
        return (
            f"mean over {self.offset.clients:,} clients of {self.scheme.samples:,} samples each, "
            f"±{self.noise_error:.3g} a number (noise alone) but for a chance of "
            f"{self.scheme.failure:.2g}; ε = {self.epsilon:g} (pure, {self.relation}), unit: one "
            f"{self.unit}, trust: {self.trust}; {self.scheme.message_bits} bits a client"
        )
