"""Self-sampling: client-side Poisson sampling, drawn by each client in each step."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Bernoulli, Form
from turnout.schemes.parameters import Checked, chance, count
from turnout.schemes.registry import register_participation


@register_participation(
    "self-sampling",
    "In each round each client takes part with probability ``rate``, by a draw of its own.",
    rank=3,
)
@dataclass(frozen=True, slots=True)
class SelfSampling(Checked):
    """Guarantee: in each round each client takes part with probability ``rate``, independently.

    The distribution is that of `PoissonSampling`, but each client makes its draws itself, so that
    the server does not need to contact the clients.
    """

    rate: float = chance("probability with which a client participates in a round")
    steps: int = count("number of steps of the run", repeats=True)

    def form(self) -> Form:
        """Normal form: one hidden Bernoulli draw of the client in each step."""
        return Form.of(Bernoulli(self.rate, hidden=True), self.steps)
