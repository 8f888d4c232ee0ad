"""Batches of a training run, drawn by the participation whose ε the accountant computes.

`Assignment` is the schedule, and needs no extra. `turnout.integrations.batches` makes it a batch
sampler of PyTorch; `opacus`, `sklearn` and `release_ledger` use it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation.drawing import check_population, draw
from turnout.participation.schedule import Schedule, blocks
from turnout.randomness import OSRandomness, Source
from turnout.schemes import CheckIn, FixedAssignment, KSubset, Participation
from turnout.schemes.codec import participation_to_dict

AssignedParticipation = CheckIn | FixedAssignment | KSubset
"""Participations under which each record draws its own batches of an epoch."""

_RESOLUTION = 2**53


def assigned_participation(
    batches: int, epochs: int, *, kept: bool = False, picks: int = 1, probability: float = 1.0
) -> AssignedParticipation:
    """Participation of an independent assignment of records to batches.

    Args:
        batches: number of batches of an epoch; public.
        epochs: number of epochs of the whole run.
        kept: whether a record keeps its batches in all epochs; False: it draws anew in each epoch.
        picks: number of different batches of an epoch that contain a record.
        probability: probability that a record takes part in an epoch or, if ``kept``, in the run.

    Raises:
        ParameterError: a value outside its domain, or several picks together with ``kept`` or a
            probability below 1.
    """
    if picks == 1:
        kind = FixedAssignment if kept else CheckIn
        return kind(batches, epochs, probability)
    if kept or probability != 1.0:
        raise ParameterError("picks", picks, "1 if kept is true or probability is below 1")
    return KSubset(batches, picks, epochs)


class Assignment:
    """Batches of a run, in order, with counts of the returned and the released batches.

    Guarantee: the batches that contain a record have exactly the distribution of the participation,
    for every number of records, and records are independent of each other.

    Args:
        participation: distribution of the batches that contain a record.
        records: number of records, at least 1.
        source: source of all draws; None: the operating system's randomness.

    Attributes:
        participation: distribution of the batches that contain a record.
        records: number of records.
        batches: number of batches of an epoch.
        dealt: number of steps whose batches were returned.
        used: number of steps, from the first one on, whose batches may have been released.
        ahead: number of returned batches that a loader's workers hold and that the training loop
            has not received.
        followed: whether an accountant counts the assignment's releases; only one accountant may.
        on_pass: function that is called when a pass over an epoch begins, to discard gradients of
            earlier batches.

    Raises:
        ParameterError: a number of records below 1.
        UnsupportedError: a participation under which records do not draw their own batches.
    """

    def __init__(
        self, participation: Participation, records: int, source: Source | None = None
    ) -> None:
        if not isinstance(participation, AssignedParticipation):
            raise UnsupportedError(
                "batches are drawn by CheckIn, FixedAssignment or KSubset, "
                f"not {type(participation).__name__}"
            )
        check_population(participation, records)
        self.participation, self.records = participation, int(records)
        self.batches = participation.window
        self.source = OSRandomness() if source is None else source
        self.dealt = self.used = self.ahead = 0
        self.followed = False
        self.on_pass: Callable[[], None] | None = None
        self._block, self._schedule = -1, None

    @property
    def expected_batch_size(self) -> float:
        """Mean number of records in a batch: the divisor of sums, for batches of any size."""
        if isinstance(self.participation, KSubset):
            return self.records * self.participation.picks / self.batches
        return self.records * self.participation.probability / self.batches

    def epoch(self) -> Iterator[NDArray[np.integer]]:
        """Iterator over the remaining batches of the epoch, as arrays of ascending record numbers.

        A batch has the shape (n,) and may be empty. Batches of an interrupted pass are not returned
        again. These batches count as used, since they may have been released.

        Raises:
            UnsupportedError: all epochs are over.
        """
        if self.dealt == self.participation.steps:
            raise UnsupportedError(
                f"all {self.participation.steps // self.batches} epochs of the run are over: "
                "the ε of the run covers no further batch"
            )
        # Discard what an interrupted pass left; its batches count as used.
        if self.on_pass is not None:
            self.on_pass()
        self.used, self.ahead = self.dealt, 0
        end = self.dealt - self.dealt % self.batches + self.batches
        while self.dealt < end:
            step = self.dealt
            batch = self._schedule_at(step).at(step)
            self.dealt += 1
            yield batch

    def use(self) -> None:
        """Count one release of the last returned batch, before the release is made.

        Raises:
            UnsupportedError: this batch was released already, or an earlier batch was not released,
                so that it is not known which batches this release uses.
        """
        waiting = self.dealt - self.ahead - self.used
        if waiting <= 0:
            raise UnsupportedError("a second release of the same batch has no analysis")
        if waiting > 1:
            raise UnsupportedError(
                f"{waiting} batches were fetched since the last release: take a step for each "
                "batch, empty or not, before the next batch is fetched; do not use list(loader)"
            )
        self.used += 1

    def _schedule_at(self, step: int) -> Schedule:
        """Schedule of the block with this step, drawn when the block's first step is reached."""
        index = 0 if isinstance(self.participation, FixedAssignment) else step // self.batches
        if self._schedule is None or index != self._block:
            block = blocks(self.participation)[index]
            self._block, self._schedule = (
                index,
                draw(self.participation, self.records, block, self.source),
            )
        return self._schedule

    def state_dict(self) -> dict[str, Any]:
        """State to resume from; it reveals which batches contain a record, so keep it secret."""
        state: dict[str, Any] = {
            "law": participation_to_dict(self.participation),
            "records": self.records,
        }
        state |= {"used": self.used, "block": self._block}
        if self._schedule is not None:
            drawn = self._schedule
            state |= {"offsets": drawn.offsets, "clients": drawn.clients}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run after the batches that a saved state counts as used.

        Load each state only once, since a second continuation would release batches twice.

        Args:
            state: result of `state_dict`.

        Raises:
            ParameterError: the state has another participation or number of records; or it has
                fewer used batches than this assignment, so that a batch could be released twice
                and counted once.
        """
        # The state must be of this run, and must not go back.
        mine = {"law": participation_to_dict(self.participation), "records": self.records}
        theirs = {"law": state.get("law"), "records": state.get("records")}
        if theirs != mine:
            raise ParameterError(
                "state", theirs, f"a state of {self.participation} with {self.records} records"
            )
        used = state.get("used")
        if not isinstance(used, int) or not self.used <= used <= self.participation.steps:
            expected = (
                f"from {self.used} to {self.participation.steps} used batches; a state with fewer "
                "could release a batch twice"
            )
            raise ParameterError("used", used, expected)
        # Returned batches that were not used are lost; the drawn schedule is kept.
        self.dealt, self.used, self.ahead = used, used, 0
        self._block, self._schedule = int(state["block"]), None
        if "offsets" in state:
            first = blocks(self.participation)[self._block].first_step
            self._schedule = Schedule(first, state["offsets"], state["clients"])


def system_gaussian(size: int) -> NDArray[np.float64]:
    """Standard Gaussian draws from the operating system's randomness, shape (size,).

    Each draw is the normal quantile of the midpoint of one of 2⁵³ equal parts of (0, 1), so no
    absolute value exceeds 8.3. Like all floating-point noise, the draws take only some of the real
    numbers, and ε does not cover what an adversary learns from the gaps.
    """
    uniform = (OSRandomness().below(_RESOLUTION, size) + 0.5) / _RESOLUTION
    # Above one half, 1 − 2⁻⁵⁴ rounds to 1, so the lower tail is used for both.
    return np.where(uniform < 0.5, 1.0, -1.0) * ndtri(np.minimum(uniform, 1.0 - uniform))
