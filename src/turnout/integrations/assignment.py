"""Independent assignment: the batches of a run, drawn by the scheme that the accountant prices.

`Assignment` is the schedule; `AssignedBatches` is a batch sampler of PyTorch for any training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.participation.drawing import check_population, draw
from turnout.participation.schedule import Schedule, blocks
from turnout.randomness import OSRandomness, Source
from turnout.schemes import CheckIn, FixedAssignment, KSubset, Participation
from turnout.schemes.codec import participation_to_dict

AssignedParticipation = CheckIn | FixedAssignment | KSubset
"""Laws under which each record draws its own batches of an epoch."""

_RESOLUTION = 2**53


def assigned_participation(
    batches: int, epochs: int, *, kept: bool = False, picks: int = 1, probability: float = 1.0
) -> AssignedParticipation:
    """The law of an independent assignment.

    Args:
        batches: batches an epoch, public.
        epochs: of the whole run.
        kept: whether a record keeps its batch over the epochs; else it draws afresh in each.
        picks: different batches of an epoch in which a record is.
        probability: of a record's coming at all: in each epoch, in the run where it is kept.

    Raises:
        ParameterError: a combination that no law has.
    """
    if picks == 1:
        law = FixedAssignment if kept else CheckIn
        return law(batches, epochs, probability)
    if kept or probability != 1.0:
        raise ParameterError("picks", picks, "1 where batches are kept or a record may not come")
    return KSubset(batches, picks, epochs)


class Assignment:
    """A run's batches, in order, and how many of them were dealt and used.

    Guarantee: the batches in which a record is have exactly the law, for every number of records,
    and records are independent of each other.

    Attributes:
        law: who is in which batch.
        records: how many there are.
        batches: steps of an epoch.
        dealt: steps whose batches were handed out.
        used: the first so many steps are all that releases can rest on.
        ahead: of those dealt, how many a loader's workers hold that the loop has not seen.
        followed: whether an accountant counts its releases; there is one for each assignment.
        on_pass: called when a pass begins, of which nothing before may be left.

    Raises:
        UnsupportedError: a law under which records do not draw their own batches of an epoch.
    """

    def __init__(self, law: Participation, records: int, source: Source | None = None) -> None:
        if not isinstance(law, AssignedParticipation):
            raise UnsupportedError(
                "batches are dealt by CheckIn, FixedAssignment or KSubset, "
                f"not {type(law).__name__}"
            )
        check_population(law, records)
        self.participation, self.records, self.batches = law, int(records), law.window
        self.source = OSRandomness() if source is None else source
        self.dealt = self.used = self.ahead = 0
        self.followed = False
        self.on_pass: Callable[[], None] | None = None
        self._block, self._schedule = -1, None

    @property
    def expected_batch_size(self) -> float:
        """Mean number of records in a batch: what a sum is divided by, whoever came."""
        if isinstance(self.participation, KSubset):
            return self.records * self.participation.picks / self.batches
        return self.records * self.participation.probability / self.batches

    def epoch(self) -> Iterator[NDArray[np.integer]]:
        """The batches that are left of the epoch, ascending record numbers, some of them empty.

        Batches of a pass that was broken off are not dealt again. They count as used: what was
        released of them and what was not is known to nobody here.

        Raises:
            UnsupportedError: all epochs of the law are over.
        """
        if self.dealt == self.participation.steps:
            raise UnsupportedError(
                f"all {self.participation.steps // self.batches} epochs of the run are over: "
                "its price covers no further batch"
            )
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
        """Counts one release, before it is made: that of the batch that came last.

        Raises:
            UnsupportedError: this batch has had its release, or one before it has not, so that
                nobody knows which batches this one rests on.
        """
        waiting = self.dealt - self.ahead - self.used
        if waiting <= 0:
            raise UnsupportedError("a batch has one release: this one would be a second")
        if waiting > 1:
            raise UnsupportedError(
                f"{waiting} batches came since the last release: each one, empty or not, has its "
                "step before the next is fetched (no list(loader), no skipped batch)"
            )
        self.used += 1

    def _schedule_at(self, step: int) -> Schedule:
        index = 0 if isinstance(self.participation, FixedAssignment) else step // self.batches
        if self._schedule is None or index != self._block:
            block = blocks(self.participation)[index]
            self._block, self._schedule = (
                index,
                draw(self.participation, self.records, block, self.source),
            )
        return self._schedule

    def state_dict(self) -> dict[str, Any]:
        """All that goes on after a restart; it says who is where: as secret as the data."""
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
        """Goes on after the batches that were used. A state is for one continuation only.

        Raises:
            ParameterError: the state of another law or number of records, or of a time before
                this assignment's own: its batches would be released twice and paid once.
        """
        mine = {"law": participation_to_dict(self.participation), "records": self.records}
        theirs = {"law": state.get("law"), "records": state.get("records")}
        if theirs != mine:
            raise ParameterError(
                "state", theirs, f"that of {self.participation} over {self.records} records"
            )
        used = state.get("used")
        if not isinstance(used, int) or not self.used <= used <= self.participation.steps:
            raise ParameterError(
                "used", used, f"from {self.used} to {self.participation.steps} steps"
            )
        self.dealt, self.used, self.ahead = used, used, 0
        self._block, self._schedule = int(state["block"]), None
        if "offsets" in state:
            first = blocks(self.participation)[self._block].first_step
            self._schedule = Schedule(first, state["offsets"], state["clients"])


def system_gaussian(size: int) -> NDArray[np.float64]:
    """Standard Gaussian draws from the operating system's randomness, shape (size,).

    Each is the quantile of the middle of one of 2⁵³ intervals of equal probability, so none is
    beyond ±8.3; like all floating-point noise it has gaps that no ε covers.
    """
    uniform = (OSRandomness().below(_RESOLUTION, size) + 0.5) / _RESOLUTION
    # Above one half the nearest number to 1 − 2⁻⁵⁴ is 1: the tail is taken from below.
    return np.where(uniform < 0.5, 1.0, -1.0) * ndtri(np.minimum(uniform, 1.0 - uniform))


try:
    import torch
    from torch.utils._pytree import tree_flatten, tree_map
    from torch.utils.data import DataLoader, IterableDataset, Sampler, default_collate
except ImportError as error:
    raise unavailable(error, __name__, "opacus") from None


class AssignedBatches(Sampler[list[int]]):
    """A batch sampler: each record draws the batches of an epoch in which it is, independently.

    Each iteration is one epoch, or what is left of one. Sizes of batches vary, and a batch may be
    empty: `loader` makes a DataLoader that hands out empty ones too. A loop that clips each
    record's gradient, adds noise and divides by ``expected_batch_size`` has the price of
    ``Scheme(noise, law, relation, unit="example")``.

    Attributes:
        assignment: the batches, and how many were dealt and used.

    >>> batches = AssignedBatches.of(2000, batches=40, epochs=4)
    >>> batches.participation
    CheckIn(window=40, windows=4, probability=1.0)
    >>> len(batches), sum(len(batch) for batch in batches)
    (40, 2000)
    """

    def __init__(self, law: Participation, records: int, source: Source | None = None) -> None:
        self.assignment = Assignment(law, records, source)

    @classmethod
    def of(
        cls,
        records: int,
        batches: int,
        epochs: int,
        *,
        kept: bool = False,
        picks: int = 1,
        probability: float = 1.0,
        source: Source | None = None,
    ) -> Self:
        """The batches of `assigned_participation`, drawn from the operating system's randomness."""
        law = assigned_participation(
            batches, epochs, kept=kept, picks=picks, probability=probability
        )
        return cls(law, records, source)

    @property
    def participation(self) -> Participation:
        """The law that the sampler deals by and `turnout.price` prices."""
        return self.assignment.participation

    @property
    def expected_batch_size(self) -> float:
        """The divisor of the sum of a batch: its mean number of records."""
        return self.assignment.expected_batch_size

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.assignment.epoch())

    def __len__(self) -> int:
        return self.assignment.batches

    def loader(self, dataset: Any, **options: Any) -> DataLoader[Any]:
        """A DataLoader of these batches, empty ones too; options are those of DataLoader.

        Raises:
            ParameterError: a data set of another length.
            UnsupportedError: a data set that is a stream, or batches that are not made of tensors.
        """
        if isinstance(dataset, IterableDataset):
            raise UnsupportedError("records of a stream cannot be assigned to batches")
        if len(dataset) != self.assignment.records:
            expected = f"{self.assignment.records} records, as the sampler has"
            raise ParameterError("dataset", len(dataset), expected)
        collate: Any = options.pop("collate_fn", None) or default_collate
        if not isinstance(collate, WithEmptyBatches):
            collate = WithEmptyBatches(collate, collate([dataset[0]]))
        return _Loader(dataset, batch_sampler=self, collate_fn=collate, **options)

    def state_dict(self) -> dict[str, Any]:
        """All that goes on after a restart; as secret as the data."""
        return self.assignment.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on after the batches that were used; see `Assignment.load_state_dict`."""
        self.assignment.load_state_dict(state)


class _Loader(DataLoader[Any]):
    """A loader that tells the assignment how many batches its workers fetched ahead of the loop."""

    def __iter__(self) -> Any:
        assert isinstance(self.batch_sampler, AssignedBatches)
        assignment = self.batch_sampler.assignment
        handed = assignment.dealt
        for batch in super().__iter__():
            handed += 1
            assignment.ahead = assignment.dealt - handed
            yield batch


class WithEmptyBatches:
    """A collate function that makes of no record the batch of one without its row.

    Nothing but shapes and types of the example is kept.
    """

    def __init__(self, collate: Callable[[Sequence[Any]], Any], example: Any) -> None:
        if not all(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(example)[0]):
            raise UnsupportedError("empty batches are known for batches made of tensors alone")
        self.collate = collate
        self.empty = tree_map(lambda tensor: tensor[:0].clone(), example)

    def __call__(self, records: Sequence[Any]) -> Any:
        """The batch of these records."""
        return self.collate(records) if len(records) else tree_map(torch.clone, self.empty)
