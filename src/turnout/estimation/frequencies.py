"""Frequencies of k items among n clients, from one randomized message a client."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.estimation.empirical_bayes import shrink
from turnout.estimation.frequency_intervals import (
    FrequencyIntervals,
    frequency_intervals,
    sampling_errors,
)
from turnout.estimation.frequency_scores import Evidence, evidence
from turnout.estimation.frequency_tallies import FrequencyTally
from turnout.estimation.heavy_hitters import heavy_hitters
from turnout.estimation.simplex import POST_PROCESSING
from turnout.randomizers.interface import FrequencyRandomizer

WAYS = (*POST_PROCESSING, "empirical-bayes")
"""Ways from a raw estimate to frequencies."""


@dataclass(frozen=True, eq=False)
class FrequencyEstimate:
    """Estimated shares of the clients that hold each item, and how far to trust them.

    Attributes:
        frequencies: the estimate, shape (k,).
        post_processing: how it came from `raw` (see `estimate_frequencies`).
    """

    randomizer: FrequencyRandomizer
    evidence: Evidence
    frequencies: NDArray[np.float64]
    post_processing: str

    unit = "client"
    """The unit that ε protects: one client, its whole message."""
    trust = "local"
    """The trust model: local; the message is private on its own."""
    relation = "replace-one"
    """The neighbouring relation: the client's item against any other item."""

    @property
    def clients(self) -> int:
        """Messages in the estimate, n."""
        return self.evidence.clients

    @property
    def epsilon(self) -> float:
        """Pure local privacy level ε₀ of a client's message; δ is 0."""
        return self.randomizer.epsilon0

    @property
    def bits(self) -> int:
        """Bits that all clients sent, public questions excluded."""
        return self.clients * self.randomizer.message_bits

    @cached_property
    def raw(self) -> NDArray[np.float64]:
        """The unbiased estimate, shape (k,); it may be negative and need not sum to 1."""
        shares = self.evidence.sums / self.clients
        return (shares - float(self.randomizer.offset)) / float(self.randomizer.gain)

    @cached_property
    def noise_errors(self) -> NDArray[np.float64]:
        """Standard errors of `raw` about the shares of *these* clients, shape (k,).

        From the privacy noise alone: the variance formula at the projection.
        """
        return np.sqrt(self.randomizer.variance(self._shares, self.clients))

    @cached_property
    def population_errors(self) -> NDArray[np.float64]:
        """Standard errors of `raw` about the shares of a population, shape (k,).

        From noise and sampling: the clients are a simple random sample of a large population.
        """
        return np.hypot(self.noise_errors, sampling_errors(self._shares, self.clients))

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        return POST_PROCESSING["simplex"](self.raw)

    def intervals(self, confidence: float = 0.95, simultaneous: bool = False) -> FrequencyIntervals:
        """Limits, at any n, of the shares of these clients and of their population.

        See `frequency_intervals`.
        """
        return frequency_intervals(self.evidence, confidence, simultaneous)

    def heavy_hitters(self, threshold: float, error: float = 0.05) -> NDArray[np.int64]:
        """Items above ``threshold``; one wrong among them with probability ``error`` at most."""
        return heavy_hitters(self.evidence, threshold, error)

    def __str__(self) -> str:
        """The estimate as text: its size and its privacy."""
        return (
            f"frequencies of {self.randomizer.items} items among {self.clients:,} clients, "
            f"{self.post_processing}; ε = {self.epsilon:g} (pure, {self.relation}), unit: one "
            f"{self.unit}, trust: {self.trust}; {self.randomizer.message_bits} bits a client"
        )


def estimate_frequencies(
    tally: FrequencyTally, post_processing: str = "simplex"
) -> FrequencyEstimate:
    """Frequencies with error bars from the clients' messages.

    Args:
        tally: of at least one client.
        post_processing: "simplex" (the default: in ℓ2 never further from the truth than "raw",
            usually far closer), "empirical-bayes" (closest of all where there are some hundred
            items, without that promise), "clip", "normalise" or "raw".

    Raises:
        ParameterError: nobody's messages, or an unknown post-processing.

    >>> from turnout.estimation import collect
    >>> from turnout.randomizers import HadamardResponse
    >>> from turnout.randomness import SimulationStreams
    >>> randomizer = HadamardResponse(epsilon=1.0, items=3)
    >>> held = np.repeat([0, 1, 2], [600, 300, 100])
    >>> tally = collect(randomizer, held, SimulationStreams(1).source("clients"))
    >>> estimate = estimate_frequencies(tally)
    >>> bool(abs(estimate.frequencies - [0.6, 0.3, 0.1]).max() < 5 * estimate.noise_errors.max())
    True
    """
    checks.count(clients=tally.clients)
    if post_processing not in WAYS:
        expected = f"one of {', '.join(map(repr, WAYS))}"
        raise ParameterError("post_processing", post_processing, expected)
    found = FrequencyEstimate(tally.randomizer, evidence(tally), np.empty(0), post_processing)
    if post_processing == "empirical-bayes":
        frequencies = shrink(found.raw, found.noise_errors)
    else:
        frequencies = POST_PROCESSING[post_processing](found.raw)
    return FrequencyEstimate(found.randomizer, found.evidence, frequencies, post_processing)
