"""Batch sampler of PyTorch whose batches have the participation that the accountant computes.

`AssignedBatches` works with any training loop, and `turnout.integrations.opacus` uses the class. An
`Assignment` draws the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.integrations.assignment import Assignment, assigned_participation
from turnout.randomness import Source
from turnout.schemes import Participation

try:
    import torch
    from torch.utils._pytree import tree_flatten, tree_map
    from torch.utils.data import DataLoader, IterableDataset, Sampler, default_collate
except ImportError as error:
    raise unavailable(error, __name__, "opacus") from None


class AssignedBatches(Sampler[list[int]]):
    """Batch sampler in which each record independently draws its batches of an epoch.

    Each iteration is one epoch, or the rest of an epoch. Sizes of batches vary, and a batch may be
    empty: `loader` returns a DataLoader with all batches, empty or not. A loop that clips each
    record's gradient, adds noise and divides by ``expected_batch_size`` has the guarantee of
    ``Scheme(noise, participation, relation, unit="example")``.

    Args:
        participation: CheckIn, FixedAssignment or KSubset.
        records: number of records, at least 1.
        source: source of all draws; None: the operating system's randomness.

    Attributes:
        assignment: the batches, with counts of the returned and the released batches.

    >>> batches = AssignedBatches.of(2000, batches=40, epochs=4)
    >>> batches.participation
    CheckIn(window=40, windows=4, probability=1.0)
    >>> len(batches), sum(len(batch) for batch in batches)
    (40, 2000)
    """

    def __init__(
        self, participation: Participation, records: int, source: Source | None = None
    ) -> None:
        self.assignment = Assignment(participation, records, source)

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
        """Sampler with the participation that `assigned_participation` returns.

        Args:
            records: number of records, at least 1.
            batches: number of batches of an epoch; public.
            epochs: number of epochs of the whole run.
            kept: see `assigned_participation`.
            picks: see `assigned_participation`.
            probability: see `assigned_participation`.
            source: source of all draws; None: the operating system's randomness.

        Raises:
            ParameterError: a value outside its domain; see `assigned_participation`.
        """
        participation = assigned_participation(
            batches, epochs, kept=kept, picks=picks, probability=probability
        )
        return cls(participation, records, source)

    @property
    def participation(self) -> Participation:
        """Participation of the records in batches; `turnout.price` computes its ε."""
        return self.assignment.participation

    @property
    def expected_batch_size(self) -> float:
        """Mean number of records of a batch: the divisor of a batch's sum."""
        return self.assignment.expected_batch_size

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.assignment.epoch())

    def __len__(self) -> int:
        return self.assignment.batches

    def loader(self, dataset: Any, **options: Any) -> DataLoader[Any]:
        """DataLoader of the sampler's batches, including the empty batches.

        Args:
            dataset: a data set of tensors with as many records as the sampler.
            options: options of DataLoader.

        Raises:
            ParameterError: a data set of another length.
            UnsupportedError: a data set that is a stream, or batches that are not made of tensors.
        """
        if isinstance(dataset, IterableDataset):
            raise UnsupportedError("records of a stream cannot be assigned to batches")
        if len(dataset) != self.assignment.records:
            expected = f"{self.assignment.records} records, as in the sampler"
            raise ParameterError("dataset", len(dataset), expected)
        collate: Any = options.pop("collate_fn", None) or default_collate
        if not isinstance(collate, WithEmptyBatches):
            collate = WithEmptyBatches(collate, collate([dataset[0]]))
        return _Loader(dataset, batch_sampler=self, collate_fn=collate, **options)

    def state_dict(self) -> dict[str, Any]:
        """State to resume from; keep it as secret as the data."""
        return self.assignment.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a run after the batches that a saved state counts as used.

        Raises:
            ParameterError: see `Assignment.load_state_dict`.
        """
        self.assignment.load_state_dict(state)


class _Loader(DataLoader[Any]):
    """Loader that reports to the assignment the number of batches that its workers prefetched."""

    def __iter__(self) -> Any:
        assert isinstance(self.batch_sampler, AssignedBatches)
        assignment = self.batch_sampler.assignment
        handed = assignment.dealt
        for batch in super().__iter__():
            handed += 1
            assignment.ahead = assignment.dealt - handed
            yield batch


class WithEmptyBatches:
    """Collate function that also accepts an empty list, and then returns a batch without rows.

    Args:
        collate: collate function for batches that are not empty.
        example: collated batch, whose shapes and types the empty batch has; its values are not
            kept.

    Raises:
        UnsupportedError: the example is not made of tensors alone.
    """

    def __init__(self, collate: Callable[[Sequence[Any]], Any], example: Any) -> None:
        if not all(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(example)[0]):
            raise UnsupportedError("batches may be empty, so they must be made of tensors alone")
        self.collate = collate
        self.empty = tree_map(lambda tensor: tensor[:0].clone(), example)

    def __call__(self, records: Sequence[Any]) -> Any:
        """Batch of the given records, which may be none."""
        return self.collate(records) if len(records) else tree_map(torch.clone, self.empty)
