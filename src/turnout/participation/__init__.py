"""Who turns up when: one sampler for each participation law, and what the laws promise."""

from typing import TYPE_CHECKING

from turnout.core.lazy import loaded_on_demand

if TYPE_CHECKING:
    from turnout.participation.drawing import draw, draw_run
    from turnout.participation.expectations import (
        empty_steps_bound,
        expected_check_ins,
        expected_empty_steps,
        expected_turns,
        is_far_below,
    )
    from turnout.participation.schedule import Schedule, joined
    from turnout.participation.traces import (
        TraceStatistics,
        availability_law,
        day_profile,
        trace_statistics,
    )
    from turnout.participation.windows import Block, blocks

__getattr__ = loaded_on_demand(
    __name__,
    {
        "drawing": "draw draw_run",
        "expectations": "empty_steps_bound expected_check_ins expected_empty_steps "
        "expected_turns is_far_below",
        "schedule": "Schedule joined",
        "traces": "TraceStatistics availability_law day_profile trace_statistics",
        "windows": "Block blocks",
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
    "empty_steps_bound",
    "expected_check_ins",
    "expected_empty_steps",
    "expected_turns",
    "is_far_below",
    "joined",
    "trace_statistics",
]
