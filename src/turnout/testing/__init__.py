"""Tests for samplers, participations, randomizers and algorithms, built-in or custom.

The package has exact enumeration of samplers, statistical assertions, conformance tests and seeded
faults.
"""

from turnout.testing.algorithms import assert_algorithm
from turnout.testing.enumeration import enumerate_outputs
from turnout.testing.frequencies import (
    assert_binomial,
    assert_frequencies,
    assert_mean,
    assert_rejects,
)
from turnout.testing.participations import (
    ClientDistribution,
    assert_participation,
    client_distribution,
)
from turnout.testing.randomizers import assert_randomizer

__all__ = [
    "ClientDistribution",
    "assert_algorithm",
    "assert_binomial",
    "assert_frequencies",
    "assert_mean",
    "assert_participation",
    "assert_randomizer",
    "assert_rejects",
    "client_distribution",
    "enumerate_outputs",
]
