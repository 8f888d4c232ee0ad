"""Contextual bandits with a known distribution of contexts: a synthetic task, and replayed MNIST.

Imported by bandits.py. In the MNIST task the context of a client is an image, an action names a
digit, and the reward is 1 for the right digit and −1 otherwise. Images are reduced by public
functions: 8×8 pixels, and the class probabilities of three classifiers trained on the public UCI
digits. φ(a, x) contains 2p(a | x) − 1 for each classifier, which is the mean reward if the
classifier is calibrated, and a parameter weights the classifiers. The distribution of contexts is
that of the test images. The clients have the 60,000 training images, each once, through a CSV log.
The mean reward is only approximately linear in φ, so confidence widths are not proved here.
"""

from __future__ import annotations

import csv
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.bandits import (
    LoggedEnvironment,
    best_features,
    contextual_environment,
    parameter_net,
    read_log,
)
from turnout.randomness import SimulationStreams

FloatArray = NDArray[np.float64]
FINENESS = 0.2
_MARGIN, _CELL = 4, 8  # margin of MNIST's digits in pixels; side of UCI's images
_WIDTH, _WARMTH = 0.15, 0.05  # squared bandwidths of the two kernels, relative to squared norms


def synthetic(streams: SimulationStreams) -> Any:
    """Synthetic task: 2,000 contexts, five actions with features in ℝ³, a net of fineness 0.2."""
    generator = streams.generator("bandit", "contexts")
    drawn = generator.standard_normal((2000, 5, 3))
    drawn /= np.maximum(np.linalg.norm(drawn, axis=2, keepdims=True), 1.0)
    truth = generator.standard_normal(3)
    return contextual_environment(drawn, truth / np.linalg.norm(truth), parameter_net(3, 0.2))


def mnist(streams: SimulationStreams) -> LoggedEnvironment:
    """Task with MNIST's training images, in the order of this seed."""
    logged = _logged()
    order = streams.generator("bandit", "order").permutation(len(logged.outcomes))
    return LoggedEnvironment(logged.actions, logged.outcomes[order])


@lru_cache(maxsize=1)
def _logged() -> LoggedEnvironment:
    """Features of the candidate actions for the test images, and the log of the training images."""
    from turnout.data import mnist as mnist_data

    held = mnist_data()
    net = parameter_net(3, FINENESS)
    candidates = net[net.min(axis=1) >= -1e-9]  # a negative weight would prefer unlikely labels
    actions = best_features(features_of(held.test.inputs), candidates)
    return replayed(
        actions, rewards_of(features_of(held.train.inputs), held.train.labels, candidates)
    )


def replayed(actions: FloatArray, rewards: FloatArray) -> LoggedEnvironment:
    """Rewards written to a log and read again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["client", *(f"reward_{i}" for i in range(len(actions)))])
            writer.writerows([i, *row] for i, row in enumerate(rewards.astype(int).tolist()))
        return read_log(path, actions)


def rewards_of(features: FloatArray, labels: NDArray[Any], candidates: FloatArray) -> FloatArray:
    """Rewards of shape (n, K): 1 where a candidate chooses the label, −1 elsewhere."""
    columns = [np.argmax(features @ candidate, axis=1) == labels for candidate in candidates]
    return 2.0 * np.column_stack(columns) - 1.0


def features_of(images: NDArray[Any]) -> FloatArray:
    """Features φ(a, x), shape (n, 10, 3): 2p − 1 of each public classifier, divided by √3."""
    seen = _reduced(images)
    scores = np.concatenate([_posteriors(seen[i : i + 2000]) for i in range(0, len(seen), 2000)])
    return (2.0 * scores - 1.0) / np.sqrt(scores.shape[2])


def _reduced(images: NDArray[Any]) -> FloatArray:
    """Inner 20×20 pixels of each image averaged into 8×8 cells, of norm 1, shape (n, 64)."""
    inner = np.asarray(images, np.float32).reshape(len(images), 28, 28)
    inner = inner[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    fine = np.repeat(np.repeat(inner, 2, axis=1), 2, axis=2)
    return _of_norm_one(fine.reshape(len(images), _CELL, 5, _CELL, 5).mean(axis=(2, 4)))


def _of_norm_one(images: NDArray[Any]) -> FloatArray:
    flat = np.asarray(images, np.float64).reshape(len(images), -1)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)


@lru_cache(maxsize=1)
def _public() -> tuple[FloatArray, NDArray[Any]]:
    """Training and test images of the UCI digits, and their classes."""
    from turnout.data import digits

    held = digits()
    inputs = np.concatenate([held.train.inputs, held.test.inputs])
    return _of_norm_one(inputs), np.concatenate([held.train.labels, held.test.labels])


def _posteriors(seen: FloatArray) -> FloatArray:
    """p(a | x) by a linear discriminant, nearest neighbours and class means, shape (n, 10, 3)."""
    known, classes = _public()
    members = np.eye(10)[classes]
    means = (members.T @ known) / members.sum(axis=0)[:, None]
    within = known - means[classes]
    covariance = within.T @ within / len(known) + 2e-3 * np.eye(known.shape[1])
    discriminant = np.linalg.solve(covariance, means.T)
    linear = seen @ discriminant - 0.5 * np.sum(means.T * discriminant, axis=0)
    near = np.exp((seen @ known.T - 1.0) * 2.0 / _WARMTH) @ members
    far = (2.0 * seen @ means.T - np.sum(means**2, axis=1)) / _WIDTH
    near = near / np.maximum(near.sum(axis=1, keepdims=True), 1e-300)
    return np.stack([_softmax(linear / 4.0), near, _softmax(2.0 * far)], axis=2)


def _softmax(scores: FloatArray) -> FloatArray:
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)
