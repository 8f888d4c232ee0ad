"""Held-out clients: those of the training side on whom a search compares its runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import ParameterError
from turnout.data import Records, Target
from turnout.learning.examples import Holdings
from turnout.randomness import SimulationStreams
from turnout.training.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """A workload whose test set is replaced by clients of its training side.

    Guarantees:
        No client is on both sides; each client's side is a coin of its own, which depends on no
        data, so that a client touches either the runs or their scores. The test set is gone.

    Attributes:
        workload: the remaining clients, judged by the records of those held out.
        clients: how many are held out.
        owners: the client, from 0, of each held-out record, int64.
    """

    workload: Workload
    clients: int
    owners: NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload, holdings: Holdings, share: float) -> HeldOut:
        """The clients of a workload, held out with a chance of ``share`` each.

        Raises:
            ParameterError: nobody is held out, or nobody is left; or a law that does not fit.
        """
        population = holdings.population
        streams = SimulationStreams(workload.plan.run.seed)
        out = streams.generator("held-out clients").random(population) < share
        held, kept = np.flatnonzero(out), np.flatnonzero(~out)
        if not held.size or not kept.size or not holdings.counts(held).any():
            expected = f"a share that leaves both sides some of {population:,} clients"
            raise ParameterError("tune.held_out", share, expected)
        ours, theirs = _part(holdings, kept), _part(holdings, held)
        train = workload.data.train
        test = Records(train.inputs[theirs.records], train.labels[theirs.records])
        data = replace(workload.data, test=test, holdings=ours)
        law = workload.plan.law(kept.size)
        left = replace(workload, data=data, population=kept.size, law=law)
        owners = np.repeat(np.arange(held.size), np.diff(theirs.offsets))
        return cls(left, held.size, owners)

    def mean_accuracy(self, predicted: Callable[[], NDArray[np.int64]]) -> float:
        """The mean over held-out clients of the share of a client's records that are right.

        Each client's term is from 0 to 1, and 0 without records, so that one client moves the
        mean by at most one in ``clients``.
        """
        data = self.workload.data
        assert data.target is Target.CLASS
        right = predicted() == data.test.labels
        totals = np.bincount(self.owners, minlength=self.clients)
        shares = np.bincount(self.owners, right, self.clients) / np.maximum(totals, 1)
        return float(shares.mean())


def _part(holdings: Holdings, clients: NDArray[np.int64]) -> Holdings:
    """The holdings of some clients, in their order; records keep their numbers."""
    counts = holdings.counts(clients)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    starts = np.repeat(holdings.offsets[clients] - offsets[:-1], counts)
    return Holdings(offsets, holdings.records[starts + np.arange(offsets[-1])])
