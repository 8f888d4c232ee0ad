"""Sampling without replacement: a uniform subset of fixed size in each step."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Cohort, Form
from turnout.schemes.parameters import Checked, count
from turnout.schemes.registry import register_participation


@register_participation(
    "fixed-size", "Each step serves ``size`` clients, a uniform subset.", rank=4
)
@dataclass(frozen=True, slots=True)
class FixedSize(Checked):
    """Guarantee: in each step a uniform subset of ``size`` clients takes part, drawn anew."""

    size: int = count("number of clients of a step", at_most="population")
    population: int = count()
    steps: int = count("number of steps of the run", repeats=True)

    def form(self) -> Form:
        """Normal form: a uniform subset of the clients in each step."""
        return Form.of(Cohort(self.size, self.population), self.steps)
