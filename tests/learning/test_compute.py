"""Devices and precisions may change the last bits of an update, but never its clip norm."""

import numpy as np
import pytest
import torch

from turnout.core.errors import ParameterError
from turnout.learning.examples import Examples
from turnout.learning.gradients import CPU, Compute, Precision, compute_on
from turnout.learning.local_updates import (
    CROSS_ENTROPY,
    LayeredUpdates,
    LocalTraining,
    SingleUpdates,
    VmappedUpdates,
    local_updates,
)
from turnout.learning.models import Layered, build_model
from turnout.learning.tasks import SupervisedTask

HALF = Compute("cpu", Precision.BFLOAT16)
CLIP, CLIENTS, SIDE = 0.02, 24, 28


def network() -> Layered:
    return build_model("tanh-cnn-13k", (SIDE, SIDE), 10)


def task(compute: Compute, updates: SingleUpdates | VmappedUpdates | None = None) -> SupervisedTask:
    """Task in which each client holds one image."""
    random = np.random.default_rng(1)
    images = random.random((CLIENTS, SIDE, SIDE), np.float32)
    examples = Examples(images, random.integers(0, 10, CLIENTS))
    return SupervisedTask(network(), examples, examples, compute=compute, updates=updates)


def start(made: SupervisedTask) -> np.ndarray:
    return made.initial_parameters(np.random.default_rng(2))


def contributions(made: SupervisedTask, clip_norm: float) -> np.ndarray:
    at = start(made)
    return np.stack([made.clipped_sum(at, np.array([i]), clip_norm).total for i in range(CLIENTS)])


def test_updates_computed_in_bfloat16_never_exceed_the_clip_norm():
    norms = np.linalg.norm(contributions(task(HALF), CLIP), axis=1)
    assert (norms <= CLIP).all()
    assert (norms >= CLIP * (1 - 2e-6)).all()


def test_forward_and_backward_passes_are_computed_in_bfloat16():
    """Negative control: in float32 the gradients would be the same."""
    exact, half = (contributions(task(compute), 1e6) for compute in (CPU, HALF))
    errors = np.linalg.norm(half - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert (errors > 1e-4).all()
    assert (errors < 0.1).all()


def test_updates_of_single_clients_and_by_vmap_agree_in_bfloat16():
    model, local = network(), LocalTraining(2, 0.5)
    sums = [
        made.clipped_sum(start(made), np.arange(CLIENTS), 1e6).total
        for made in (
            task(HALF, VmappedUpdates(model, local, CROSS_ENTROPY, HALF)),
            task(HALF, SingleUpdates(model, local, CROSS_ENTROPY, HALF)),
        )
    ]
    assert np.linalg.norm(sums[0] - sums[1]) < 0.02 * np.linalg.norm(sums[0])


def test_layered_updates_are_used_only_in_float32():
    kinds = {type(local_updates(network(), LocalTraining(), compute=c)) for c in (HALF,)}
    assert kinds == {VmappedUpdates}
    assert isinstance(local_updates(network(), LocalTraining()), LayeredUpdates)


def test_matrix_products_of_clipped_sums_have_full_float32_precision():
    torch.set_float32_matmul_precision("medium")
    try:
        made = task(CPU)
        made.clipped_sum(start(made), np.arange(3), CLIP)
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_device_auto_selects_an_available_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert compute_on("auto").device == compute_on("cuda").device == "cuda"
    assert compute_on("cpu").on_cpu
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert compute_on("auto").on_cpu
    with pytest.raises(ParameterError, match=r"run\.device = 'cuda'.*a GPU"):
        compute_on("cuda")


def test_all_tensors_of_a_sum_and_an_evaluation_are_moved_to_the_device(monkeypatch):
    taken: list[tuple[int, ...]] = []

    def counted(self: Compute, tensor: torch.Tensor) -> torch.Tensor:
        taken.append(tuple(tensor.shape))
        return tensor

    made = task(HALF)
    monkeypatch.setattr(Compute, "take", counted)
    made.clipped_sum(start(made), np.arange(5), CLIP)
    assert taken == [(made.dimension,), (5, 1, SIDE, SIDE), (5, 1), (5, 1)]
    taken.clear()
    made.evaluate(start(made))
    assert taken == [(made.dimension,), (CLIENTS, SIDE, SIDE)]
