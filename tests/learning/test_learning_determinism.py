"""The same inputs give the same bits, on any number of threads."""

import numpy as np
import pytest
import torch
from plain_clients import case

from turnout.learning.features import apply_features


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("path", ["layered", "vmapped"])
@pytest.mark.parametrize("name", ["logistic", "tanh-cnn-13k"])
def test_repeated_clipped_sums_have_the_same_bits_on_any_number_of_threads(name, path, threads):
    made = case(name, population=600, clip_norm=0.3)
    clients = np.random.default_rng(0).permutation(600)
    found = []
    for count in (1, 1, 2, 3):
        threads(count)
        found.append(made.task(path).clipped_sum(made.parameters, clients).total)
        assert torch.get_num_threads() == count
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_clipped_sums_do_not_depend_on_the_memory_alignment_of_parameters():
    made = case("tanh-cnn-13k", population=80)
    task = made.task()
    shifted = np.empty(made.parameters.size + 3, dtype=np.float32)[3:]
    shifted[:] = made.parameters
    first = task.clipped_sum(made.parameters, np.arange(80)).total
    assert np.array_equal(first, task.clipped_sum(shifted, np.arange(80)).total)


def test_evaluations_have_the_same_bits_on_more_threads(threads):
    made = case("tanh-cnn-13k", population=300)
    task = made.task()
    threads(1)
    first = task.task.evaluate(made.parameters)
    threads(2)
    assert task.task.evaluate(made.parameters) == first


def test_features_have_the_same_bits_on_more_threads(threads):
    images = np.random.default_rng(0).integers(0, 256, (70, 8, 8), dtype=np.uint8)
    threads(1)
    first = apply_features("scattering", images)
    threads(2)
    assert np.array_equal(first, apply_features("scattering", images))


def test_a_supervised_task_does_not_change_its_inputs():
    made = case("tanh-cnn-13k", many=True)
    before = made.parameters.copy(), made.examples.inputs.copy()
    made.task().clipped_sum(made.parameters, np.arange(9))
    made.task().task.evaluate(made.parameters)
    assert np.array_equal(before[0], made.parameters)
    assert np.array_equal(before[1], made.examples.inputs)
