"""Histograms of oriented gradients agree with a computation pixel by pixel."""

import math

import numpy as np
import pytest
import torch

from turnout.learning.features import (
    BLOCK,
    CELL,
    DIRECTIONS,
    apply_features,
    histograms_of_gradients,
)

SIDE = 12
CELLS = SIDE // CELL


def gradient(image: np.ndarray, row: int, column: int) -> tuple[float, float]:
    """Differences of the neighbours of a pixel; pixels of the border are repeated."""

    def at(r, c):
        return image[min(max(r, 0), SIDE - 1), min(max(c, 0), SIDE - 1)]

    return at(row + 1, column) - at(row - 1, column), at(row, column + 1) - at(row, column - 1)


def cells(image: np.ndarray) -> np.ndarray:
    """Votes of each pixel for two directions and up to four cells: (cells, cells, directions)."""
    found = np.zeros((CELLS, CELLS, DIRECTIONS))
    for row in range(SIDE):
        for column in range(SIDE):
            down, right = gradient(image, row, column)
            at = (math.atan2(down, right) % (2 * math.pi)) / (2 * math.pi) * DIRECTIONS
            low, share = int(at) % DIRECTIONS, at - int(at)
            for direction, part in ((low, 1 - share), ((low + 1) % DIRECTIONS, share)):
                for i in range(CELLS):
                    for j in range(CELLS):
                        near = [
                            max(0.0, 1 - abs(pixel + 0.5 - (cell + 0.5) * CELL) / CELL) / CELL
                            for pixel, cell in ((row, i), (column, j))
                        ]
                        found[i, j, direction] += math.hypot(down, right) * part * math.prod(near)
    return found


def by_hand(image: np.ndarray) -> np.ndarray:
    """Features of one image: (directions, place in the block, block)."""
    votes, blocks = cells(image), []
    for i in range(CELLS - BLOCK + 1):
        for j in range(CELLS - BLOCK + 1):
            block = votes[i : i + BLOCK, j : j + BLOCK].reshape(-1, DIRECTIONS).T
            block = np.minimum(block / math.sqrt((block**2).sum() + 1e-2), 0.2)
            blocks.append(block / math.sqrt((block**2).sum() + 1e-3))
    found = np.stack(blocks, axis=-1)
    found -= found.mean((1, 2), keepdims=True)
    return found / np.sqrt((found**2).mean((1, 2), keepdims=True) + 1e-3)


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(3).uniform(0, 1, (SIDE, SIDE)).astype(np.float32)


def test_orientation_histograms_agree_with_their_definition(image):
    found = histograms_of_gradients(torch.tensor(image[None, None]))[0].numpy()
    assert found == pytest.approx(by_hand(image.astype(float)).ravel(), abs=1e-4)


def test_a_rotated_image_has_rotated_orientation_histograms(image):
    """A half turn of the image turns each gradient by half of the circle and swaps positions."""
    pair = np.stack([image, image[::-1, ::-1]])[:, None].copy()
    one, other = histograms_of_gradients(torch.tensor(pair)).numpy().reshape(2, DIRECTIONS, -1)
    turned = np.roll(other, DIRECTIONS // 2, axis=0)[:, ::-1]
    assert one == pytest.approx(turned, abs=1e-4)
    assert abs(one - other).max() > 0.1


def test_hog_features_hardly_depend_on_brightness(image):
    three = np.stack([image, 0.5 + 0.5 * image, 0.25 * image])
    found = apply_features("hog", three).astype(float)
    for other in found[1:]:
        assert np.corrcoef(found[0], other)[0, 1] > 0.98
    assert not apply_features("hog", np.full((1, SIDE, SIDE), 0.4, np.float32)).any()


def test_the_colour_channel_with_the_longest_gradient_determines_the_orientation(image):
    faint = 0.01 * np.random.default_rng(4).uniform(0, 1, image.shape)
    steep = np.arange(SIDE, dtype=np.float32) * np.ones((SIDE, 1), np.float32)
    colour = np.stack([faint, steep, faint], axis=-1).astype(np.float32)
    assert np.array_equal(apply_features("hog", colour[None]), apply_features("hog", steep[None]))
