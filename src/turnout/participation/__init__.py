"""Participation: one sampler for each law, and the expectations that follow from the laws."""

from typing import TYPE_CHECKING

from turnout.core.lazy import loaded_on_demand

if TYPE_CHECKING:
    from turnout.participation.drawing import draw, draw_run
    from turnout.participation.expectations import (
        expected_check_ins,
        expected_empty_steps,
        expected_turns,
        is_far_below,
    )
    from turnout.participation.schedule import Block, Schedule, blocks, joined
    from turnout.participation.traces import (
        TraceStatistics,
        availability_law,
        day_profile,
        trace_statistics,
    )

__getattr__ = loaded_on_demand(
    __name__,
    {
        "drawing": "draw draw_run",
        "expectations": "expected_check_ins expected_empty_steps expected_turns is_far_below",
        "schedule": "Block Schedule blocks joined",
        "traces": "TraceStatistics availability_law day_profile trace_statistics",
    },
)

__all__ = [
    "Block",
    "Schedule",
    "TraceStatistics",
    "availability_law",
    "blocks",
    "day_profile",
    "draw",
    "draw_run",
    "expected_check_ins",
    "expected_empty_steps",
    "expected_turns",
    "is_far_below",
    "joined",
    "trace_statistics",
]
