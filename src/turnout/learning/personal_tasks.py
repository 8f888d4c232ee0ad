"""Tasks whose clients are judged one by one, each on held-out examples of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from turnout.core.errors import ParameterError
from turnout.core.showing import shows_shapes
from turnout.learning.examples import Examples, as_floats, rows
from turnout.learning.holdings import Holdings, within
from turnout.learning.models import Model
from turnout.learning.tasks import SupervisedTask

ACCURACY, OWN_CLASSES = "personal_accuracy", "own_class_accuracy"
_LARGEST_MODELS, _LARGEST_EXAMPLES = 1 << 21, 1 << 13
"""Floats of models, and examples, that a group of clients has at once."""

Models = Callable[[NDArray[np.int64]], Tensor]
"""The models of some clients, float32, (c, d)."""


@shows_shapes()
@dataclass(frozen=True, slots=True)
class Group:
    """Some clients' examples, padded to a rectangle by each one's own.

    Attributes:
        inputs: shape (c, m, …).
        labels: int64, shape (c, m).
        weights: of the examples in a client's mean, float32, shape (c, m).
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor


class PersonalTask(SupervisedTask):
    """Clients hold labelled examples, and each is judged on held-out examples of its own.

    Its metrics are means over clients, each counting the same: ``personal_accuracy`` among all
    classes, ``own_class_accuracy`` among the classes of the client's own training examples, and
    ``loss``. They are for whoever runs a simulation: they are made of clients' own labels, which no
    ε covers.

    Args beyond those of `SupervisedTask`:
        tested: which client is judged by which held-out examples; each by one at least.

    Raises:
        ParameterError: labels that are no classes, or clients without examples.
    """

    def __init__(
        self,
        model: Model,
        examples: Examples,
        held_out: Examples,
        *,
        holdings: Holdings,
        tested: Holdings,
        **settings: Any,
    ) -> None:
        super().__init__(model, examples, held_out, holdings=holdings, **settings)
        if examples.target != "class":
            raise ParameterError("examples.target", examples.target, "'class' for personal models")
        if tested.population != holdings.population:
            expected = f"{holdings.population} clients, as in the holdings"
            raise ParameterError("tested", tested.population, expected)
        if tested.records.size and not within(tested.records, len(held_out)):
            raise ParameterError("tested", tested.records, f"examples below {len(held_out)}")
        for name, held in (("holdings", holdings), ("tested", tested)):
            idle = np.flatnonzero(np.diff(held.offsets) == 0)
            if idle.size:
                raise ParameterError(name, f"client {idle[0]}", "one example or more a client")
        self._tested = tested

    def resume_parts(self) -> Mapping[str, object]:
        """Settings and data of what clients compute and are judged by, by name."""
        own = {"tested offsets": self._tested.offsets, "tested records": self._tested.records}
        return {**super().resume_parts(), **own}

    def groups(self, clients: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """The clients in order, in groups that fit the cache."""
        most = int(self._holdings.counts(clients).max(initial=1))
        size = max(1, min(_LARGEST_MODELS // self.dimension, _LARGEST_EXAMPLES // most))
        return (clients[start : start + size] for start in range(0, clients.size, size))

    def held(self, clients: NDArray[np.int64]) -> Group:
        """The examples that some clients learn from."""
        return _group(self._examples, self._holdings, clients)

    def evaluate(self, parameters: NDArray[np.floating]) -> Mapping[str, float]:
        """The clients' metrics of one model for all."""
        one = self._checked(parameters)
        return self.judged(lambda clients: one.expand(clients.size, -1))

    @torch.no_grad()
    def judged(self, models: Models) -> dict[str, float]:
        """The clients' metrics of a model each; ``models`` is asked for one group at a time."""
        totals = torch.zeros(3, dtype=torch.float64)
        for clients in self.groups(np.arange(self.population)):
            test = _group(self._held_out, self._tested, clients)
            logits = vmap(self.model.logits)(models(clients), test.inputs).double()
            known = self._own_classes(clients, logits.shape[-1])
            among = logits.masked_fill(~known.unsqueeze(1), -torch.inf)
            losses = -logits.log_softmax(-1).gather(-1, test.labels.unsqueeze(-1)).squeeze(-1)
            counted = (test.weights > 0).double()
            right = [scores.argmax(-1) == test.labels for scores in (logits, among)]
            for k, each in enumerate((*right, losses)):
                totals[k] += ((each * counted).sum(1) / counted.sum(1)).sum()
        means = (totals / self.population).tolist()
        return dict(zip((ACCURACY, OWN_CLASSES, "loss"), means, strict=True))

    def _own_classes(self, clients: NDArray[np.int64], classes: int) -> Tensor:
        """The classes of each client's own training examples, bool, (c, classes)."""
        records, _ = self._holdings.padded(clients)
        labels = rows(self._examples.labels, records.reshape(-1)).view(records.shape)
        return torch.zeros(clients.size, classes, dtype=torch.bool).scatter_(1, labels, True)


def judged_on_own_classes(
    labels: NDArray[np.int64],
    holdings: Holdings,
    held_out: NDArray[np.int64],
    most: int,
    generator: np.random.Generator,
) -> Holdings:
    """Held-out examples for each client: ``most`` at most, drawn among those of its own classes.

    Args:
        labels: of the examples that clients hold, shape (n,).
        holdings: whose they are.
        held_out: labels of the held-out examples, shape (h,).
        most: examples a client.
        generator: draws them.

    Raises:
        ParameterError: no held-out example has any class of some client.
    """
    offsets, chosen = [0], list[NDArray[np.int64]]()
    for client in range(holdings.population):
        own = holdings.records[holdings.offsets[client] : holdings.offsets[client + 1]]
        places = np.flatnonzero(np.isin(held_out, np.unique(labels[own])))
        if not places.size:
            expected = f"examples of the classes of client {client}"
            raise ParameterError("held_out", f"{held_out.size} labels", expected)
        chosen.append(np.sort(generator.permutation(places)[:most]))
        offsets.append(offsets[-1] + chosen[-1].size)
    return Holdings(np.array(offsets), np.concatenate(chosen))


def _group(examples: Examples, holdings: Holdings, clients: NDArray[np.int64]) -> Group:
    """Some clients' examples as a rectangle."""
    records, weights = holdings.padded(clients)
    index = records.reshape(-1)
    inputs, labels = as_floats(rows(examples.inputs, index)), rows(examples.labels, index)
    return Group(
        inputs.view(*records.shape, *inputs.shape[1:]),
        labels.view(records.shape),
        torch.from_numpy(weights),
    )
