"""Independent assignment as a batch sampler of PyTorch, for any loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.integrations.assignment import Assignment, assignment_law
from turnout.randomness import Source
from turnout.schemes import ParticipationLaw

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
    >>> batches.law
    CheckIn(window=40, windows=4, probability=1.0)
    >>> len(batches), sum(len(batch) for batch in batches)
    (40, 2000)
    """

    def __init__(self, law: ParticipationLaw, records: int, source: Source | None = None) -> None:
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
        """The batches of `assignment_law`, drawn from the operating system's randomness."""
        law = assignment_law(batches, epochs, kept=kept, picks=picks, probability=probability)
        return cls(law, records, source)

    @property
    def law(self) -> ParticipationLaw:
        """The law that the sampler deals by and `turnout.price` prices."""
        return self.assignment.law

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
