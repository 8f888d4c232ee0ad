"""Poisson sampling: in each step the server selects each client with the same probability."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Bernoulli, Form
from turnout.schemes.parameters import Checked, chance, count
from turnout.schemes.registry import register_participation


@register_participation(
    "poisson",
    "In each step the server picks each client with probability ``rate``.",
    question="poisson",
    rank=2,
)
@dataclass(frozen=True, slots=True)
class PoissonSampling(Checked):
    """Guarantee: in each step each client takes part with probability ``rate``, independently.

    The server makes the draws.
    """

    rate: float = chance("probability with which a client participates in a step")
    steps: int = count("number of steps of the run", repeats=True)

    def form(self) -> Form:
        """Normal form: one Bernoulli draw of the server in each step."""
        return Form.of(Bernoulli(self.rate), self.steps)
