"""The papers' results under their own names, for comparison and reproduction.

`turnout.accounting.price` is what to quote. ``RESULTS`` lists what is here, with source, status,
directions, relation and range, so that a program can show it.
"""

from turnout.accounting.published import (
    allocation_rdp,
    allocation_sampling,
    check_ins,
    check_ins_approximate,
    check_ins_utility,
    mean_lower_bounds,
    random_allocation,
    rdp_conversion,
    shuffling,
    shuffling_blanket,
    shuffling_rdp,
    shuffling_subsampled,
    strong_composition,
    subsampling,
)
from turnout.accounting.published.results import PrivacyPoint, Result, Status

RESULTS: tuple[Result, ...] = (
    *check_ins.RESULTS,
    *check_ins_approximate.RESULTS,
    *check_ins_utility.RESULTS,
    *random_allocation.RESULTS,
    *allocation_rdp.RESULTS,
    *allocation_sampling.RESULTS,
    *rdp_conversion.RESULTS,
    *shuffling.RESULTS,
    *shuffling_blanket.RESULTS,
    *shuffling_rdp.RESULTS,
    *shuffling_subsampled.RESULTS,
    *strong_composition.RESULTS,
    *subsampling.RESULTS,
    *mean_lower_bounds.RESULTS,
)

__all__ = ["RESULTS", "PrivacyPoint", "Result", "Status"]
