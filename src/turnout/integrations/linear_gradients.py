"""Clipped gradient sums of linear models, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def scaled(features: Matrix, norm: float) -> Matrix:
    """Rows of norm at most 1, with a constant beside: shape (rows, features + 1)."""
    lengths = np.hypot.reduce(features, axis=1, keepdims=True)  # which does not overflow
    return np.hstack([features / np.maximum(lengths, norm), np.ones((len(features), 1))])


def clipped_sum(rows: Matrix, residuals: Matrix) -> Matrix:
    """Sum over rows of the gradients row × residual, each of norm at most 1."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(residuals, axis=1)
    clipped = residuals * (1.0 - 2.0**-20) / np.maximum(lengths, 1.0)[:, None]
    return rows.T @ clipped


def softmax(scores: Matrix) -> Matrix:
    """Probabilities by rows of scores."""
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)
