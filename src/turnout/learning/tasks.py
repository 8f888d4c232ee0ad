"""Supervised learning: a model, an objective, and the labelled examples that clients hold.

`SupervisedTask` computes sums of clipped updates and evaluates models. `check_fit` raises a
one-line error, before any training, if model, examples and objective do not fit together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning import metrics
from turnout.learning.examples import Examples, as_floats, rows
from turnout.learning.features import keep_freed_memory, ordered_map
from turnout.learning.gradients import CPU, ClippedSum, Compute, exact_products
from turnout.learning.holdings import Holdings, within
from turnout.learning.local_updates import ClientBatch, LocalTraining, LocalUpdates, local_updates
from turnout.learning.metrics import LOSS, Objective, WholeMetric, build_objective
from turnout.learning.models import Layered, Model
from turnout.learning.module_trials import named_failures
from turnout.learning.modules import ModuleModel

Item = TypeVar("Item")
Result = TypeVar("Result")

BLOCKS = 256
"""Largest number of blocks of one sum. If other machines compute the blocks, they return one vector
of d numbers for each block."""


class Executor(Protocol):
    """Interface of an engine that computes a task's sums of updates, for example on other machines.

    Guarantee: `sums` yields exactly one result for each block, in the order of the blocks. The
    result of a block is `SupervisedTask.block_sum` of that block.
    """

    def sums(
        self,
        task: SupervisedTask,
        parameters: NDArray[np.floating],
        blocks: Sequence[NDArray[np.int64]],
        clip_norm: float,
    ) -> Iterator[UpdateSum]:
        """Sum of the clipped updates of each block of clients, in the order of the blocks.

        Args:
            task: model, examples and settings.
            parameters: shape (d,).
            blocks: numbers of the clients of each block, int64, shape (c,).
            clip_norm: largest ℓ2 norm of a client's update.
        """
        ...


class SupervisedTask:
    """Learning task of clients with labelled examples.

    Guarantees:
        Each client's term of `clipped_sum` has ℓ2 norm at most ``clip_norm``, for all data that
        the client may hold.
        A client without examples, or whose update is not finite or has an ℓ2 norm above 1e30,
        contributes the zero vector and is counted.
        On a CPU the same parameters and clients, in the same order, give the same bits, on any
        number of threads and with any engine on processors of the same kind. On a GPU the last
        bits may differ.
    """

    def __init__(
        self,
        model: Model,
        examples: Examples,
        held_out: Examples,
        *,
        holdings: Holdings | None = None,
        local: LocalTraining | None = None,
        updates: LocalUpdates | None = None,
        objective: Objective | None = None,
        compute: Compute = CPU,
    ) -> None:
        """Build a task from the clients' training examples and held-out test examples.

        Args:
            model: model to train.
            examples: training examples of all clients.
            held_out: examples for `evaluate`.
            holdings: assignment of the examples to clients; by default client ``i`` holds
                example ``i``.
            local: settings of local training; by default one step with learning rate 1.
            updates: computation of the updates; by default the fastest exact one for the model.
            objective: loss and metrics; by default those of the examples' kind of label.
            compute: device and precision.

        Raises:
            ParameterError: the holdings contain an unknown example, or model, examples, loss and
                metrics do not fit together.
        """
        # Without holdings each client has a single example.
        holdings = holdings or Holdings.one_each(len(examples))
        if holdings.records.size and not within(holdings.records, len(examples)):
            raise ParameterError(
                "holdings", holdings.records, f"indices of examples below {len(examples)}"
            )
        # Errors in the model, the loss or the metrics are raised before any training.
        objective = objective or build_objective(examples.target)
        check_fit(model, examples, objective)
        check_fit(model, held_out, objective)
        check_curve(held_out, objective)
        # The fastest exact computation of updates for this model and loss.
        keep_freed_memory()
        self.model = model
        self.objective = objective
        self._updates = updates or local_updates(
            model, local or LocalTraining(), objective.loss, examples, compute
        )
        self._compute = compute
        self._engine: Executor | None = None
        self._holdings = holdings
        self._counts = holdings.sizes
        self._examples, self._held_out = examples, held_out

    def computed_by(self, engine: Executor | None) -> Self:
        """Copy of the task whose sums are computed by the given engine.

        Args:
            engine: engine that computes the sums; None: threads of this process compute them.

        Raises:
            UnsupportedError: an engine is given for a task on a GPU.
        """
        if engine is not None and not self._compute.on_cpu:
            raise UnsupportedError("worker machines compute on CPUs only: set run.device = 'cpu'")
        other = copy.copy(self)
        other._engine = engine
        return other

    @property
    def holdings(self) -> Holdings:
        """Assignment of the examples to the clients."""
        return self._holdings

    def by_record(self) -> Self:
        """Copy of the task in which each training example is a client."""
        other = copy.copy(self)
        other._holdings = Holdings.one_each(len(self._examples))
        other._counts = other._holdings.sizes
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Pickled state without the engine; a copy of the task computes with its own threads."""
        return {**vars(self), "_engine": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the task in another process."""
        keep_freed_memory()
        vars(self).update(state)

    @property
    def dimension(self) -> int:
        """Number of parameters, d."""
        return self.model.dimension

    @property
    def population(self) -> int:
        """Number of clients; clients are numbered from 0."""
        return self._holdings.population

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics of `evaluate`: the headline metric first, the loss last."""
        return self.objective.names

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger headline metric is better."""
        return self.objective.higher_is_better

    def resume_parts(self) -> Mapping[str, object]:
        """Settings and data of the clients' computation, by name, for checkpoints."""
        return {
            "model": self.model,
            "objective": self.objective,
            "updates": self._updates,
            "offsets": self._holdings.offsets,
            "records": self._holdings.records,
            "inputs": self._examples.inputs,
            "labels": self._examples.labels,
            "held-out inputs": self._held_out.inputs,
            "held-out labels": self._held_out.labels,
        }

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Initial parameters, float32, shape (parameters,)."""
        return self.model.initial_parameters(generator)

    def clipped_sum(
        self, parameters: NDArray[np.floating], clients: NDArray[np.integer], clip_norm: float
    ) -> UpdateSum:
        """Sum of the clipped updates of some clients, float64, shape (d,), and the client count.

        Args:
            parameters: shape (d,), read as float32.
            clients: numbers of the clients.
            clip_norm: largest ℓ2 norm of a client's update.

        Raises:
            ParameterError: parameters of another shape, or a client that does not exist.
        """
        # Inputs: parameters on the device, and clients of the population.
        at = self._checked(parameters)
        clients = np.asarray(clients, dtype=np.int64).reshape(-1)
        if clients.size and not within(clients, self.population):
            raise ParameterError(
                "clients", clients, f"client numbers below the population, {self.population}"
            )
        # Sums of blocks, in float64; the blocks depend only on the clients, not on the engine.
        groups = list(self._groups(clients))
        size = -(-len(groups) // BLOCKS)
        total, clipped = np.zeros(self.dimension), 0
        for part in self._block_sums(parameters, at, groups, max(1, size), clip_norm):
            total += part.total
            clipped += part.clipped or 0
        return UpdateSum(total, clients.size, clipped=clipped)

    def block_sum(
        self, parameters: NDArray[np.floating], block: NDArray[np.int64], clip_norm: float
    ) -> UpdateSum:
        """Sum of the clipped updates of one block of clients, added in the given order.

        A block consists of whole groups, so every engine computes the same groups and gets the
        same bits.

        Raises:
            ParameterError: parameters of another shape.
        """
        parts = self._group_sums(self._checked(parameters), list(self._groups(block)), clip_norm)
        return self._merged(list(parts), block.size)

    def _block_sums(
        self,
        parameters: NDArray[np.floating],
        at: Tensor,
        groups: list[NDArray[np.int64]],
        size: int,
        clip_norm: float,
    ) -> Iterator[UpdateSum]:
        """Sum of the clipped updates of each block of ``size`` groups, computed in threads."""
        chosen = [groups[start : start + size] for start in range(0, len(groups), size)]
        if self._engine is not None and len(chosen) > 1:
            blocks = [np.concatenate(each) for each in chosen]
            yield from self._engine.sums(self, parameters, blocks, clip_norm)
            return
        parts = self._group_sums(at, groups, clip_norm)
        for each in chosen:
            yield self._merged(list(islice(parts, len(each))), sum(group.size for group in each))

    def _group_sums(
        self, at: Tensor, groups: list[NDArray[np.int64]], clip_norm: float
    ) -> Iterator[ClippedSum]:
        """Sum of the clipped updates of each group, float32, in order."""

        def summed(some: NDArray[np.int64]) -> ClippedSum:
            return self._updates.clipped_sum(at, self._batch(some).on(self._compute), clip_norm)

        exact_products()
        return self._map(summed, groups)

    def _merged(self, parts: list[ClippedSum], count: int) -> UpdateSum:
        """Total of the groups' sums in float64, added in order, with the number of clients."""
        total = np.zeros(self.dimension)
        for part in parts:
            total += part.total.cpu().numpy()
        return UpdateSum(total, count, clipped=sum(part.clipped for part in parts))

    def updates(
        self,
        parameters: NDArray[np.floating],
        clients: NDArray[np.integer],
        use: Callable[[int, NDArray[np.float32]], Result],
    ) -> Iterator[Result]:
        """Results of the callback ``use``, applied to groups of the clients' unclipped updates.

        Args:
            parameters: shape (d,), read as float32.
            clients: numbers of the clients; clients without examples are in no group.
            use: function of the number of clients in the earlier groups and of a group's updates,
                float32, shape (clients in the group, parameters); it is called in several threads.

        Raises:
            ParameterError: parameters of another shape.
        """
        at, clients = self._checked(parameters), np.asarray(clients, dtype=np.int64)
        groups = list(self._groups(clients))
        starts = np.cumsum([0, *(group.size for group in groups)])
        exact_products()

        def used(number: int) -> Result:
            batch = self._batch(groups[number]).on(self._compute)
            return use(int(starts[number]), self._updates.rows(at, batch).cpu().numpy())

        return self._map(used, list(range(len(groups))))

    def evaluate(self, parameters: NDArray[np.floating]) -> Mapping[str, float]:
        """Metrics on the held-out examples, by name.

        ``loss`` is the mean over examples, in nats if the loss is a cross-entropy.

        Raises:
            ParameterError: parameters of another shape.
        """
        # Batches of held-out examples that fit the cache.
        at = self._checked(parameters)
        chosen, loss, size = self.objective.metrics, self.objective.loss, len(self._held_out)
        keeps = any(isinstance(metric, WholeMetric) for metric in chosen)
        at_once = self._updates.clients_at_once(1)
        batches = [
            np.arange(start, min(start + at_once, size)) for start in range(0, size, at_once)
        ]

        # Totals of loss and metrics for a batch; outputs are kept only if a metric needs them all.
        def scored(index: NDArray[np.int64]) -> tuple[dict[str, tuple[float, int]], Tensor | None]:
            outputs = self._outputs(at, index)
            labels = rows(self._held_out.labels, index)
            with torch.no_grad():
                totals = {LOSS: (float(loss.total(outputs.double(), labels)), index.size)}
                for metric in chosen:
                    if not isinstance(metric, WholeMetric):
                        totals[metric.name] = metric.totals(outputs, labels)
            return totals, outputs if keeps else None

        # Batches are computed in threads and added in order, so results do not vary.
        parts = list(self._map(scored, batches))
        totals = [part[0] for part in parts]
        outputs = torch.cat([part[1] for part in parts if part[1] is not None]) if keeps else None
        labels = torch.tensor(self._held_out.labels)
        found = metrics.values(chosen, totals, outputs, labels)
        return {**found, LOSS: sum(part[LOSS][0] for part in totals) / size}

    def predicted(self, parameters: NDArray[np.floating]) -> NDArray[np.int64]:
        """Class with the highest score for each held-out example, int64, shape ``(n,)``.

        Raises:
            ParameterError: parameters of another shape than (d,).
        """
        at, size = self._checked(parameters), len(self._held_out)
        at_once = self._updates.clients_at_once(1)

        def classes(index: NDArray[np.int64]) -> NDArray[np.int64]:
            outputs = self._outputs(at, index)
            return outputs.argmax(-1).numpy()

        batches = np.split(np.arange(size), range(at_once, size, at_once))
        return np.concatenate(list(self._map(classes, batches)))

    def _checked(self, parameters: NDArray[np.floating]) -> Tensor:
        """Parameters as a float32 tensor on the device, after a check of their shape.

        Matrix products may round differently on memory with another alignment, so NumPy's memory
        is copied, not shared.
        """
        if parameters.shape != (self.dimension,):
            raise ParameterError("parameters", parameters.shape, f"shape ({self.dimension},)")
        return self._compute.take(torch.tensor(np.asarray(parameters, dtype=np.float32)))

    def _map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]:
        """Results of a function on each item, in order; a GPU computes one item at a time."""
        return ordered_map(function, items) if self._compute.on_cpu else map(function, items)

    def _outputs(self, at: Tensor, index: NDArray[np.int64]) -> Tensor:
        """Outputs of the model for some held-out examples."""
        inputs = as_floats(rows(self._held_out.inputs, index))
        return self._updates.logits(at, self._compute.take(inputs)).cpu()

    def _groups(self, clients: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Groups of clients that fit the cache, in decreasing order of their example counts."""
        counts = self._counts[clients]
        order = np.argsort(-counts, kind="stable")
        clients, counts = clients[order], counts[order]
        start, end = 0, int(np.count_nonzero(counts))
        while start < end:
            size = self._updates.clients_at_once(int(counts[start]))
            yield clients[start : min(start + size, end)]
            start += size

    def _batch(self, clients: NDArray[np.int64]) -> ClientBatch:
        """Examples of some clients, padded to one array."""
        records, weights = self._holdings.padded(clients)
        index = records.reshape(-1)
        inputs = as_floats(rows(self._examples.inputs, index))
        labels = rows(self._examples.labels, index)
        return ClientBatch(
            inputs.view(*records.shape, *inputs.shape[1:]),
            labels.view(*records.shape, *labels.shape[1:]),
            torch.from_numpy(weights),
        )


def check_fit(model: Model, examples: Examples, objective: Objective) -> None:
    """Raise an error if model, examples, loss and metrics do not fit together.

    Raises:
        ParameterError: the model does not accept the inputs or has no output for a class or label
            column, or the loss or a metric is for another kind of label.
    """
    if examples.target != objective.target:
        raise ParameterError(
            "target", examples.target, f"{objective.target!r}, the kind of label of the loss"
        )
    index = _telling(examples)
    outputs = _outputs(model, examples, index)
    _check_outputs(examples, outputs)
    _check_loss(objective, outputs, rows(examples.labels, index))
    scores = outputs.shape[-1]
    if objective.target == "class" and scores != 2 and "auc" in objective.names:
        raise ParameterError("model.metrics", "auc", f"two classes, not {scores}")


def _telling(examples: Examples) -> np.ndarray:
    """Index of the first example; for tokens, of the examples with the least and largest token."""
    if examples.inputs.dtype != np.int64:
        return np.zeros(1, dtype=np.int64)
    flat, width = examples.inputs.reshape(-1), int(np.prod(examples.input_shape))
    return np.array([flat.argmin(), flat.argmax()]) // width


def _outputs(model: Model, examples: Examples, index: np.ndarray) -> Tensor:
    """Outputs on some examples, with initial module parameters or zero parameters."""
    # Built-in models take numbers, not tokens.
    inputs = as_floats(rows(examples.inputs, index))
    if isinstance(model, Layered) and not inputs.is_floating_point():
        expected = "numbers; tokens need a custom module with an embedding"
        raise ParameterError("inputs", "int64 tokens", expected)
    # A trial run: an error about shapes becomes one line about the inputs or the module.
    shape = examples.input_shape
    if isinstance(model, ModuleModel):
        taken = f"a module that takes inputs of shape {shape}"
        with named_failures(model, taken), torch.no_grad():
            outputs = model.logits(torch.tensor(model.start), inputs)
    else:
        try:
            with torch.no_grad():
                outputs = model.logits(torch.zeros(model.dimension), inputs)
        except ParameterError:
            raise
        except Exception:  # an error of PyTorch about shapes
            raise ParameterError("inputs", shape, "an input shape that the model accepts") from None
    # The result must be one tensor of floats with one row for each example.
    plain = isinstance(outputs, Tensor) and outputs.is_floating_point()
    if not plain or outputs.shape[:1] != inputs.shape[:1]:
        found = tuple(outputs.shape) if plain else getattr(outputs, "dtype", type(outputs).__name__)
        rows_here = f"with one row for each example, here {len(index)} rows"
        expected = f"a module that returns one tensor of floats {rows_here}"
        raise ParameterError("model.module", found, expected)
    return outputs


def _check_outputs(examples: Examples, outputs: Tensor) -> None:
    """Raise an error if the outputs lack the shape that the labels need."""
    shape, needed = tuple(outputs.shape[1:]), examples.classes
    if examples.target in ("tags", "numbers"):
        if shape != (needed,):
            expected = f"({needed},) outputs for each example, one for each column of labels"
            raise ParameterError("model.module", shape, expected)
        return
    length = examples.labels.shape[1:]
    if len(shape) != len(length) + 1 or shape[:-1] != length:
        wanted = (*length, "classes")
        expected = f"outputs of shape ({', '.join(map(str, wanted))}) for each example"
        raise ParameterError("model.module", shape, expected)
    if needed > shape[-1]:
        raise ParameterError(
            "labels", needed - 1, f"classes from 0 to {shape[-1] - 1}, the outputs of the model"
        )


def _check_loss(objective: Objective, outputs: Tensor, labels: Tensor) -> None:
    """Raise an error if the loss rejects these outputs and labels."""
    try:
        objective.loss.each(outputs, labels)
    except ParameterError:
        raise
    except Exception as error:  # whatever the custom loss raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        expected = f"a loss of outputs and labels with one number for each example ({reason})"
        raise ParameterError("model.loss", objective.loss.name, expected) from None


def check_curve(held_out: Examples, objective: Objective) -> None:
    """Raise an error if the metrics include AUC and all held-out examples have the same label.

    Raises:
        ParameterError: all examples are of one class, or agree in every tag.
    """
    labels = held_out.labels
    if "auc" in objective.names and bool((labels == labels[:1]).all()):
        raise ParameterError("model.metrics", "auc", "a test set with positive and negative labels")
