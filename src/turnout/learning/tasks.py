"""Classification: a model, and the labelled examples that clients hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import ParameterError
from turnout.learning.examples import Examples, as_floats, as_tensor
from turnout.learning.holdings import Holdings, within
from turnout.learning.local_updates import (
    ClientBatch,
    LocalTraining,
    LocalUpdates,
    local_updates,
)
from turnout.learning.models import Model
from turnout.learning.parallel import keep_freed_memory, ordered_map


def _check_fit(model: Model, examples: Examples) -> None:
    """Examples that the model can take: their shape, and no more classes than it has scores for."""
    one = as_floats(as_tensor(examples.inputs[:1]))
    try:
        scores = model.logits(torch.zeros(model.dimension), one).shape[-1]
    except RuntimeError:
        shape = examples.input_shape
        raise ParameterError("inputs", shape, "a shape that the model takes") from None
    if examples.classes > scores:
        largest = examples.classes - 1
        raise ParameterError("labels", largest, f"classes from 0 to {scores - 1}, the model's")


class ClassificationTask:
    """Clients hold labelled examples; the model gives a score to each class.

    Guarantees:
        Each client's contribution to `clipped_sum` has ℓ2 norm at most ``clip_norm``, whatever
        the client holds.
        A client whose update is not finite, or above 1e30, or who holds nothing, contributes
        the zero vector and is counted.
        The same parameters and clients (in the same order) give the same bits, on any number
        of threads.
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
    ) -> None:
        """A task over the examples that clients hold between them, evaluated on those held out.

        By default client ``i`` holds example ``i``, and computes one gradient in the fastest
        exact way.
        """
        holdings = holdings or Holdings.one_each(len(examples))
        if holdings.records.size and not within(holdings.records, len(examples)):
            raise ParameterError("holdings", holdings.records, f"examples below {len(examples)}")
        _check_fit(model, examples)
        _check_fit(model, held_out)
        keep_freed_memory()
        self.model = model
        self._updates = updates or local_updates(model, local or LocalTraining())
        self._holdings = holdings
        self._counts = np.diff(holdings.offsets)
        self._inputs, self._labels = as_tensor(examples.inputs), as_tensor(examples.labels)
        self._held_out = as_tensor(held_out.inputs), as_tensor(held_out.labels)

    @property
    def dimension(self) -> int:
        """Parameters, d."""
        return self.model.dimension

    @property
    def population(self) -> int:
        """Clients, numbered from 0."""
        return self._holdings.population

    def resume_parts(self) -> Mapping[str, object]:
        """Settings and data of what clients compute, by name, for checkpoints."""
        held_out_inputs, held_out_labels = self._held_out
        return {
            "model": self.model,
            "updates": self._updates,
            "offsets": self._holdings.offsets,
            "records": self._holdings.records,
            "inputs": self._inputs.numpy(),
            "labels": self._labels.numpy(),
            "held-out inputs": held_out_inputs.numpy(),
            "held-out labels": held_out_labels.numpy(),
        }

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """The initial parameters, float32, (d,)."""
        return self.model.initial_parameters(generator)

    def clipped_sum(
        self, parameters: NDArray[np.floating], clients: NDArray[np.integer], clip_norm: float
    ) -> UpdateSum:
        """The sum of these clients' updates, clipped; ``parameters`` (d,) are read as float32.

        Raises:
            ParameterError: parameters of another shape, or a client that does not exist.
        """
        at = self._checked(parameters)
        clients = np.asarray(clients, dtype=np.int64).reshape(-1)
        if clients.size and not within(clients, self.population):
            raise ParameterError("clients", clients, f"below the population, {self.population}")

        def partial(some: NDArray[np.int64]) -> NDArray[np.float32]:
            return self._updates.clipped_sum(at, self._batch(some), clip_norm).numpy()

        total = np.zeros(self.dimension)
        for part in ordered_map(partial, list(self._groups(clients))):
            total += part  # float32 within a batch, float64 between batches
        return UpdateSum(total, clients.size)

    def evaluate(self, parameters: NDArray[np.floating]) -> Mapping[str, float]:
        """``accuracy``, the share of held-out examples whose class gets the highest score, and
        ``loss``, their mean cross-entropy in nats.
        """
        at = self._checked(parameters)
        at_once = self._updates.clients_at_once(1)
        inputs, labels = (part.split(at_once) for part in self._held_out)

        def scored(i: int) -> tuple[int, float]:
            logits = self._updates.logits(at, as_floats(inputs[i]))
            loss = functional.cross_entropy(logits.double(), labels[i], reduction="sum")
            return int((logits.argmax(1) == labels[i]).sum()), float(loss)

        scores = list(ordered_map(scored, range(len(labels))))
        size = len(self._held_out[1])
        return {
            "accuracy": sum(score[0] for score in scores) / size,
            "loss": sum(score[1] for score in scores) / size,
        }

    def _checked(self, parameters: NDArray[np.floating]) -> Tensor:
        """The parameters as a tensor in memory of PyTorch's own alignment.

        Matrix products may round differently on differently aligned memory, so numpy's memory
        is copied rather than shared.
        """
        if parameters.shape != (self.dimension,):
            raise ParameterError("parameters", parameters.shape, f"shape ({self.dimension},)")
        return torch.tensor(np.asarray(parameters, dtype=np.float32))

    def _groups(self, clients: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Clients with data, the largest holdings first, in groups that fit the cache."""
        counts = self._counts[clients]
        order = np.argsort(-counts, kind="stable")
        clients, counts = clients[order], counts[order]
        start, end = 0, int(np.count_nonzero(counts))
        while start < end:
            size = self._updates.clients_at_once(int(counts[start]))
            yield clients[start : min(start + size, end)]
            start += size

    def _batch(self, clients: NDArray[np.int64]) -> ClientBatch:
        """The examples of these clients, padded to a rectangle."""
        records, weights = self._holdings.padded(clients)
        index = torch.from_numpy(records.reshape(-1))
        inputs = as_floats(self._inputs.index_select(0, index))
        return ClientBatch(
            inputs.view(*records.shape, *inputs.shape[1:]),
            self._labels.index_select(0, index).view(records.shape),
            torch.from_numpy(weights),
        )
