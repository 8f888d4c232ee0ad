"""Every step: full participation, which does not amplify privacy."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Always, Form
from turnout.schemes.parameters import Checked, count
from turnout.schemes.registry import register_participation


@register_participation(
    "every-step",
    "Every client takes part in every step: no amplification.",
    question="none",
    rank=1,
)
@dataclass(frozen=True, slots=True)
class EveryStep(Checked):
    """Guarantee: each client takes part in every one of ``steps`` steps."""

    steps: int = count("number of steps of the run", plan_default=1, repeats=True)

    def form(self) -> Form:
        """Normal form: a block of one step, in which every client takes part, for each step."""
        return Form.of(Always(), self.steps)
