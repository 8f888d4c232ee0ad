"""The ``[participation]`` table: one section for each law, told apart by ``law``.

A section is made of what a law says of its own parameters, so a new law needs none written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache, partial
from typing import Any, ClassVar, Literal

from pydantic import Field, create_model

from turnout.core.errors import ParameterError
from turnout.plans.fields import Count, CountFromZero, Probability, Section, Sections, section_keys
from turnout.schemes import ParticipationLaw
from turnout.schemes.parameters import Parameter, parameters
from turnout.schemes.registry import all_laws, law_names

LAW = "who takes part when"
WINDOW = "steps a window"


class LawSection(Section):
    """The parameters of a law that a plan names."""

    kind: ClassVar[type[Any]]
    law: str

    @classmethod
    def parameters(cls) -> Iterator[Parameter]:
        """Those that are keys."""
        return (each for each in parameters(cls.kind) if each.public)

    def spec(self, population: int) -> ParticipationLaw:
        """The law, for a number of clients."""
        if hasattr(self.kind, "planned"):
            return self.kind.planned(population, **self._values())
        known = {each.name for each in fields(self.kind)} & {"population"}
        return self.kind(**self._values(), **dict.fromkeys(known, population))

    def asked(self) -> ParticipationLaw:
        """The law of a question, in which nobody says how many clients there are."""
        if hasattr(self.kind, "asked"):
            return self.kind.asked(**self._values())
        return self.spec(1)

    def _values(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in self.parameters()}


@cache
def section_of(kind: type[Any]) -> type[LawSection]:
    """The section of a law's class, made of what it says of its parameters."""
    names = law_names(kind)
    keys = {"law": (Literal[names.plan], Field(description=LAW)), **section_keys(kind)}
    section: type[LawSection] = create_model(f"{kind.__name__}Section", __base__=LawSection, **keys)
    section.kind, section.__doc__ = kind, names.summary
    return section


class AvailabilitySection(Section):
    """In each window each client draws among the steps in which a trace saw it available."""

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


def _builders() -> Iterator[tuple[str, Callable[[], type[Section]]]]:
    for kind, names in all_laws().items():
        planned = hasattr(kind, "planned") or all(
            each.name in {own.name for own in parameters(kind)} for each in fields(kind)
        )
        if names.plan == "availability":
            yield names.plan, lambda: AvailabilitySection
        elif planned:
            yield names.plan, partial(section_of, kind)


SECTIONS = Sections[Section](dict(_builders()))
"""The sections of all laws that are known when plans are loaded, by their words."""
