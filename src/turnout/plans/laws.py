"""The ``[participation]`` table: one section for each law, told apart by ``law``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from turnout.core.errors import ParameterError
from turnout.plans.fields import Count, CountFromZero, Probability, Section
from turnout.spec import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    ParticipationLaw,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)

LAW = "who takes part when"
STEPS = "steps of the run"
WINDOW = "steps a window"
WINDOWS = "windows of the run"


class EveryStepSection(Section):
    """Every client takes part in every step: no amplification."""

    law: Literal["every-step"] = Field(description=LAW)
    steps: Count = Field(1, description=STEPS)

    def spec(self, population: int) -> ParticipationLaw:
        """The law."""
        return EveryStep(self.steps)


class PoissonSection(Section):
    """In each step the server picks each client with probability ``rate``."""

    law: Literal["poisson"] = Field(description=LAW)
    rate: Probability = Field(description="chance of a client in a step")
    steps: Count = Field(description=STEPS)

    def spec(self, population: int) -> ParticipationLaw:
        """The law."""
        return PoissonSampling(self.rate, self.steps)


class SelfSamplingSection(Section):
    """In each round each client comes with probability ``rate``, by her own coin."""

    law: Literal["self-sampling"] = Field(description=LAW)
    rate: Probability = Field(description="chance of a client in a round")
    steps: Count = Field(description=STEPS)

    def spec(self, population: int) -> ParticipationLaw:
        """The law."""
        return SelfSampling(self.rate, self.steps)


class FixedSizeSection(Section):
    """Each step serves ``size`` clients, a uniform subset."""

    law: Literal["fixed-size"] = Field(description=LAW)
    size: Count = Field(description="clients a step")
    steps: Count = Field(description=STEPS)

    def spec(self, population: int) -> ParticipationLaw:
        """The law."""
        return FixedSize(self.size, population, self.steps)


class CheckInSection(Section):
    """In each window each client draws one uniform step, with probability ``probability``."""

    law: Literal["check-in"] = Field(description=LAW)
    window: Count = Field(description=WINDOW)
    windows: Count = Field(1, description=WINDOWS)
    probability: Probability = Field(1.0, description="chance of coming at all, per window")

    def spec(self, population: int) -> ParticipationLaw:
        """The law."""
        return CheckIn(self.window, self.windows, self.probability)


class SlidingSection(Section):
    """Client j wakes at slot ⌊j / clients_per_slot⌋ and draws one of the next ``window``."""

    law: Literal["sliding"] = Field(description=LAW)
    window: Count = Field(description=WINDOW)
    clients_per_slot: Count = Field(1, description="clients who wake at each slot")

    def spec(self, population: int) -> ParticipationLaw:
        """The law; all clients wake during the run."""
        slots, rest = divmod(population, self.clients_per_slot)
        if rest:
            raise ParameterError(
                "participation.clients_per_slot",
                self.clients_per_slot,
                f"a divisor of the number of clients, {population}",
            )
        if self.window > slots:
            raise ParameterError(
                "participation.window",
                self.window,
                f"at most {slots}, the slots in which {population} clients wake",
            )
        return SlidingWindow(self.window, slots, self.clients_per_slot)


class KSubsetSection(Section):
    """In each window each client takes part in ``picks`` different steps, a uniform subset."""

    law: Literal["k-subset"] = Field(description=LAW)
    window: Count = Field(description=WINDOW)
    picks: Count = Field(description="steps of a window in which a client takes part")
    windows: Count = Field(1, description=WINDOWS)

    def spec(self, population: int) -> ParticipationLaw:
        """The law."""
        return KSubset(self.window, self.picks, self.windows)


class FixedAssignmentSection(Section):
    """Each client draws one step of a window once, and takes part in it in every epoch."""

    law: Literal["fixed-assignment"] = Field(description=LAW)
    window: Count = Field(description="steps an epoch")
    epochs: Count = Field(description="epochs of the run, in each of which she keeps her step")
    probability: Probability = Field(1.0, description="chance of coming at all, in the whole run")

    def spec(self, population: int) -> ParticipationLaw:
        """The law."""
        return FixedAssignment(self.window, self.epochs, self.probability)


class AvailabilitySection(Section):
    """In each window each client draws among the steps in which a trace saw her available."""

    law: Literal["availability"] = Field(description=LAW)
    trace: str = Field(
        "flash-phones",
        description="'flash-phones', or a CSV file of intervals (device,slot_start,slot_end,"
        "available), its path relative to the plan's folder",
    )
    window: Count = Field(description=WINDOW)
    probability: Probability = Field(1.0, description="chance of coming at all, per window")
    steps: Count | None = Field(None, description="use only the first steps of the trace")
    steps_per_day: Count = Field(48, description="steps a day, for the daily profile")
    first_slot: CountFromZero = Field(0, description="time of day of step 0, in steps")

    def spec(self, population: int) -> ParticipationLaw:
        """Never: the law needs the trace, which is a file."""
        raise ParameterError("participation.law", self.law, "a law that needs no trace file here")


ParticipationSection = Annotated[
    EveryStepSection
    | PoissonSection
    | SelfSamplingSection
    | FixedSizeSection
    | CheckInSection
    | SlidingSection
    | KSubsetSection
    | FixedAssignmentSection
    | AvailabilitySection,
    Field(discriminator="law"),
]
