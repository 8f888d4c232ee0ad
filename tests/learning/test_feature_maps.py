"""Features are fixed functions of one image, and scattering agrees with its definition."""

import numpy as np
import pytest
import torch

from turnout.core.errors import ParameterError
from turnout.learning.features import MAPS, PADDING, apply_features, scattering

SIDE = 12
SIZE = SIDE + 2 * PADDING


def images(count: int, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 1, (count, side, side)).astype(np.float32)


def wrapped(function) -> np.ndarray:
    """Function of offsets (rows, columns), summed over all periods of the torus."""
    total = 0
    for down in range(-3, 4):
        for right in range(-3, 4):
            rows, columns = np.mgrid[:SIZE, :SIZE]
            total = total + function(rows + down * SIZE, columns + right * SIZE)
    return total


def wavelet(scale: int, orientation: int) -> np.ndarray:
    """Morlet wavelet, computed in space."""
    width, angle = 0.8 * 2**scale, (3 - orientation) * np.pi / 8
    frequency = 0.75 * np.pi / 2**scale

    def envelope(y, x):
        along = y * np.cos(angle) + x * np.sin(angle)
        across = -y * np.sin(angle) + x * np.cos(angle)
        return np.exp(-(along**2 + across**2 / 4) / (2 * width**2))

    def wave(y, x):
        return envelope(y, x) * np.exp(1j * frequency * (y * np.cos(angle) + x * np.sin(angle)))

    gauss, gabor = wrapped(envelope), wrapped(wave)
    return (gabor - gabor.sum() / gauss.sum() * gauss) * 0.5 / (2 * np.pi * width**2)


def convolved(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Circular convolution, term by term."""
    total = np.zeros(image.shape, dtype=complex)
    for row in range(SIZE):
        for column in range(SIZE):
            total += kernel[row, column] * np.roll(image, (row, column), (0, 1))
    return total


def smoothed(image: np.ndarray, spacing: int) -> np.ndarray:
    """Gaussian of width 1.6 pixels around every fourth pixel that is not padding."""
    at = np.arange(0, SIZE, spacing)
    centres = PADDING + 4 * np.arange(SIDE // 4)
    weights = sum(
        np.exp(-((at[None] - centres[:, None] + k * SIZE) ** 2) / (2 * 1.6**2))
        for k in range(-3, 4)
    )
    weights = weights / weights.sum(1, keepdims=True)
    return weights @ image @ weights.T


def test_scattering_features_agree_with_their_definition():
    image = images(1)[0]
    found = scattering(torch.tensor(image[None]))[0].numpy()
    assert found.shape == (MAPS, SIDE // 4, SIDE // 4)
    padded = np.pad(image.astype(float), PADDING, mode="reflect")
    assert found[0] == pytest.approx(smoothed(padded, 1), abs=1e-5)
    for k in (0, 3, 6):
        fine = np.abs(convolved(padded, wavelet(0, k)))
        assert found[1 + k] == pytest.approx(smoothed(fine, 1), abs=1e-5)
        coarse = np.abs(convolved(padded, wavelet(1, k)))[::2, ::2]
        assert found[9 + k] == pytest.approx(smoothed(coarse, 2), abs=1e-5)
        second = np.abs(convolved(fine, wavelet(1, 5)))[::2, ::2]
        assert found[17 + 8 * k + 5] == pytest.approx(smoothed(second, 2), abs=1e-5)


def test_wavelet_coefficients_of_a_constant_image_are_zero():
    maps = scattering(torch.full((1, SIDE, SIDE), 0.7))[0]
    assert maps[0].numpy() == pytest.approx(0.7, abs=1e-6)
    assert maps[1:].abs().max() < 1e-6


def test_scattering_features_are_normalised_by_channel_group():
    found = apply_features("scattering", images(3)).astype(np.float32)
    assert found.shape == (3, MAPS * 9)
    groups = found.reshape(3, 27, 27)
    assert groups.mean(2) == pytest.approx(0, abs=1e-2)
    assert (np.linalg.norm(found, axis=1) <= 1.001 * np.sqrt(MAPS * 9)).all()


@pytest.mark.parametrize("name", ["standardized", "scattering", "deskewed | scattering + hog"])
def test_features_of_an_image_do_not_depend_on_other_images(name):
    some = images(40)
    whole = apply_features(name, some).astype(np.float32)
    alone = apply_features(name, some[33:34]).astype(np.float32)
    assert whole[33:34] == pytest.approx(alone, abs=2e-3)


def test_standardized_images_have_mean_zero_and_variance_one():
    found = apply_features("standardized", (255 * images(4)).astype(np.uint8)).astype(float)
    assert found.shape == (4, SIDE, SIDE)
    assert found.mean((1, 2)) == pytest.approx(0, abs=1e-3)
    assert found.var((1, 2)) == pytest.approx(1, abs=1e-2)
    assert not apply_features("standardized", np.full((1, 4, 4), 9, dtype=np.uint8)).any()


def test_the_pixels_feature_returns_images_unchanged():
    some = images(2)
    assert apply_features("pixels", some) is some


def test_each_channel_of_a_colour_image_is_scattered_separately():
    colour = np.random.default_rng(2).uniform(0, 1, (2, SIDE, SIDE, 3)).astype(np.float32)
    found = apply_features("scattering", colour).reshape(2, 3, -1)
    for channel in range(3):
        alone = apply_features("scattering", np.ascontiguousarray(colour[..., channel]))
        assert found[:, channel].astype(float) == pytest.approx(alone.astype(float), abs=2e-3)


def test_invalid_feature_names_and_image_shapes_are_refused():
    with pytest.raises(
        ParameterError,
        match="pixels, standardized, deskewed, scattering, hog, hog-cells or module:function",
    ):
        apply_features("fourier", images(1))
    with pytest.raises(ParameterError, match="square images"):
        apply_features("scattering", np.zeros((2, 8, 12), dtype=np.float32))
    with pytest.raises(ParameterError, match="a multiple of 4"):
        apply_features("scattering", np.zeros((2, 10, 10), dtype=np.float32))
    with pytest.raises(ParameterError, match="a multiple of 4 of at least 8"):
        apply_features("hog", np.zeros((2, 8, 10), dtype=np.float32))
    with pytest.raises(ParameterError, match=r"images \(height, width\)"):
        apply_features("hog", np.zeros((2, 64), dtype=np.float32))
    with pytest.raises(ParameterError, match="grey images"):
        apply_features("deskewed", np.zeros((2, 8, 8, 3), dtype=np.float32))
