"""Clients with different data: digits of three classes each, and Shakespeare's roles.

Each partition has a version for choosing hyperparameters (seed 0), made only of training data, and
the version that is measured.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from turnout.data import mnist
from turnout.learning.examples import Examples
from turnout.learning.features import apply_features
from turnout.learning.holdings import Holdings
from turnout.learning.models import Model, logistic
from turnout.learning.personal import PersonalTask, judged_on_own_classes

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "shakespeare"))
from roles import CHARACTERS, roles

CLASSES, OWN, JUDGED = 10, 3, 40
CHOOSING = 54_000
"""Number of training images for choosing hyperparameters; the rest are used for testing."""
CONTEXT, LEARNED, SAID_LATER = 3, 400, 100
"""Number of characters before the predicted one, of training and of test characters of a role."""

Part = tuple[NDArray[Any], NDArray[np.int64], Holdings]
"""Inputs, labels, and the client of each example."""


@cache
def images() -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """MNIST features of unit norm, and labels."""
    data, made = mnist(), dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]()
    for name, part in (("train", data.train), ("test", data.test)):
        features = apply_features("deskewed | hog-cells", part.inputs).astype(np.float32)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        made[name] = features, np.asarray(part.labels, dtype=np.int64)
    return made


def digits(clients: int, each: int, seed: int, permuted: bool) -> PersonalTask:
    """Clients with images of three classes; ``permuted``: each client has its own order of labels.

    With seed 0 all images are from MNIST's training set.
    """
    rng = np.random.default_rng(seed)
    (x, y), (t, u) = images()["train"], images()["test"]
    if seed == 0:
        x, y, t, u = x[:CHOOSING], y[:CHOOSING], x[CHOOSING:], y[CHOOSING:]
    chosen = _dealt(y, clients, each, rng)
    held = _equal_shares(clients, each)
    tested = judged_on_own_classes(y[chosen], held, u, JUDGED, rng)
    x, y, t, u = x[chosen], y[chosen], t[tested.records], u[tested.records]
    if permuted:
        names = np.stack([rng.permutation(CLASSES) for _ in range(clients)])
        y = names[np.repeat(np.arange(clients), each), y]
        u = names[np.repeat(np.arange(clients), np.diff(tested.offsets)), u]
    tested = Holdings(tested.offsets, np.arange(len(u)))
    return personal((x, y, held), (t, u, tested), CLASSES)


def _dealt(
    labels: NDArray[np.int64], clients: int, each: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Indices of each client's images, of three random classes in equal shares."""
    places = [rng.permutation(np.flatnonzero(labels == digit)) for digit in range(CLASSES)]
    records, taken = list[NDArray[np.int64]](), np.zeros(CLASSES, dtype=np.int64)
    for _ in range(clients):
        for digit in rng.permutation(CLASSES)[:OWN]:
            # If clients need more images of a class than there are, images are dealt again.
            start = taken[digit] % (places[digit].size - each // OWN)
            records.append(places[digit][start : start + each // OWN])
            taken[digit] += each // OWN
    return np.concatenate(records)


def next_characters(seed: int) -> PersonalTask:
    """One client per role: the next character after three others, tested on later text.

    With seed 0 the characters for training are split in two, and the second part is the test data.
    """
    place = {character: k for k, character in enumerate(CHARACTERS)}
    texts = [np.array([place[one] for one in text.lower() if one in place]) for _, text in roles()]
    length = CONTEXT + LEARNED + SAID_LATER
    said = np.stack([text[:length] for text in texts if text.size >= length])
    learned, ends = (4 * LEARNED // 5, LEARNED) if seed == 0 else (LEARNED, LEARNED + SAID_LATER)
    before = np.stack([said[:, CONTEXT - k - 1 : -k - 1] for k in range(CONTEXT)], axis=2)
    inputs = np.eye(len(CHARACTERS), dtype=np.float16)[before].reshape(*before.shape[:2], -1)
    labels, clients = said[:, CONTEXT:], len(said)
    parts = list[Part]()
    for part in (slice(learned), slice(learned, ends)):
        size = labels[:, part].shape[1]
        flat = inputs[:, part].reshape(clients * size, -1), labels[:, part].reshape(-1)
        parts.append((*flat, _equal_shares(clients, size)))
    return personal(parts[0], parts[1], len(CHARACTERS))


def personal(learned: Part, judged: Part, classes: int) -> PersonalTask:
    """Logistic-regression task with training and test examples of each client."""
    model = logistic((learned[0].shape[1],), classes)
    (x, y, held), (t, u, tested) = learned, judged
    examples, others = Examples(x, y, "class"), Examples(t, u, "class")
    return PersonalTask(model, examples, others, holdings=held, tested=tested)


def _equal_shares(clients: int, each: int) -> Holdings:
    """Examples of each client, one client after another."""
    return Holdings(np.arange(0, clients * each + 1, each), np.arange(clients * each))


@dataclass(frozen=True, slots=True)
class Started:
    """Model with given initial parameters."""

    model: Model
    start: NDArray[np.float32]

    @property
    def dimension(self) -> int:
        """Number of parameters d."""
        return self.model.dimension

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """The given parameters, shape (d,)."""
        return self.start

    def logits(self, parameters: Tensor, inputs: Tensor) -> Tensor:
        """Scores of the model."""
        return self.model.logits(parameters, inputs)


def started(task: PersonalTask, start: NDArray[np.floating]) -> PersonalTask:
    """The task with other initial parameters."""
    model = Started(task.model, np.asarray(start, dtype=np.float32))
    examples, judged = task._examples, task._held_out
    return PersonalTask(model, examples, judged, holdings=task._holdings, tested=task._tested)
