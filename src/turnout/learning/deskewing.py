"""Deskewing: a character moved to the middle and set upright, by its own ink alone."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_LEAST_INK, _LEAST_VARIANCE = 1e-6, 1e-3


def deskewed(images: Tensor) -> Tensor:
    """Each image sheared along its rows until its ink leans neither way, and centred.

    Ink is what is above 0. The slant is the covariance of an image's ink across and down by its
    variance down; rows move by it, and the centre of mass comes to the middle. An image without
    ink stays as it is. Made for handwriting, which slants; it says nothing about other images.

    Args:
        images: float32 in [0, 1], shape ``(n, height, width)``.

    Source: LeCun, Bottou, Bengio and Haffner, *Gradient-based learning applied to document
        recognition* (Proceedings of the IEEE, 1998), §III, for a linear classifier.
    """
    height, width = images.shape[1:]
    down, right = torch.arange(height) - (height - 1) / 2, torch.arange(width) - (width - 1) / 2
    ink = images.sum((1, 2)).clamp_min(_LEAST_INK)
    y = (images.sum(2) @ down / ink)[:, None]
    x = (images.sum(1) @ right / ink)[:, None]
    both = torch.einsum("nij,ni,nj->n", images, down - y, right - x)
    height_variance = torch.einsum("nij,ni->n", images, (down - y).square()) / ink
    slant = (both / ink / height_variance.clamp_min(_LEAST_VARIANCE))[:, None, None]
    rows = (down + y)[:, :, None].expand(-1, -1, width)
    columns = right + x[:, :, None] + slant * down[:, None]
    grid = torch.stack([columns / ((width - 1) / 2), rows / ((height - 1) / 2)], dim=-1)
    moved = functional.grid_sample(images[:, None], grid, align_corners=True)[:, 0]
    return moved.clamp(0, 1)
