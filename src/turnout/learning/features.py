"""Fixed public feature functions, applied to each input once before training.

A feature function computes the features of one input from that input alone, so it has no privacy
cost. `build_features` parses an expression such as "deskewed | scattering + hog" into a
`FeatureMap`: "|" applies functions one after another, and "+" applies them to the same input and
joins their results. `apply_features` computes the features with all threads.

**Deskewing** (`deskewed`) centres a character and removes its slant.

**Histograms of oriented gradients** (`histograms_of_gradients`). The image is divided into cells of
4 by 4 pixels. The histogram of a cell has 12 directions. The gradient of each pixel adds its length
to the two nearest directions in the histograms of the nearest cells, with interpolation weights.
Each block of 2 by 2 cells is then scaled to length 1, so that brightness and contrast hardly change
the result.

Source: Dalal and Triggs, *Histograms of oriented gradients for human detection* (CVPR 2005), with
    directions around the whole circle and the block normalisation "L2-Hys" of that paper. As an
    addition to the paper, the values of each direction are shifted and scaled over the image to
    mean 0 and variance 1, so that images have similar norms and clipping treats them alike.

**Wavelet scattering** (`scattering`) of order two with J = 2 scales and L = 8 orientations computes
81 smooth maps of an image, with a quarter of its width: the smoothed image (order 0), the moduli of
the image's wavelet transforms at both scales (16 maps, order 1), and the moduli of the coarse
wavelet transforms of the fine maps of order 1 (64 maps, order 2). With the same noise, a linear
model on these features is more accurate than a network on pixels. Notation: N side of the padded
image, ψ wavelet, φ Gaussian low-pass filter, x̂ and ψ̂ Fourier transforms of x and ψ.

Source: Bruna and Mallat, *Invariant scattering convolution networks* (IEEE TPAMI 2013), with
    the Morlet wavelets and constants of Kymatio (Andreux et al., JMLR 2020); as features for
    private learning, Tramèr and Boneh, *Differentially private learning needs better features*
    (ICLR 2021), §3. Images are padded by 4 mirrored pixels on each side.

**Threads.** A batch needs a few dozen small operations. Each operation is too small to be divided
among PyTorch's threads; on a loaded machine the threads would mostly wait for each other.
`ordered_map` gives each thread whole batches and returns the results in order, so the bits do not
depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import feature_stages
from turnout.learning.examples import as_floats, as_tensor
from turnout.learning.losses import Reference, imported
from turnout.learning.module_trials import stands_alone

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Results of ``function`` on each item, in order, in as many threads as PyTorch uses."""
    threads = min(torch.get_num_threads(), len(items))
    with _one_thread_an_operation():
        if threads <= 1:
            yield from map(function, items)
        else:
            yield from _workers(threads).map(function, items)


@contextmanager
def _one_thread_an_operation() -> Iterator[None]:
    """Context in which each PyTorch operation runs in a single thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """Shared pool of worker threads.

    PyTorch's number of threads for one operation is a setting of the current thread, so each worker
    sets it to 1.
    """
    return ThreadPoolExecutor(
        threads, "turnout-learning", initializer=torch.set_num_threads, initargs=(1,)
    )


@cache
def keep_freed_memory() -> None:
    """Make the C library glibc keep freed memory for the next batch.

    By default glibc returns large freed blocks to the system. A new block is then zeroed page by
    page, which takes as long as a computation on it. Once a block of just under 32 MiB has been
    freed, glibc keeps freed blocks up to that size. With another C library this function has no
    effect.
    """
    block = torch.empty(31 << 20, dtype=torch.uint8)
    del block


_LEAST_INK, _LEAST_VARIANCE = 1e-6, 1e-3


def deskewed(images: Tensor) -> Tensor:
    """Images sheared along the rows until their slant is 0, and centred.

    Ink means pixel values above 0. The slant is the covariance of the horizontal and vertical
    positions of the ink, divided by the variance of the vertical positions. Each row is shifted in
    proportion to the slant, and the centre of mass moves to the centre of the image. An image
    without ink is unchanged. The function is made for slanted handwriting; it does not help other
    images.

    Args:
        images: float32 in [0, 1], shape ``(n, height, width)``.

    Returns:
        Images of the same shape, float32 in [0, 1].

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


CELL, DIRECTIONS, BLOCK = 4, 12, 2
_LARGEST = 0.2
"""Largest value in a normalised block; larger values are cut off."""


def histograms_of_gradients(images: Tensor) -> Tensor:
    """Block histograms, each direction standardised per image; float32, shape ``(n, d)``.

    If the cells form h rows and w columns, d is 48 (h − 1)(w − 1).

    Args:
        images: float32 in [0, 1], shape ``(n, channels, height, width)``. At each pixel the channel
            with the longest gradient is used.

    Raises:
        ParameterError: a side below 8, or not a multiple of 4.
    """
    return _standardized(_blocks(images))


def cell_histograms(images: Tensor) -> Tensor:
    """Cell histograms, averaged over overlapping blocks; float32, shape ``(n, d)``.

    The normalised histograms of a cell are averaged over the blocks that contain the cell, so d is
    12 times the number of cells. For images of 28 by 28 pixels that is a third of the number of
    values of `histograms_of_gradients`, so a linear model has fewer parameters that receive noise.

    Args:
        images: as of `histograms_of_gradients`.

    Raises:
        ParameterError: a side below 8, or not a multiple of 4.
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
        ParameterError: a side below 8, or not a multiple of 4.
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
    """Histograms (n, 12, …), flattened; each direction is scaled to mean 0 and variance 1."""
    flat = histograms.flatten(2)
    centred = flat - flat.mean(2, keepdim=True)
    scale = (centred.square().mean(2, keepdim=True) + 1e-3).sqrt()
    return (centred / scale).flatten(1)


def _gradients(images: Tensor) -> tuple[Tensor, Tensor]:
    """Vertical and horizontal differences at each pixel, each ``(n, rows, columns)``."""
    padded = functional.pad(images, (1,) * 4, mode="replicate")
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    right = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    longest = (down.square() + right.square()).argmax(1, keepdim=True)
    return down.gather(1, longest)[:, 0], right.gather(1, longest)[:, 0]


def _votes(down: Tensor, right: Tensor) -> Tensor:
    """Part of each pixel's gradient length for each direction, (n, 12, rows, columns)."""
    length = (down.square() + right.square()).sqrt()
    angle = torch.remainder(torch.atan2(down, right), 2 * math.pi) * (DIRECTIONS / (2 * math.pi))
    away = (angle[:, None] - torch.arange(DIRECTIONS)[:, None, None]).abs()
    away = torch.minimum(away, DIRECTIONS - away)
    return (1 - away).clamp_min(0) * length[:, None]


def _unit(blocks: Tensor, floor: float) -> Tensor:
    """Blocks (n, 12, 4, blocks) scaled to length 1; blocks with tiny gradients stay shorter."""
    return blocks / (blocks.square().sum((1, 2), keepdim=True) + floor).sqrt()


@cache
def _cells(side: int) -> Tensor:
    """Interpolation weight of each pixel in each cell along one image side, (cells, pixels)."""
    centres = (torch.arange(side // CELL) + 0.5) * CELL
    pixels = torch.arange(side) + 0.5
    return (1 - (pixels - centres[:, None]).abs() / CELL).clamp_min(0) / CELL


SCALES, ORIENTATIONS, PADDING = 2, 8, 4
MAPS = 1 + SCALES * ORIENTATIONS + ORIENTATIONS**2
"""Number of scattering maps: 1 of order zero, 16 of order one, 64 of order two."""


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """Transfer functions of the scattering transform for one image size.

    Attributes:
        fine: Fourier transforms of the wavelets of 8 orientations at scale 0, float32, shape (8, N,
            N, 2), with N the side of the padded image. The last axis has each number twice, as a
            factor of the real and of the imaginary part of an image's Fourier transform.
        coarse: Fourier transforms of the wavelets of 8 orientations at scale 1, in the same form.
        smoothing: two matrices, for maps at full and at half resolution, of shapes (side / 4, N)
            and (side / 4, N / 2). Applied to rows and columns of a map, the matrix convolves the
            map with the low-pass filter and samples the result at every fourth pixel of the image.
    """

    fine: Tensor
    coarse: Tensor
    smoothing: tuple[Tensor, Tensor]


def scattering(images: Tensor) -> Tensor:
    """Scattering maps of images, float32, shape ``(n, 81, side / 4, side / 4)``.

    Args:
        images: float32 in [0, 1], shape ``(n, side, side)``.

    Raises:
        ParameterError: a side below 8, or not a multiple of 4.
    """
    filters = filters_for(images.shape[-1])
    padded = functional.pad(images[:, None], (PADDING,) * 4, mode="reflect")
    spectrum = torch.fft.fft2(padded)
    fine = _modulus(_filtered(spectrum, filters.fine))[:, 0]
    coarse = _modulus(_filtered_at_half(spectrum, filters.coarse))[:, 0]
    second = _modulus(_filtered_at_half(torch.fft.fft2(fine), filters.coarse))
    full, half = filters.smoothing
    maps = (
        _smoothed(padded, full),
        _smoothed(fine, full),
        _smoothed(coarse, half),
        _smoothed(second.flatten(1, 2), half),
    )
    return torch.cat(maps, dim=1)


def _filtered(spectrum: Tensor, transfer: Tensor) -> Tensor:
    """Spectra of maps times the spectrum of each wavelet, complex, shape (n, maps, 8, N, N)."""
    return torch.view_as_complex(torch.view_as_real(spectrum)[:, :, None] * transfer)


def _filtered_at_half(spectrum: Tensor, transfer: Tensor) -> Tensor:
    """Spectra of filtered maps at half resolution: the mean of a full spectrum's four quarters."""
    values, half = torch.view_as_real(spectrum)[:, :, None], spectrum.shape[-1] // 2
    low, high = slice(None, half), slice(half, None)
    total = values[..., low, low, :] * transfer[..., low, low, :]
    for rows, columns in ((low, high), (high, low), (high, high)):
        total.addcmul_(values[..., rows, columns, :], transfer[..., rows, columns, :])
    return torch.view_as_complex(total.mul_(0.25))


def _modulus(spectrum: Tensor) -> Tensor:
    """Modulus of a map at each pixel, computed from the map's Fourier transform."""
    parts = torch.view_as_real(torch.fft.ifft2(spectrum))
    return torch.linalg.vector_norm(parts, dim=-1)


def _smoothed(maps: Tensor, matrix: Tensor) -> Tensor:
    """Maps convolved with the low-pass filter, sampled at every fourth pixel, without padding."""
    return matrix @ maps @ matrix.T


@cache
def filters_for(side: int) -> Filters:
    """Scattering filters for square images with the given side, in pixels.

    Raises:
        ParameterError: a side below 8, or not a multiple of 4.
    """
    if side < 8 or side % 2**SCALES:
        raise ParameterError("image side", side, f"a multiple of {2**SCALES} of at least 8")
    size = side + 2 * PADDING
    banks = [
        np.stack([_morlet(size, scale, k) for k in range(ORIENTATIONS)]) for scale in range(SCALES)
    ]
    fine, coarse = (
        torch.tensor(np.repeat(bank[..., None], 2, axis=-1), dtype=torch.float32) for bank in banks
    )
    smoothing = (_smoothing(side, 1), _smoothing(side, 2))
    return Filters(fine, coarse, smoothing)


def _morlet(size: int, scale: int, orientation: int) -> NDArray[np.float64]:
    """Morlet filter ψ̂: a Gabor function minus a multiple of its envelope, with mean 0."""
    width = 0.8 * 2**scale
    angle = (ORIENTATIONS // 2 - 1 - orientation) * math.pi / ORIENTATIONS
    wave = _gabor(size, width, angle, frequency=0.75 * math.pi / 2**scale)
    envelope = _gabor(size, width, angle, frequency=0.0)
    return (wave - wave[0, 0] / envelope[0, 0] * envelope).real


def _gabor(size: int, width: float, angle: float, frequency: float) -> NDArray[np.complex128]:
    """Fourier transform of a plane wave times an elongated Gaussian, periodic on the grid."""
    slant = 4 / ORIENTATIONS
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    shape = turn @ np.diag([1.0, slant**2]) @ turn.T / (2 * width**2)
    values = np.zeros((size, size), dtype=complex)
    for down in range(-2, 3):
        for right in range(-2, 3):
            y, x = np.mgrid[down * size : (down + 1) * size, right * size : (right + 1) * size]
            form = shape[0, 0] * y * y + 2 * shape[0, 1] * y * x + shape[1, 1] * x * x
            phase = frequency * (y * math.cos(angle) + x * math.sin(angle))
            values += np.exp(-form + 1j * phase)
    return np.fft.fft2(values * slant / (2 * math.pi * width**2))


def _smoothing(side: int, spacing: int) -> Tensor:
    """Matrix that convolves with the low-pass filter φ and samples every fourth position."""
    size, width = side + 2 * PADDING, 0.8 * 2 ** (SCALES - 1)
    at = np.arange(0, size, spacing)
    centres = (PADDING + np.arange(0, side, 2**SCALES))[:, None]
    wrapped = sum(np.exp(-((at - centres + k * size) ** 2) / (2 * width**2)) for k in range(-2, 3))
    weights = np.asarray(wrapped)
    return torch.tensor(weights / weights.sum(1, keepdims=True), dtype=torch.float32)


IMAGES_AT_ONCE = 32
"""Number of images in a batch, small enough that intermediate results stay in the cache."""

NORMALISATION_GROUPS = 27
"""Number of groups of three neighbouring scattering maps; each group is normalised as one."""

FeatureFunction = Callable[[Tensor], Tensor]
"""Function from inputs, float32, ``(n, …)``, to features ``(n, …)``, input by input."""

Allocate = Callable[[str, np.dtype[Any], tuple[int, ...]], NDArray[Any]]
"""Function that creates the array of the features from a name, a dtype and a shape."""


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMap:
    """Feature function of inputs, built from a feature expression.

    Attributes:
        text: expression in its shortest form.
        stages: functions in the order of application; all functions of one stage are applied to
            the same input.
        code: names and digests of the custom functions in the expression.
    """

    text: str
    stages: tuple[tuple[FeatureFunction, ...], ...]
    code: tuple[Reference, ...] = ()

    def __call__(self, inputs: Tensor) -> Tensor:
        """Features of a batch of inputs, float32, ``(n, …)``.

        The results of the k functions of a stage, with d values in total, are joined to one flat
        vector. A function with d′ values is scaled by √(d / (k d′)). If the values of each function
        have variance 1, as those of scattering and hog, all functions then have equal weight.
        """
        for functions in self.stages:
            parts = [function(inputs) for function in functions]
            inputs = parts[0] if len(parts) == 1 else _side_by_side(parts)
        return inputs


def build_features(text: str, folder: Path = Path()) -> FeatureMap | None:
    """Feature function from an expression; None for "pixels", which leaves inputs unchanged.

    Args:
        text: expression in the syntax of `turnout.core.feature_expressions.feature_stages`.
        folder: folder that is searched first for the code of custom functions.

    Raises:
        ParameterError: an expression with a wrong syntax or an unknown name, or code that cannot be
            imported or called.
    """
    names, code = feature_stages(text), list[Reference]()
    if names == (("pixels",),):
        return None

    def function_of(name: str) -> FeatureFunction:
        if name in FEATURES:
            return FEATURES[name]
        found, reference = imported("model.features", name, folder)
        code.append(reference)
        return _own(found, name)

    stages = tuple(tuple(map(function_of, stage)) for stage in names)
    return FeatureMap("|".join("+".join(stage) for stage in names), stages, tuple(code))


def apply_features(
    features: FeatureMap | str | None, inputs: NDArray[Any], allocate: Allocate | None = None
) -> NDArray[Any]:
    """Features of inputs, float16, ``(n, …)``; for "pixels", the inputs themselves.

    Float16 needs half of the memory of float32; the rounding is part of the feature function.

    Args:
        features: result of `build_features`, or an expression without custom functions.
        inputs: uint8 (read as fractions of 255), float16 or float32, shape ``(n, …)``.
        allocate: function that creates the array of the result; None for an array in memory.

    Raises:
        ParameterError: inputs of an unsupported type or shape, features beyond ±65504, or a custom
            function that fails, draws random numbers or mixes examples.

    Guarantees:
        Row i depends on input i alone. The same inputs give the same bits on any number of
        threads.
    """
    # Build the feature function; raw pixels need no computation.
    if isinstance(features, str):
        features = build_features(features)
    if features is None:
        return inputs
    keep_freed_memory()
    # The first features determine the type and shape of the result.
    first = first_features(features, inputs)
    batches = as_tensor(inputs).split(IMAGES_AT_ONCE)
    # A custom function must treat each input separately.
    if features.code:
        _check_rows_alone(features, as_floats(batches[0]))
    # Compute all batches in threads, each into its part of the result.
    shape = (len(inputs), *first.shape[1:])
    made = (allocate or _in_memory)("features", first.dtype, shape)

    def write(i: int) -> None:
        start = i * IMAGES_AT_ONCE
        made[start : start + IMAGES_AT_ONCE] = _of_batch(features, batches[i])

    for _ in ordered_map(write, range(len(batches))):
        pass
    return made


def first_features(features: FeatureMap, inputs: NDArray[Any]) -> NDArray[np.float16]:
    """First rows, (rows, …), of the result of `apply_features`, bit for bit, with the same checks.

    Raises:
        ParameterError: the inputs are neither uint8 nor floats.
    """
    if inputs.dtype.kind not in "uf" or inputs.dtype.itemsize > 4:
        raise ParameterError("inputs", str(inputs.dtype), "an array of uint8 or of floats")
    return _of_batch(features, as_tensor(inputs[:IMAGES_AT_ONCE]))


def _of_batch(features: FeatureMap, inputs: Tensor) -> NDArray[np.float16]:
    """Features of a batch of inputs, in the dtype of the result."""
    with torch.no_grad():
        made = features(as_floats(inputs)).half()
    if not torch.isfinite(made).all():
        raise ParameterError("model.features", features.text, "features within ±65504")
    return made.numpy()


def standardized(images: Tensor) -> Tensor:
    """Images (n, …), each shifted and scaled to mean 0 and variance 1; constant images become 0."""
    flat = images.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    return (centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()).view(images.shape)


def normalised_scattering(images: Tensor) -> Tensor:
    """Scattering maps of images, standardised in groups of three maps; float32, ``(n, d)``.

    The norm of a grey image's features is then at most √d. For MNIST √d is 63, and the mean norm is
    49. So clipping treats clients nearly alike. Each channel of a colour image has its own maps.

    Args:
        images: float32 in [0, 1], shape ``(n, side, side)`` or ``(n, side, side, channels)``.

    Raises:
        ParameterError: images that are not square, or a side below 8 or not a multiple of 4.
    """
    channels = _channels("scattering", images)
    if channels.shape[2] != channels.shape[3]:
        raise ParameterError("features", "scattering", f"square images, not {_shape(images)}")
    maps = scattering(channels.flatten(0, 1))
    return functional.group_norm(maps, NORMALISATION_GROUPS).reshape(len(images), -1)


def _hog(images: Tensor) -> Tensor:
    """Block histograms of grey or colour images, (n, d)."""
    return histograms_of_gradients(_channels("hog", images))


def _hog_cells(images: Tensor) -> Tensor:
    """Cell histograms of grey or colour images, (n, d)."""
    return cell_histograms(_channels("hog-cells", images))


def _deskewed(images: Tensor) -> Tensor:
    """Deskewed grey images, after a check of their shape."""
    if images.ndim != 3:
        expected = f"grey images (height, width), not {_shape(images)}"
        raise ParameterError("features", "deskewed", expected)
    return deskewed(images)


def _unchanged(inputs: Tensor) -> Tensor:
    """Inputs themselves."""
    return inputs


FEATURES: Mapping[str, FeatureFunction] = {
    "pixels": _unchanged,
    "standardized": standardized,
    "deskewed": _deskewed,
    "scattering": normalised_scattering,
    "hog": _hog,
    "hog-cells": _hog_cells,
}
"""Feature functions by their names in expressions."""


def _channels(name: str, images: Tensor) -> Tensor:
    """Images (n, height, width) or (n, height, width, channels) as (n, channels, height, width)."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        expected = f"images (height, width) or (height, width, channels), not {_shape(images)}"
        raise ParameterError("features", name, expected)
    return images.permute(0, 3, 1, 2)


def _shape(images: Tensor) -> tuple[int, ...]:
    """Shape of one input of a batch."""
    return tuple(images.shape[1:])


def _side_by_side(parts: list[Tensor]) -> Tensor:
    """Values of several feature functions, flattened and scaled to equal weight."""
    flat = [part.flatten(1) for part in parts]
    total = sum(part.shape[1] for part in flat)
    scales = [math.sqrt(total / (len(flat) * part.shape[1])) for part in flat]
    return torch.cat([scale * part for scale, part in zip(scales, flat, strict=True)], dim=1)


def _own(found: Any, name: str) -> FeatureFunction:
    """Custom feature function, wrapped in checks of its errors and results."""
    # Only functions and modules are callable on inputs; modules run in evaluation mode.
    key = "model.features"
    if not callable(found) or isinstance(found, type):
        expected = "a function of inputs (n, …) that returns features (n, …), or a torch.nn.Module"
        raise ParameterError(key, name, expected)
    if isinstance(found, nn.Module):
        found = found.eval()

    def checked(inputs: Tensor) -> Tensor:
        # Run custom code; any error becomes one line with the cause.
        try:
            made = found(inputs)
        except Exception as error:  # whatever custom code raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            expected = f"a function that accepts inputs {_shape(inputs)}, but {reason}"
            raise ParameterError(key, name, expected) from None
        # The result must have a row of features for each input.
        if not isinstance(made, Tensor) or made.ndim < 2 or len(made) != len(inputs):
            shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            expected = f"features of shape ({len(inputs)}, …) for {len(inputs)} inputs, not {shape}"
            raise ParameterError(key, name, expected)
        return made.float()

    return checked


def _check_rows_alone(features: FeatureMap, inputs: Tensor) -> None:
    """Raise an error if a trial shows that features are random or mix examples."""
    with torch.no_grad():
        if not torch.equal(features(inputs), features(inputs)):
            raise ParameterError("model.features", features.text, "a function without random draws")
        if not stands_alone(features, inputs, lambda _: features):
            expected = "features of an input that do not depend on other inputs of the batch"
            raise ParameterError("model.features", features.text, expected)


def _in_memory(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """New array in memory, of the given dtype and shape."""
    return np.empty(shape, dtype)
