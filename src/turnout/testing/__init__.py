"""For tests of samplers, yours included: exact laws, exact frequency tests, wrong laws."""

from turnout.testing.enumeration import enumerate_law
from turnout.testing.frequencies import (
    assert_binomial,
    assert_frequencies,
    assert_mean,
    assert_rejects_law,
)

__all__ = [
    "assert_binomial",
    "assert_frequencies",
    "assert_mean",
    "assert_rejects_law",
    "enumerate_law",
]
