"""Ray: training on a cluster, and private estimates of data in Ray Data.

`RayEngine` sends blocks of a step's clients to actors and adds their sums. Parameters are sent to
each machine once a step, and the task (with the clients' data) once a run, both through Ray's
shared memory. Blocks depend on the step's clients alone and are added in order, so the results
equal those of one process, however blocks are distributed.

`RayRows` streams a data set of Ray Data with one row for each client. Only tallies are kept, so the
memory does not grow with the number of rows. An estimate under shuffled trust first counts the
rows, so it reads the data set twice; both times the data set must return the same rows.

Anyone who can reach a cluster's ports may run code on the cluster and read the clients' data; ε
covers neither. Use it for simulations, on machines that may read the data.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError, TurnoutError
from turnout.core.optional import unavailable
from turnout.core.values import canonical
from turnout.estimation.private.columns import (
    BLOCK_ROWS,
    batch_entries,
    batch_vectors,
    chosen_columns,
)
from turnout.learning.losses import PLAN_MODULES
from turnout.learning.tasks import SupervisedTask

try:
    import ray
    from ray import cloudpickle
    from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError, RayTaskError
except ImportError as error:
    raise unavailable(error, __name__, "ray") from None

LOSSES = 3
"""Number of calls that a step may lose in addition to one for each worker."""

_LOST = (RayActorError, ObjectLostError, OutOfMemoryError)

Blocks = Sequence[NDArray[np.int64]]


class LostWorkersError(TurnoutError):
    """Error: a step lost more calls to dead workers than are permitted."""


class _Sums(NamedTuple):
    """Sum of each block, shape (blocks, d), and number of clipped updates of each block."""

    totals: NDArray[np.float64]
    clipped: list[int]


class _Worker:
    """Actor that computes on one thread of a machine, and keeps the task of its last call."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._key = ""
        self._task: Any = None

    def ready(self) -> int:
        """Process id of the worker; the call returns when the process runs."""
        return os.getpid()

    def sums(
        self, task: list[Any], parameters: NDArray[np.floating], blocks: Blocks, clip_norm: float
    ) -> _Sums:
        """Sums of the given blocks; ``task`` is a list that holds one reference to the task.

        The task is fetched only once.
        """
        (reference,) = task
        if self._task is None or self._key != reference.hex():
            self._key, self._task = reference.hex(), ray.get(reference)
        found = [self._task.block_sum(parameters, block, clip_norm) for block in blocks]
        return _Sums(np.stack([one.total for one in found]), [one.clipped or 0 for one in found])


class RayEngine:
    """Engine of `turnout.train`: a context in which a cluster's processors compute updates.

    Guarantees:
        The bits of a run are those of one process on processors of the same kind, for any number of
        workers. A stopped run may be continued with the engine or without it.
        A block of a lost worker is computed again, and counted once.

    Args:
        address: address of a cluster, such as "auto" or "ray://host:10001"; None: a new cluster on
            this machine, which ends with the context. A running Ray instance is used as it is.
        workers: number of processors; None: all.

    Raises:
        ParameterError: ``workers`` is below 1; on entering the context, no cluster at this address,
            or more workers than free processors.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        if workers is not None:
            checks.count(workers=workers)
        self.address, self._asked = address, workers
        self._started = False
        self._actor: Any = ray.remote(num_cpus=1)(_Worker)
        self._ready: list[Any] = []
        self._starting: dict[Any, Any] = {}
        self._task: tuple[SupervisedTask, Any] | None = None

    @property
    def workers(self) -> int:
        """Number of processors in use, including those that are starting."""
        return len(self._ready) + len(self._starting)

    def __enter__(self) -> Self:
        if not ray.is_initialized():
            self._connect()
            self._started = True
        try:
            free = int(ray.available_resources().get("CPU", 0))
            wanted = self._asked or max(1, free)
            if wanted > free:
                expected = f"at most {free}, the processors that are free"
                raise ParameterError("workers", wanted, expected)
            for _ in range(wanted):
                self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in [*self._ready, *self._starting.values()]:
            ray.kill(worker)
        self._ready, self._starting, self._task = [], {}, None
        if self._started:
            ray.shutdown()
            self._started = False

    def _connect(self) -> None:
        """Connect to the cluster, or start one on this machine."""
        logging.getLogger("ray").setLevel(logging.ERROR)
        options: dict[str, Any] = {"include_dashboard": False} if self.address is None else {}
        try:
            ray.init(
                self.address or "local", log_to_driver=False, logging_level=logging.ERROR, **options
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            said = str(error).strip().splitlines()
            reason = said[0] if said else "no cluster answers"
            expected = f"the address of a Ray cluster, but {reason}"
            raise ParameterError("address", self.address, expected) from None

    def _start(self) -> None:
        """Start one more worker, which receives calls after it reports that it is ready."""
        worker = self._actor.remote()
        self._starting[worker.ready.remote()] = worker

    def sums(
        self,
        task: SupervisedTask,
        parameters: NDArray[np.floating],
        blocks: Blocks,
        clip_norm: float,
    ) -> Iterator[UpdateSum]:
        """Sum of each block's clipped updates, in order.

        Args:
            task: the task with the clients' data.
            parameters: the model's parameters, shape (d,).
            blocks: numbers of the clients of each block.
            clip_norm: largest ℓ2 norm of a client's update.

        Raises:
            LostWorkersError: the step lost more calls to dead workers than are permitted.
            ParameterError: the engine is not open.
        """
        if not self.workers:
            raise ParameterError("engine", self, "an open engine, inside its with statement")
        shared, sent = [self._shared(task)], ray.put(parameters)
        # One call for each worker: a call costs some milliseconds of driver, raylet and worker
        # together.
        calls = min(self.workers, len(blocks))
        ends = [len(blocks) * number // calls for number in range(calls + 1)]
        chunks = [blocks[start:end] for start, end in pairwise(ends)]

        def submit(worker: Any, number: int) -> Any:
            return worker.sums.remote(shared, sent, chunks[number], clip_norm)

        for chunk, found in zip(chunks, self._in_order(submit, len(chunks)), strict=True):
            parts = zip(found.totals, chunk, found.clipped, strict=True)
            for total, block, clipped in parts:
                yield UpdateSum(total, block.size, clipped=clipped)

    def _shared(self, task: SupervisedTask) -> Any:
        """Reference to the task in the cluster's memory; the task is sent only once."""
        if self._task is None or self._task[0] is not task:
            for name, module in list(sys.modules.items()):
                if name.startswith(PLAN_MODULES):
                    cloudpickle.register_pickle_by_value(module)
            self._task = (task, ray.put(task))
        return self._task[1]

    def _in_order(self, submit: Callable[[Any, int], Any], count: int) -> Iterator[_Sums]:
        """Results of ``count`` calls, in order; calls to lost workers are repeated."""
        waiting, running, found = deque(range(count)), {}, {}
        free, given, lost = list(self._ready), 0, 0
        # Give waiting calls to free workers, then wait for the next result or start of a worker.
        while given < count:
            while waiting and free:
                worker, number = free.pop(), waiting.popleft()
                running[submit(worker, number)] = (worker, number)
            done = ray.wait([*running, *self._starting], num_returns=1)[0][0]
            worker, number = running.pop(done, (self._starting.pop(done, None), None))
            try:
                value = ray.get(done)
            # A lost worker is replaced, and its call goes first.
            except _LOST:
                lost += 1
                if lost > self.workers + LOSSES:
                    raise LostWorkersError(f"a step lost {lost} calls to dead workers") from None
                if number is not None:
                    waiting.appendleft(number)
                self._ready = [other for other in self._ready if other is not worker]
                self._start()
                continue
            except RayTaskError as error:
                raise error.cause from None
            # A worker that just started has no result.
            free.append(worker)
            if number is None:
                self._ready.append(worker)
            else:
                found[number] = value
            # Yield results as far as they are complete in order.
            while given in found:
                yield found.pop(given)
                given += 1


try:
    from ray.data import Dataset
except ImportError as error:
    raise unavailable(error, __name__, "data", "ray") from None


class RayRows:
    """Rows of a Ray data set for `turnout.estimate_frequencies` and `turnout.estimate_mean`.

    Args:
        dataset: data set of tables with named columns, such as `ray.data.read_parquet` returns.

    Raises:
        ParameterError: an object of another type, or a data set without rows.
    """

    def __init__(self, dataset: Dataset) -> None:
        schema = dataset.schema() if isinstance(dataset, Dataset) else None
        if schema is None:
            given = type(dataset).__name__
            raise ParameterError("dataset", given, "a ray.data.Dataset with rows")
        self._dataset = dataset
        self._keys = {canonical(name): name for name in schema.names}
        self.names: Sequence[str] = [canonical(name) for name in schema.names]

    def entries(self, column: str | None) -> Iterator[NDArray[Any] | list[Any]]:
        """Blocks of one column, each of shape (rows,).

        Args:
            column: name of the column; None if the data set has only one.

        Raises:
            ParameterError: no column has this name, or None and several columns.
        """
        chosen = () if column is None else (column,)
        return map(batch_entries, self._batches(chosen, single=True))

    def vectors(self, columns: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """Blocks of the named numeric columns, each of shape (rows, columns).

        Raises:
            ParameterError: a column does not exist or holds no numbers.
        """
        return map(batch_vectors, self._batches(columns, single=False))

    def _batches(self, columns: Sequence[str], *, single: bool) -> Iterator[Any]:
        """Arrow record batches of the named columns, in the given order."""
        names = [self._keys[name] for name in chosen_columns(columns, self.names, single=single)]
        size = max(1, BLOCK_ROWS // len(names))
        whole = set(names) == set(self._keys.values())
        some = self._dataset if whole else self._dataset.select_columns(names)
        tables: Any = some.iter_batches(batch_size=size, batch_format="pyarrow")
        for table in tables:
            yield from table.select(names).to_batches()
