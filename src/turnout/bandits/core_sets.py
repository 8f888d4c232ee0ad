"""Core sets: few actions, and how often to pull each, from which all others' means follow.

Notation: r the dimension of the actions' span, x ∈ ℝʳ an action there; π a design, a law on the
actions; M(π) = Σ π(x)·x xᵀ; g(π) = max xᵀ M(π)⁻¹ x, the design's value, which is at least r.

Source: Kiefer, Wolfowitz, The equivalence of two extremum problems, Can. J. Math. 1960 (the least g
is r, at the largest det M); Todd, Yıldırım, On Khachiyan's algorithm, Discrete Appl. Math. 2007
(away steps); Kumar, Yıldırım, JOTA 2005 (where to begin).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.core.errors import NumericalError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
TOLERANCE = 0.01
"""How far a value may exceed r, relatively."""
_RANK = 1e-9  # singular values below this share of the largest count as 0
_ENTERING = 64  # actions that join the working set at a time
_ROUNDS, _STEPS = 200, 20_000
_REFRESH = 200  # steps after which the inverse is computed anew


@dataclass(frozen=True, eq=False)
class CoreSet:
    """A design of few actions.

    Attributes:
        actions: numbers of the actions, ascending, shape (k,), k ≤ r(r + 1)/2.
        shares: their shares of the pulls, summing to 1, shape (k,).
        value: g of this design over all actions, from above but for rounding; at most 1.01·r.
        rank: r.
    """

    actions: IntArray
    shares: FloatArray
    value: float
    rank: int


def core_set(actions: FloatArray) -> CoreSet:
    """A design of value at most 1.01·r on the span of the actions, on at most r(r + 1)/2 of them.

    The duality gap certifies the value: g(π) ≥ r for every design, so g ≤ 1.01·r is within 1 %.

    Args:
        actions: one a row, shape (K, d), not all zero.

    Raises:
        NumericalError: the value is not reached, for actions that are close to a smaller span.

    >>> square = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> core_set(square).actions.tolist()
    [0, 1]
    """
    points = span_coordinates(actions)
    rank = points.shape[1]
    working = _spread(points)
    shares = np.full(working.size, 1.0 / working.size)
    for _ in range(_ROUNDS):
        shares = _improved(points[working], shares, 0.5 * TOLERANCE)
        kept = shares > 0
        working, shares = working[kept], shares[kept]
        values = _values(points, points[working], shares)
        if values.max() <= rank * (1 + TOLERANCE):
            break
        far = np.argsort(-values)[:_ENTERING]
        new = np.setdiff1d(far[values[far] > rank], working)
        working = np.concatenate([working, new])
        shares = np.concatenate([shares, np.zeros(new.size)])
    else:
        raise NumericalError("no design of value within 1 % of the dimension was found")
    working, shares = _thinned(points, working, shares)
    order = np.argsort(working)
    value = float(_values(points, points[working], shares).max())
    return CoreSet(working[order], shares[order], value, rank)


def span_coordinates(actions: FloatArray) -> FloatArray:
    """The actions in an orthonormal basis of their span, scaled to singular values 1; (K, r).

    Designs do not change under linear maps, and well-conditioned points are easier to design for.
    """
    _, sizes, basis = np.linalg.svd(actions, full_matrices=False)
    rank = int(np.count_nonzero(sizes > _RANK * sizes[0]))
    return actions @ (basis[:rank].T / sizes[:rank]) * np.sqrt(len(actions))


def _values(points: FloatArray, chosen: FloatArray, shares: FloatArray) -> FloatArray:
    """xᵀ M⁻¹ x of every point, shape (K,)."""
    root = np.linalg.cholesky(chosen.T @ (shares[:, None] * chosen))
    solved = np.linalg.solve(root, points.T)
    return np.einsum("ij,ij->j", solved, solved)


def _spread(points: FloatArray) -> IntArray:
    """At most 2r points that span the space: both extremes along directions not yet spanned."""
    rank = points.shape[1]
    chosen: list[int] = []
    rest = np.eye(rank)
    for _ in range(rank):
        left = points @ rest
        first = int(np.argmax(np.einsum("ij,ij->i", left, left)))
        along = left[first] / np.linalg.norm(left[first])
        chosen += [first, int(np.argmin(points @ along))]
        rest = rest - np.outer(along, along)
    return np.unique(np.array(chosen))


def _improved(points: FloatArray, shares: FloatArray, tolerance: float) -> FloatArray:
    """A design on these points alone whose value over them is within the tolerance of r.

    Each step moves share to the point of the largest value, or off that of the smallest which has
    any, by the length that enlarges det M most.
    """
    rank, shares = points.shape[1], shares.copy()
    inverse, values = _inverse(points, shares)
    for step in range(1, _STEPS):
        if step % _REFRESH == 0:
            inverse, values = _inverse(points, shares)
        high = int(np.argmax(values))
        low = int(np.argmin(np.where(shares > 0, values, np.inf)))
        gain, loss = values[high] / rank - 1.0, 1.0 - values[low] / rank
        if gain <= tolerance:
            break
        at = high if gain >= loss else low
        length = (values[at] / rank - 1.0) / (values[at] - 1.0) if values[at] > 1 else -np.inf
        emptied = at == low and length <= -shares[low] / (1.0 - shares[low])
        if emptied:
            length = -shares[low] / (1.0 - shares[low])
        shares *= 1.0 - length
        shares[at] = 0.0 if emptied else shares[at] + length
        moved = inverse @ points[at]
        scale = length / (1.0 - length + length * values[at])
        inverse = (inverse - scale * np.outer(moved, moved)) / (1.0 - length)
        values = (values - scale * (points @ moved) ** 2) / (1.0 - length)
    return shares / shares.sum()


def _inverse(points: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """M⁻¹ and the value of each point."""
    inverse = np.linalg.inv(points.T @ (shares[:, None] * points))
    return inverse.astype(np.float64), np.einsum("ij,jk,ik->i", points, inverse, points)


def _thinned(
    points: FloatArray, working: IntArray, shares: FloatArray
) -> tuple[IntArray, FloatArray]:
    """The same M, or a larger one, on at most r(r + 1)/2 points.

    Carathéodory: with more points than the r(r + 1)/2 numbers of M, some combination of x xᵀ is 0.
    Its negative is added until a share is 0, with the sign that does not raise the shares' sum.
    """
    rank = points.shape[1]
    most = rank * (rank + 1) // 2
    rows, columns = np.triu_indices(rank)
    while working.size > most:
        some = np.arange(min(working.size, most + 1))
        chosen = points[working[some]]
        products = chosen[:, rows] * chosen[:, columns]
        null = np.linalg.svd(products.T, full_matrices=True)[2][-1]
        null = null if null.sum() >= 0 else -null
        positive = null > 1e-12
        ratios = np.full(null.size, np.inf)
        ratios[positive] = shares[some][positive] / null[positive]
        least = int(np.argmin(ratios))
        shares[some] = np.maximum(shares[some] - ratios[least] * null, 0.0)
        shares[least] = 0.0
        kept = shares > 0
        working, shares = working[kept], shares[kept]
    return working, shares / shares.sum()
