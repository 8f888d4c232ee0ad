"""Random check-in: one uniform step in each window."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Form, OneOf
from turnout.schemes.parameters import Checked, chance, count
from turnout.schemes.registry import register_participation


@register_participation(
    "check-in",
    "In each window each client draws one uniform step, with probability ``probability``.",
    question="check-in",
    rank=5,
    averaged_clients=True,
)
@dataclass(frozen=True, slots=True)
class CheckIn(Checked):
    """Random check-in: in each window a client takes part in one uniform step.

    Guarantee: in each of ``windows`` consecutive windows of ``window`` steps each client, with
    probability ``probability``, takes part in exactly one step, uniform in the window; draws
    of different windows are independent.
    """

    window: int = count("number of steps of a window")
    windows: int = count("number of windows of the run", 1, repeats=True)
    probability: float = chance("probability with which a client participates in a window", 1.0)

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.window * self.windows

    def form(self) -> Form:
        """Normal form: one uniform step in each window."""
        return Form.of(OneOf(self.window, self.probability), self.windows)
