"""Availability traces: at which steps each client was available, as far as this is known.

`availability_participation` makes a participation from a trace; `trace_statistics` returns the
statistics of a trace. A trace is a float array of shape (clients, steps): 1 is available, 0 is not
available, NaN is unknown. A client never takes part at an unknown step, and no statistic counts an
unknown step as absence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.schemes import AvailabilityCheckIn


@dataclass(frozen=True, slots=True, eq=False)
class TraceStatistics:
    """Availability statistics of a trace, whose slots are all pairs of a client and a step.

    Attributes:
        known_fraction: fraction of slots whose availability is known.
        available_fraction: fraction of available slots among the *known* slots; NaN if none is
            known.
        never_available: number of clients without a slot at which they are known to be available.
        day_profile: fraction of available slots among known slots at each time of day, float64 of
            shape (steps_per_day,); NaN at times of day without a known slot.
    """

    clients: int
    known_fraction: float
    available_fraction: float
    never_available: int
    day_profile: NDArray[np.float64]


def availability_participation(
    trace: ArrayLike, window: int, probability: float = 1.0
) -> AvailabilityCheckIn:
    """Participation in which each client draws steps at which a trace shows it as available.

    Args:
        trace: float array of shape (clients, steps) of 1, 0 and NaN (unknown).
        window: number of steps of a window, at least 1.
        probability: probability in [0, 1] that a client with available steps takes part in a
            window.

    Raises:
        ParameterError: the trace has another shape or other values, or a parameter is outside its
            domain.

    Guarantees:
        No client participates at a step at which the client is not known to be available.
    """
    available = _checked(trace) == 1  # NaN equals nothing: unknown is not drawn from.
    return AvailabilityCheckIn(available, window, probability)


def trace_statistics(trace: ArrayLike, steps_per_day: int, first_slot: int = 0) -> TraceStatistics:
    """Availability statistics of a trace.

    Args:
        trace: float array of shape (clients, steps) of 1, 0 and NaN (unknown).
        steps_per_day: number of steps per day, for example 48 for half hours.
        first_slot: time of day of step 0, in steps, from 0 to ``steps_per_day − 1``.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    values = _checked(trace)
    known, available = ~np.isnan(values), values == 1
    slot = _slot_of_day(values.shape[1], steps_per_day, first_slot)
    return TraceStatistics(
        clients=values.shape[0],
        known_fraction=float(known.mean()),
        available_fraction=float(_ratio(available.sum(), known.sum())),
        never_available=int(np.count_nonzero(~available.any(axis=1))),
        day_profile=_ratio(
            np.bincount(slot, np.count_nonzero(available, axis=0), steps_per_day),
            np.bincount(slot, np.count_nonzero(known, axis=0), steps_per_day),
        ),
    )


def day_profile(
    per_step: ArrayLike, steps_per_day: int, first_slot: int = 0
) -> NDArray[np.float64]:
    """Mean at each time of day of a quantity that has one value for each step.

    The result has shape (steps_per_day,).

    Args:
        per_step: one number for each step, shape (steps,); NaN is left out of the mean.
        steps_per_day: number of steps per day.
        first_slot: time of day of step 0, in steps, from 0 to ``steps_per_day − 1``.

    Raises:
        ParameterError: an argument is outside its domain.
    """
    values = np.asarray(per_step, dtype=np.float64)
    if values.ndim != 1:
        raise ParameterError("per_step", values.shape, "an array of shape (steps,)")
    known = ~np.isnan(values)
    slot = _slot_of_day(len(values), steps_per_day, first_slot)[known]
    total = np.bincount(slot, values[known], steps_per_day)
    return _ratio(total, np.bincount(slot, minlength=steps_per_day))


def _checked(trace: ArrayLike) -> NDArray[np.float64]:
    """Trace as an array of floats; invalid values raise a ParameterError."""
    values = np.asarray(trace, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise ParameterError("trace", values.shape, "an array of shape (clients, steps)")
    wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
    if wrong.any():
        client, step = np.argwhere(wrong)[0]
        value = float(values[client, step])
        raise ParameterError(f"trace[{client}, {step}]", value, "1, 0 or NaN (unknown)")
    return values


def _slot_of_day(steps: int, steps_per_day: int, first_slot: int) -> NDArray[np.int64]:
    """Time of day of each step, as a slot number."""
    checks.count(steps_per_day=steps_per_day)
    checks.count(0, first_slot=first_slot)
    checks.at_most("steps_per_day - 1", steps_per_day - 1, first_slot=first_slot)
    return (np.arange(steps) + first_slot) % steps_per_day


def _ratio(part: ArrayLike, whole: ArrayLike) -> NDArray[np.float64]:
    """Ratio part/whole, elementwise; NaN where the whole is 0."""
    parts, wholes = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.divide(parts, wholes, out=np.full(parts.shape, np.nan), where=wholes > 0)
