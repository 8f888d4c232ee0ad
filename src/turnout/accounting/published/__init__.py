"""The papers' results under their own names, for comparison and reproduction.

`turnout.accounting.price` is what to quote. ``RESULTS`` lists what is here, with source, status,
directions, relation and range, so that a program can show it.
"""

from turnout.accounting.published import (
    allocation_rdp,
    check_ins,
    check_ins_approximate,
    random_allocation,
    rdp_conversion,
    shuffled_training,
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
    *random_allocation.RESULTS,
    *allocation_rdp.RESULTS,
    *rdp_conversion.RESULTS,
    *shuffled_training.RESULTS,
    *shuffling.RESULTS,
    *shuffling_blanket.RESULTS,
    *shuffling_rdp.RESULTS,
    *shuffling_subsampled.RESULTS,
    *strong_composition.RESULTS,
    *subsampling.RESULTS,
)

__all__ = ["RESULTS", "PrivacyPoint", "Result", "Status"]
