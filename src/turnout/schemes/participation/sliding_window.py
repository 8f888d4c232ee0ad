"""Sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.errors import ParameterError
from turnout.schemes.normal_form import Form, Staggered
from turnout.schemes.parameters import Checked, count
from turnout.schemes.registry import register_participation


@register_participation(
    "sliding",
    "Client j wakes at slot ⌊j / clients_per_slot⌋ and draws one of the next ``window``.",
    question="sliding",
    rank=6,
)
@dataclass(frozen=True, slots=True)
class SlidingWindow(Checked):
    """Check-in paper §4.2: every client has a window of its own, and windows slide.

    Time slots are 0 … ``slots − 1``. Client j wakes at slot ⌊j / clients_per_slot⌋ and draws
    one uniform slot among the next ``window`` ones. The first ``window − 1`` slots are the
    warm-up: nothing is released then, and who drew one of them is not served; nor is who drew
    a slot past the end. Step 0 of the run is slot ``window − 1``.

    Guarantee: each client takes part at most once, and in any given slot of its window with
    probability at most 1 / ``window``.
    """

    window: int = count("steps a window", at_most="slots")
    slots: int = count()
    clients_per_slot: int = count("clients who wake at each slot", 1, option=False)

    @property
    def steps(self) -> int:
        """Steps that release something: slots after the warm-up."""
        return self.slots - self.window + 1

    @property
    def population(self) -> int:
        """Clients who wake during the run."""
        return self.slots * self.clients_per_slot

    def form(self) -> Form:
        """One slot of the client's own window."""
        return Form.of(Staggered(self.window, self.slots, self.clients_per_slot))

    @classmethod
    def planned(cls, population: int, window: int, clients_per_slot: int) -> SlidingWindow:
        """The law of a plan; all clients wake during the run."""
        slots, rest = divmod(population, clients_per_slot)
        if rest:
            expected = f"a divisor of the number of clients, {population}"
            raise ParameterError("clients_per_slot", clients_per_slot, expected)
        if window > slots:
            expected = f"at most {slots}, the slots in which {population} clients wake"
            raise ParameterError("window", window, expected)
        return cls(window, slots, clients_per_slot)

    @classmethod
    def asked(cls, window: int, clients_per_slot: int) -> SlidingWindow:
        """The law of a question, whose guarantee is that of one client's own window.

        The run must be so long that somebody's whole window is released: 2·window − 1 slots,
        warm-up included.
        """
        return cls.planned(2 * window - 1, window, clients_per_slot)
