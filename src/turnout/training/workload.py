"""The objects that a plan's names stand for: data, trace, clients and participation law."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout import datasets
from turnout.core.errors import ParameterError
from turnout.datasets import ClientData, MissingFileError
from turnout.participation.traces import availability_law
from turnout.plans import AvailabilitySection, Plan
from turnout.spec import ParticipationLaw

BUILT_IN_TRACE = "flash-phones"
"""``participation.trace`` for the phones of the FLASH trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A plan with its data at hand.

    The trace is availability, shape ``(clients, steps)``, NaN where unknown; None without one.
    Code and files that the model is made of are looked for in the folder.
    """

    plan: Plan
    data: ClientData
    population: int
    law: ParticipationLaw
    trace: NDArray[np.float64] | None = None
    folder: Path = Path()


def gather(plan: Plan, folder: Path) -> Workload:
    """The plan's data, trace (its path relative to the folder), population and law.

    Raises:
        ParameterError: a file that is missing, or a number of clients that does not fit.
        StorageError: a damaged file.
    """
    try:
        data = datasets.load(plan.data.name)
    except MissingFileError as error:
        raise ParameterError("data.name", plan.data.name, f"data at hand, but {error}") from None
    section = plan.participation
    if not isinstance(section, AvailabilitySection):
        population = _population(plan, len(data.train), len(data.train))
        return Workload(plan, data, population, plan.law(population), folder=folder)
    trace = _trace(section, folder)
    population = _population(plan, len(data.train), len(trace))
    if population != len(trace):
        raise ParameterError("data.clients", population, f"{len(trace)}, as in the trace")
    law = availability_law(trace, section.window, section.probability)
    return Workload(plan, data, population, law, trace, folder)


def _population(plan: Plan, records: int, default: int) -> int:
    """The number of clients; each holds at least one record."""
    clients = plan.data.clients or default
    if clients > records:
        raise ParameterError("data.clients", clients, f"at most {records}, the number of records")
    return clients


def _trace(section: AvailabilitySection, folder: Path) -> NDArray[np.float64]:
    """The trace, cut to the steps that the plan uses."""
    try:
        if section.trace == BUILT_IN_TRACE:
            trace = datasets.flash_phones()
        else:
            trace = datasets.trace_from(folder / section.trace)
    except MissingFileError as error:
        raise ParameterError(
            "participation.trace", section.trace, f"a trace at hand, but {error}"
        ) from None
    steps = section.steps or trace.shape[1]
    for key, value, limit, what in (
        ("steps", steps, trace.shape[1], "the steps of the trace"),
        ("window", section.window, steps, "the steps of the run"),
        ("first_slot", section.first_slot, section.steps_per_day - 1, "the last slot of a day"),
    ):
        if value > limit:
            raise ParameterError(f"participation.{key}", value, f"at most {limit}, {what}")
    return trace[:, :steps]
