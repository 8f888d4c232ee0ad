"""Fixed assignment: each client draws one step of an epoch, which is the same in every epoch."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.schemes.normal_form import Form, Kept, OneOf
from turnout.schemes.parameters import Checked, chance, count
from turnout.schemes.registry import register_participation


@register_participation(
    "fixed-assignment",
    "Each client draws one step of a window once, and takes part in it in every epoch.",
    question="fixed-assignment",
    rank=8,
)
@dataclass(frozen=True, slots=True)
class FixedAssignment(Checked):
    """Participation in one uniform slot, drawn once and kept in all epochs ("balls in bins").

    `CheckIn` draws a new step in each window instead.

    Guarantee: each client, with probability ``probability`` and independently of all others,
    draws one of ``window`` slots and takes part in exactly that slot of each of ``epochs``
    consecutive windows. So the number of clients in a slot is random, and a slot may be empty.

    A data loader that shuffles records is different, both with one permutation for all epochs and
    with a new permutation for each. Such a loader divides the records into batches of equal size,
    so that the batches of all other records determine a record's batch. The guarantee that holds
    for such a loader is that of `EveryStep` with one step an epoch (docs/which-guarantee.md).
    """

    window: int = count("number of steps of an epoch")
    epochs: int = count("number of epochs in which a client keeps the same step")
    probability: float = chance("probability with which a client participates in the run", 1.0)

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.window * self.epochs

    def form(self) -> Form:
        """Normal form: a single block, in which a client keeps its step in every epoch."""
        return Form.of(Kept(OneOf(self.window, self.probability), self.epochs))
