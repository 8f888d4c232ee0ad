"""Sliding windows: each client has its own window, which begins when the client wakes."""

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
    """Check-ins in windows that begin at a different slot for each group of clients.

    Time slots are 0 … ``slots − 1``. Client j wakes at slot ⌊j / clients_per_slot⌋ and draws one
    uniform slot among the next ``window`` slots. The first ``window − 1`` slots are the warm-up:
    nothing is released in them, and a client that draws one of them, or a slot past the end, does
    not take part. Step 0 of the run is slot ``window − 1``.

    Source: the check-in paper, §4.2.

    Guarantee: each client takes part at most once, and in any given slot of its window with
    probability at most 1 / ``window``.
    """

    window: int = count("number of steps of a window", at_most="slots")
    slots: int = count()
    clients_per_slot: int = count("number of clients that wake in each slot", 1, option=False)

    @property
    def steps(self) -> int:
        """Number of steps of the run: the slots after the warm-up, each with a release."""
        return self.slots - self.window + 1

    @property
    def population(self) -> int:
        """Number of clients that wake during the run."""
        return self.slots * self.clients_per_slot

    def form(self) -> Form:
        """Normal form: one uniform slot of the client's own window."""
        return Form.of(Staggered(self.window, self.slots, self.clients_per_slot))

    @classmethod
    def for_plan(cls, population: int, window: int, clients_per_slot: int) -> SlidingWindow:
        """Participation of a run in which all clients of a plan wake.

        Args:
            population: number of clients.
            window: slots of a client's window.
            clients_per_slot: clients that wake at each slot, a divisor of ``population``.

        Raises:
            ParameterError: ``clients_per_slot`` does not divide ``population``, or ``window`` is
                larger than the number of slots.
        """
        slots, rest = divmod(population, clients_per_slot)
        if rest:
            expected = f"a divisor of the number of clients, {population}"
            raise ParameterError("clients_per_slot", clients_per_slot, expected)
        if window > slots:
            expected = f"at most {slots}, the number of slots in which {population} clients wake"
            raise ParameterError("window", window, expected)
        return cls(window, slots, clients_per_slot)

    @classmethod
    def for_question(cls, window: int, clients_per_slot: int) -> SlidingWindow:
        """Participation in the shortest run that contains a client's whole window.

        The run has 2·window − 1 slots, warm-up included. The guarantee of the run is the guarantee
        of one window, and is the same in every longer run.
        """
        return cls.for_plan(2 * window - 1, window, clients_per_slot)
