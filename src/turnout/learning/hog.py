"""Histograms of oriented gradients: where an image's edges are, by their direction.

The image is cut into cells of 4 by 4 pixels. Each pixel votes for the direction of its gradient,
with its length, in the nearest two of 12 directions and the nearest cells. Blocks of 2 by 2 cells
are brought to a common length, so that neither light nor contrast counts. Being fixed and public,
this costs no privacy.

Source: Dalal and Triggs, *Histograms of oriented gradients for human detection* (CVPR 2005), with
    directions around the whole circle and blocks normalised and cut off as there ("L2-Hys"). At
    the end each direction is shifted and scaled over the image as scattering maps are, so that
    clipping treats images nearly alike.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from turnout.core.errors import ParameterError

CELL, DIRECTIONS, BLOCK = 4, 12, 2
_LARGEST = 0.2
"""Share of a block's length beyond which a vote does not count more."""


def histograms_of_gradients(images: Tensor) -> Tensor:
    """Block histograms, each direction of mean 0 and variance 1; float32, shape ``(n, d)``.

    These are float32 in [0, 1], shape ``(n, channels, height, width)``; of several channels each
    pixel has the gradient of the one where it is longest. With cells in h rows and w columns, d is
    48 (h − 1)(w − 1).

    Raises:
        ParameterError: sides that are no multiples of 4, or below 8.
    """
    return _standardized(_blocks(images))


def cell_histograms(images: Tensor) -> Tensor:
    """Cells' histograms, averaged over the blocks that each is in; float32, shape ``(n, d)``.

    As `histograms_of_gradients`, with a third of the values: d is 12 h w. The fewer parameters a
    model has, the less noise it takes.
    """
    rows, columns = (side // CELL for side in images.shape[-2:])
    blocks = _blocks(images).flatten(1, 2)
    sums, times = (
        functional.fold(each, (rows, columns), BLOCK)
        for each in (blocks, torch.ones_like(blocks[:1, : BLOCK * BLOCK]))
    )
    return _standardized((sums / times).flatten(2)[:, :, None])


def _blocks(images: Tensor) -> Tensor:
    """Normalised histograms of 2 by 2 cells, shape ``(n, 12, 4, blocks)``.

    Raises:
        ParameterError: sides that are no multiples of 4, or below 8.
    """
    rows, columns = images.shape[-2:]
    for side in (rows, columns):
        if side < BLOCK * CELL or side % CELL:
            expected = f"a multiple of {CELL} of at least {BLOCK * CELL}"
            raise ParameterError("image side", side, expected)
    votes = _votes(*_gradients(images))
    cells = _cells(rows) @ votes @ _cells(columns).T
    blocks = functional.unfold(cells, BLOCK).unflatten(1, (DIRECTIONS, BLOCK * BLOCK))
    return _unit(_unit(blocks, 1e-2).clamp_max(_LARGEST), 1e-3)


def _standardized(histograms: Tensor) -> Tensor:
    """Each direction of (n, 12, …) shifted and scaled to mean 0, variance 1, flat."""
    flat = histograms.flatten(2)
    centred = flat - flat.mean(2, keepdim=True)
    scale = (centred.square().mean(2, keepdim=True) + 1e-3).sqrt()
    return (centred / scale).flatten(1)


def _gradients(images: Tensor) -> tuple[Tensor, Tensor]:
    """Differences of a pixel's neighbours, down and to the right, shape ``(n, rows, columns)``."""
    padded = functional.pad(images, (1,) * 4, mode="replicate")
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    right = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    longest = (down.square() + right.square()).argmax(1, keepdim=True)
    return down.gather(1, longest)[:, 0], right.gather(1, longest)[:, 0]


def _votes(down: Tensor, right: Tensor) -> Tensor:
    """Each pixel's votes, shared between the nearest two directions; (n, 12, rows, columns)."""
    length = (down.square() + right.square()).sqrt()
    angle = torch.remainder(torch.atan2(down, right), 2 * math.pi) * (DIRECTIONS / (2 * math.pi))
    away = (angle[:, None] - torch.arange(DIRECTIONS)[:, None, None]).abs()
    away = torch.minimum(away, DIRECTIONS - away)
    return (1 - away).clamp_min(0) * length[:, None]


def _unit(blocks: Tensor, floor: float) -> Tensor:
    """Blocks (n, 12, 4, blocks) scaled to length 1; those of hardly any gradient stay small."""
    return blocks / (blocks.square().sum((1, 2), keepdim=True) + floor).sqrt()


@cache
def _cells(side: int) -> Tensor:
    """Weight of each pixel (columns) in each cell (rows): 1 at its centre, 0 a cell away."""
    centres = (torch.arange(side // CELL) + 0.5) * CELL
    pixels = torch.arange(side) + 0.5
    return (1 - (pixels - centres[:, None]).abs() / CELL).clamp_min(0) / CELL
