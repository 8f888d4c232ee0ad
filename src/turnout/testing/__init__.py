"""For tests of samplers, laws and algorithms, yours included: exact laws, frequency tests,
conformance.
"""

from turnout.testing.algorithms import assert_algorithm
from turnout.testing.enumeration import enumerate_law
from turnout.testing.frequencies import (
    assert_binomial,
    assert_frequencies,
    assert_mean,
    assert_rejects_law,
)
from turnout.testing.laws import ClientLaw, assert_law, client_law
from turnout.testing.randomizers import assert_randomizer

__all__ = [
    "ClientLaw",
    "assert_algorithm",
    "assert_binomial",
    "assert_frequencies",
    "assert_law",
    "assert_mean",
    "assert_randomizer",
    "assert_rejects_law",
    "client_law",
    "enumerate_law",
]
