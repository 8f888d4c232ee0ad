"""Descent along updates of single records, which clients draw in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.learning.fedsgd import FedSGD
from turnout.learning.tasks import SupervisedTask


@dataclass(frozen=True)
class RecordSGD(FedSGD):
    """`FedSGD` whose clients answer with updates of some of their records, each by itself.

    Source: thesis, Algorithm 4.3.1 (CLDP-SGD): s of a client's m records, drawn uniformly without
        replacement in each step.
    """

    task: SupervisedTask

    @cached_property
    def _by_record(self) -> SupervisedTask:
        return self.task.by_record()

    def require_records(self, count: int) -> None:
        """Nothing where every client holds so many records.

        Raises:
            ParameterError: one holds fewer.
        """
        fewest = int(self.task.holdings.sizes.min())
        if fewest < count:
            expected = f"at most {fewest}, the records of the client that holds fewest"
            raise ParameterError("randomizer.messages", count, expected)

    def record_updates(
        self,
        sent: NDArray[np.floating],
        clients: NDArray[np.integer],
        count: int,
        generator: np.random.Generator,
        use: Callable[[int, int, NDArray[np.floating]], Any],
    ) -> Iterator[Any]:
        """The results of ``use`` on updates of ``count`` drawn records of each of these clients.

        Args:
            sent: shape (d,).
            clients: who takes part; each holds at least ``count`` records.
            count: s.
            generator: draws the records.
            use: gets j, for each client's j-th record, the number of clients in the groups before
                and a group's updates, (c, d).
        """
        drawn = self.task.holdings.sampled(np.asarray(clients, np.int64), count, generator)
        for j, records in enumerate(drawn.T):

            def used(first: int, rows: NDArray[np.floating], j: int = j) -> Any:
                return use(j, first, rows)

            yield from self._by_record.updates(sent, records, used)
