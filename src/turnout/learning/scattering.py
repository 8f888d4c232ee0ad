"""Wavelet scattering of small images: features that no data was used to find.

The wavelet modulus transform of order two with J = 2 scales and L = 8 orientations turns an
image into 81 smooth maps a quarter of its width: the image smoothed, what oriented wavelets of
two scales find in it, and what the coarser ones find in what the finer ones found. Being fixed
and public, it costs no privacy, and a linear model on it needs far less noise to learn than a
network on pixels.

Source: Bruna and Mallat, *Invariant scattering convolution networks* (IEEE TPAMI 2013), with
    the Morlet wavelets and constants of Kymatio (Andreux et al., JMLR 2020); as features for
    private learning, Tramèr and Boneh, *Differentially private learning needs better features*
    (ICLR 2021), §3. Padding is 4 mirrored pixels a side.

Notation: N padded side, ψ wavelet, φ Gaussian, x̂ Fourier transform of x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from turnout.core.errors import ParameterError

SCALES, ORIENTATIONS, PADDING = 2, 8, 4
MAPS = 1 + SCALES * ORIENTATIONS + ORIENTATIONS**2
"""1 of order zero, 16 of order one, 64 of order two."""


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """Transfer functions for one image size.

    Attributes:
        fine: ψ̂ of scale 0 on the N × N grid, (8, N, N, 2): each number twice, so that it
            multiplies the real and imaginary parts of x̂ in one pass.
        coarse: ψ̂ of scale 1, likewise.
        smoothing: φ sampled every 4 pixels, as a matrix that acts on rows and on columns, for
            maps at full and at half resolution.
    """

    fine: Tensor
    coarse: Tensor
    smoothing: tuple[Tensor, Tensor]


def scattering(images: Tensor) -> Tensor:
    """Scattering maps, float32, shape ``(n, 81, side / 4, side / 4)``, of a few images.

    These are float32 in [0, 1], shape ``(n, side, side)``, side a multiple of 4.
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
    """x̂ ψ̂ for each map and orientation: complex, (n, maps, 8, N, N)."""
    return torch.view_as_complex(torch.view_as_real(spectrum)[:, :, None] * transfer)


def _filtered_at_half(spectrum: Tensor, transfer: Tensor) -> Tensor:
    """The same at half resolution: keeping every second pixel averages four parts of x̂ ψ̂."""
    values, half = torch.view_as_real(spectrum)[:, :, None], spectrum.shape[-1] // 2
    low, high = slice(None, half), slice(half, None)
    total = values[..., low, low, :] * transfer[..., low, low, :]
    for rows, columns in ((low, high), (high, low), (high, high)):
        total.addcmul_(values[..., rows, columns, :], transfer[..., rows, columns, :])
    return torch.view_as_complex(total.mul_(0.25))


def _modulus(spectrum: Tensor) -> Tensor:
    """|x| from x̂."""
    parts = torch.view_as_real(torch.fft.ifft2(spectrum))
    return torch.linalg.vector_norm(parts, dim=-1)


def _smoothed(maps: Tensor, matrix: Tensor) -> Tensor:
    """φ ∗ x every 4 pixels, the padding cut off."""
    return matrix @ maps @ matrix.T


@cache
def filters_for(side: int) -> Filters:
    """Returns the filters for images of that side.

    Raises:
        ParameterError: a side that is not a multiple of 4, or below 8.
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
    """ψ̂: a Gabor function minus the multiple of its envelope that leaves no mean."""
    width = 0.8 * 2**scale
    angle = (ORIENTATIONS // 2 - 1 - orientation) * math.pi / ORIENTATIONS
    wave = _gabor(size, width, angle, frequency=0.75 * math.pi / 2**scale)
    envelope = _gabor(size, width, angle, frequency=0.0)
    return (wave - wave[0, 0] / envelope[0, 0] * envelope).real


def _gabor(size: int, width: float, angle: float, frequency: float) -> NDArray[np.complex128]:
    """Transform of a plane wave under an elongated Gaussian, wrapped around the torus."""
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
    """Rows: where φ is sampled; columns: where the map it acts on is."""
    size, width = side + 2 * PADDING, 0.8 * 2 ** (SCALES - 1)
    at = np.arange(0, size, spacing)
    centres = (PADDING + np.arange(0, side, 2**SCALES))[:, None]
    wrapped = sum(np.exp(-((at - centres + k * size) ** 2) / (2 * width**2)) for k in range(-2, 3))
    weights = np.asarray(wrapped)
    return torch.tensor(weights / weights.sum(1, keepdims=True), dtype=torch.float32)
