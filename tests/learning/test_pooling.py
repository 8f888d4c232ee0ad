"""The fast max pooling has the values and gradients of PyTorch's own, to the bit."""

from typing import Any

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from turnout.learning import local_updates
from turnout.learning.local_updates import fast_max_pooling

SETTINGS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": 2, "stride": 1},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "dilation": 2},
]


def images() -> torch.Tensor:
    """Two images of three channels for each of six clients; whole numbers, so with many ties."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 3, (6, 2, 3, 9, 8), generator=generator).float()


def results(settings: dict[str, Any], fast: bool) -> list[torch.Tensor]:
    """Pooled values, and the gradients of a weighted sum of them."""
    taken = images()
    values = functional.max_pool2d(taken.flatten(0, 1), **settings)
    weights = torch.arange(values.numel()).view(6, 2, *values.shape[1:]).float()

    def total(some: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (functional.max_pool2d(some, **settings) * weights).sum()

    def both() -> list[torch.Tensor]:
        pooled = vmap(lambda some: functional.max_pool2d(some, **settings))(taken)
        return [pooled, vmap(grad(total))(taken, weights)]

    if not fast:
        return both()
    with fast_max_pooling():
        return both()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_max_pooling_has_the_values_and_gradients_of_pytorch(settings):
    for mine, theirs in zip(results(settings, True), results(settings, False), strict=True):
        assert torch.equal(mine, theirs)


def test_all_calls_of_max_pooling_use_the_fast_version(mutate):
    taken = []
    own = local_updates._pooled

    def counted(*args: Any, **kwargs: Any) -> Any:
        taken.append(args)
        return own(*args, **kwargs)

    mutate(local_updates, "_pooled", counted)
    with fast_max_pooling():
        torch.nn.MaxPool2d(2)(images()[0])
        functional.max_pool2d(images()[0], 2)
        torch.max_pool2d(images()[0], 2)
    functional.max_pool2d(images()[0], 2)
    assert len(taken) == 3


def test_max_pooling_with_indices_or_of_single_images_uses_pytorch():
    taken = images()[0]
    with fast_max_pooling():
        values, indices = functional.max_pool2d(taken, 2, return_indices=True)
        single = functional.max_pool2d(taken[0], 2)
    expected = functional.max_pool2d(taken, 2, return_indices=True)
    assert torch.equal(values, expected[0])
    assert torch.equal(indices, expected[1])
    assert torch.equal(single, values[0])


def test_nan_is_the_maximum_in_max_pooling_as_in_pytorch():
    taken = images()
    taken[0, 0, 0, 3, 3] = torch.nan
    with fast_max_pooling():
        pooled = vmap(lambda some: functional.max_pool2d(some, 2))(taken)
    plain = functional.max_pool2d(taken.flatten(0, 1), 2).view(pooled.shape)
    assert torch.equal(pooled.isnan(), plain.isnan())
    assert pooled.isnan().any()
