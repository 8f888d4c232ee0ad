"""K-subset: several uniform steps of each window."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Form, KOf
from turnout.schemes.parameters import Checked, count
from turnout.schemes.registry import register_participation


@register_participation(
    "k-subset",
    "In each window each client takes part in ``picks`` different steps, a uniform subset.",
    question="k-subset",
    rank=7,
)
@dataclass(frozen=True, slots=True)
class KSubset(Checked):
    """Participation in a uniform subset of the steps of each window.

    Guarantee: in each of ``windows`` windows of ``window`` steps each client takes part in exactly
    ``picks`` different steps, a uniform subset; draws of different windows are independent.
    """

    window: int = count("number of steps of a window")
    picks: int = count(
        "number of steps in which a client participates in each window", at_most="window"
    )
    windows: int = count("number of windows of the run", 1, repeats=True)

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.window * self.windows

    def form(self) -> Form:
        """Normal form: a uniform subset of ``picks`` steps in each window."""
        return Form.of(KOf(self.window, self.picks), self.windows)
