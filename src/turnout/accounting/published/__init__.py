"""Published results under the names of their papers, for comparison and reproduction.

For guarantees use `turnout.accounting.price` instead. ``RESULTS`` lists the results with source,
status, directions, relation and range, so that a program can show them; `comparison` evaluates the
results at one setting.
"""

from turnout.accounting.published import (
    check_ins,
    random_allocation,
    renyi,
    results,
    shuffled_training,
    shuffling,
    shuffling_rdp,
)
from turnout.accounting.published.results import PrivacyPoint, PublishedResult, Status

RESULTS: tuple[PublishedResult, ...] = (
    *check_ins.RESULTS,
    *random_allocation.RESULTS,
    *renyi.RESULTS,
    *shuffling.RESULTS,
    *shuffling_rdp.RESULTS,
    *shuffled_training.RESULTS,
    *results.RESULTS,
)

__all__ = ["RESULTS", "PrivacyPoint", "PublishedResult", "Status"]
