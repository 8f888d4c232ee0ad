"""Client-side Poisson sampling."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Bernoulli, Form
from turnout.schemes.parameters import Checked, chance, count
from turnout.schemes.registry import register_participation


@register_participation(
    "self-sampling",
    "In each round each client comes with probability ``rate``, by a draw of its own.",
    rank=3,
)
@dataclass(frozen=True, slots=True)
class SelfSampling(Checked):
    """Guarantee: in each round each client comes with probability ``rate``, independently.

    The law of `PoissonSampling`, but the client draws its own coin, so no server needs to
    address it.
    """

    rate: float = chance("chance of a client in a round")
    steps: int = count("steps of the run", repeats=True)

    def form(self) -> Form:
        """One Bernoulli draw of the client a step."""
        return Form.of(Bernoulli(self.rate, unseen=True), self.steps)
