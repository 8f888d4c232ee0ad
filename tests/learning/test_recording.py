"""Recorded functions return the bits of the function in every call, thread and shape."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

from turnout.learning import gradients, local_updates
from turnout.learning.gradients import ClientBatch, LocalTraining
from turnout.learning.local_updates import CALLS_BEFORE, LayeredUpdates, Recorded
from turnout.learning.models import build_model


def function(first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Sums whose bits depend on their order."""
    product = torch.mm(first, second)
    return torch.stack([product, product.exp()]).sum(0), (first.T @ product).sum(1)


def pair(size: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(size, 70, generator=generator),
        torch.randn(70, 9, generator=generator),
    )


def same(some: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def test_a_recorded_function_returns_the_same_bits_as_the_original():
    made = Recorded(function)
    for call in range(CALLS_BEFORE + 4):
        tensors = pair(33, seed=call)
        assert same(made(*tensors), function(*tensors))
        assert made.shapes == (call >= CALLS_BEFORE - 1)
    other = pair(34)
    assert same(made(*other), function(*other))
    assert made.shapes == 1


def test_the_number_of_recorded_input_shapes_is_limited(monkeypatch):
    monkeypatch.setattr(local_updates, "LARGEST_COUNT", 2)
    monkeypatch.setattr(local_updates, "CALLS_BEFORE", 1)
    made = Recorded(function)
    for size in (3, 4, 5, 3, 5):
        assert same(made(*pair(size)), function(*pair(size)))
    assert made.shapes == 2


def test_functions_that_cannot_be_recorded_run_in_python(monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("not on this Python")

    monkeypatch.setattr(local_updates, "CALLS_BEFORE", 1)
    monkeypatch.setattr(torch.jit, "trace", refused)
    made = Recorded(function)
    assert same(made(*pair(5)), function(*pair(5)))
    assert made.shapes == 0


@pytest.mark.parametrize("name", ["logistic", "tanh-cnn-13k", "tanh-cnn-26k"])
@pytest.mark.parametrize("examples", [1, 3])
def test_updates_have_the_same_bits_with_and_without_recording(name, examples):
    """The bits also agree for an update that is not finite, and in two threads at a time."""
    model = build_model(name, (28, 28), 10)
    updates = LayeredUpdates(model, LocalTraining())
    random = np.random.default_rng(2)
    inputs = torch.from_numpy(random.random((12, examples, 28, 28), np.float32))
    labels = torch.from_numpy(random.integers(0, 10, (12, examples)))
    weights = torch.full((12, examples), 1 / examples)
    parameters = torch.from_numpy(random.normal(size=model.dimension).astype(np.float32) / 20)
    broken = inputs.clone()
    broken[4, 0, 3, 3] = torch.nan
    local_updates._recorded.cache_clear()

    def sums(_: int) -> list[Tensor]:
        return [
            updates.clipped_sum(parameters, ClientBatch(some, labels, weights), 0.5).total
            for some in (inputs, broken)
        ]

    first = sums(0)
    with ThreadPoolExecutor(2) as workers:
        found = list(workers.map(sums, range(2 * CALLS_BEFORE)))
    assert local_updates._recorded(updates).shapes == 2
    for each in found:
        assert same(tuple(each), tuple(first))
    assert not torch.equal(first[0], first[1])


def test_a_recorded_function_accepts_another_clip_norm():
    updates = LayeredUpdates(build_model("logistic", (4,), 3), LocalTraining())
    batch = ClientBatch(torch.ones(2, 1, 4), torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1))
    parameters = torch.zeros(updates.model.dimension)
    for _ in range(CALLS_BEFORE):
        updates.clipped_sum(parameters, batch, 1e-3)
    assert local_updates._recorded(updates).shapes == 1
    for clip_norm in (1e-3, 2e-3):
        length = float(updates.clipped_sum(parameters, batch, clip_norm).total.norm())
        assert length == pytest.approx(2 * clip_norm * (1 - gradients.MARGIN), rel=1e-6)
    assert float(updates.clipped_sum(parameters, batch, 100.0).total.norm()) > 1
