"""Upper bounds on the Rényi divergences of a block, computed from its privacy curves.

`block_renyi` and `run_renyi` return `RenyiBounds`, which can be added; `divergence_bound` is the
bound of one direction and order. `budgets` adds up the privacy loss of windows by these bounds.

Notation (docs/design/accounting.md): X = dP/dQ, K = e^ε, α the order, Δ the step of a loss grid.
Remove: D_α(P‖Q) = ln E_Q[X^α] / (α − 1). Add: D_α(Q‖P), the same with P and Q exchanged. A *price*
is E_Q[(X − K)₊] for K ≥ 1 and E_Q[(K − X)₊] for K < 1.

x^α is convex, so E_Q[X^α] is 1 plus an integral of prices with a positive weight. Therefore bounds
on δ(ε) at every ε also bound every Rényi divergence, for every randomizer. On a grid the integral
is a sum over the polygon through the prices, which lies above the prices.

Divergences of high order depend only on the end of the tail, where round-off limits the curves and
where the divergence is far larger than δ requires. Curves are therefore cut: losses beyond some L
count as disclosure, an event of probability at most δ(L) that is added to δ at the end
("approximate" divergence: Bun & Steinke 2016, Definition 8.1, for one order).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.accounting.divergence.blocks import Block, CurvePair, PairBlock, reach_of
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair, log_expm1
from turnout.accounting.divergence.work import remembered
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.errors import NumericalError, ParameterError

_STEPS_A_DEVIATION = 50  # loss grid: its step as a part of the block's loss deviation
_FEWEST, _MOST = 2**10, 2**15  # points of each half of the grid
_REFINEMENTS = 3
_LISTS = ("orders", "remove", "add")  # of what is written
_SLACK = 1e-11  # relative, above the rounding of a sum of 2¹⁶ positive terms


@dataclass(frozen=True, slots=True)
class RenyiBounds:
    """Upper bounds on Rényi divergences at some orders, in both directions.

    ``a + b`` bounds the releases of two mechanisms together, even if the second mechanism depends
    on the releases of the first; ``n * a`` bounds n repetitions. Sums are rounded up.

    Attributes:
        orders: increasing orders α > 1.
        remove: D_α(P‖Q) at each order, never below the truth once ``left_out`` is added to δ.
        add: D_α(Q‖P) at each order, never below the truth once ``left_out`` is added to δ.
        left_out: probability, in each direction, of the events that the divergences leave out.

    Raises:
        ParameterError: the orders do not increase or are not above 1, ``left_out`` is negative, or
            a list of divergences has another length than the orders.
        NumericalError: a divergence is negative or NaN.
    """

    orders: tuple[float, ...]
    remove: tuple[float, ...]
    add: tuple[float, ...]
    left_out: float = 0.0

    def __post_init__(self) -> None:
        checked_orders(self.orders)
        checks.non_negative(left_out=self.left_out)
        for values in (self.remove, self.add):
            if len(values) != len(self.orders):
                expected = f"{len(self.orders)} values, one for each order"
                raise ParameterError("divergences", len(values), expected)
            # The test rejects NaN too. Infinity is allowed: a valid bound, though a useless one.
            if not all(value >= 0 for value in values):
                raise NumericalError("a Rényi divergence is negative or NaN")

    @classmethod
    def zero(cls, orders: Sequence[float]) -> RenyiBounds:
        """Bounds of an empty release: every divergence is 0."""
        nothing = (0.0,) * len(orders)
        return cls(tuple(orders), nothing, nothing)

    def of(self, direction: Direction) -> tuple[float, ...]:
        """Rényi divergences of one direction, one for each order.

        Raises:
            ParameterError: ``direction`` is neither a `Direction` nor the word of one.
        """
        remove = checks.choice(Direction, direction=direction) is Direction.REMOVE
        return self.remove if remove else self.add

    def __add__(self, other: RenyiBounds) -> RenyiBounds:
        """Bounds on the adaptive composition of two mechanisms.

        Raises:
            ParameterError: the two bounds have different orders.
        """
        if self.orders != other.orders:
            raise ParameterError("orders", other.orders, f"{self.orders}, as in the first summand")
        return RenyiBounds(
            self.orders,
            tuple(_up(a + b) for a, b in zip(self.remove, other.remove, strict=True)),
            tuple(_up(a + b) for a, b in zip(self.add, other.add, strict=True)),
            _up(self.left_out + other.left_out),
        )

    def __rmul__(self, count: int) -> RenyiBounds:
        """Bounds on the adaptive composition of ``count`` ≥ 0 repetitions."""
        checks.count(0, count=count)
        return RenyiBounds(
            self.orders,
            tuple(_up(count * value) if count else 0.0 for value in self.remove),
            tuple(_up(count * value) if count else 0.0 for value in self.add),
            _up(count * self.left_out),
        )

    def to_dict(self) -> dict[str, Any]:
        """Bounds as plain numbers and lists, for JSON."""
        return {
            "orders": list(self.orders),
            "remove": list(self.remove),
            "add": list(self.add),
            "left_out": self.left_out,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RenyiBounds:
        """Bounds restored from the output of `to_dict`.

        Raises:
            KeyError: a list is missing.
            ParameterError: a divergence is no number, or the orders or lists are not valid.
            NumericalError: a divergence is negative or NaN.
        """
        lists = (tuple(_number(value) for value in data[name]) for name in _LISTS)
        return cls(*lists, left_out=data["left_out"])


def _number(value: object) -> float:
    """Number of a stored record as a float, after a check that it is a number and not text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError("divergences", value, "numbers")
    return float(value)


def _up(value: float) -> float:
    return math.nextafter(value, math.inf) if value else 0.0


def checked_orders(orders: Sequence[float]) -> tuple[float, ...]:
    """Orders as a tuple, after a check that they increase and are above 1.

    Raises:
        ParameterError: the orders do not increase, or an order is not finite and above 1.
    """
    values = tuple(float(order) for order in orders)
    rising = all(a < b for a, b in zip((1.0, *values), values, strict=False))
    if not values or not rising or math.isinf(values[-1]):
        raise ParameterError("orders", values, "increasing finite orders above 1")
    return values


def run_renyi(
    run: Sequence[tuple[Block, int]], orders: Sequence[float], left_out: float
) -> RenyiBounds:
    """Upper bounds on the Rényi divergences of a run; ``left_out`` is split evenly among blocks.

    Args:
        run: blocks with their counts.
        orders: real orders α above 1, increasing.
        left_out: probability that may be cut off in each direction, strictly between 0 and 1.

    Returns:
        Bounds that are never below the true divergences if their ``left_out`` is added to δ.

    Raises:
        ParameterError: an order or ``left_out`` is outside its domain.
        NumericalError: a curve of a block cannot be certified.
    """
    total = RenyiBounds.zero(checked_orders(orders))
    blocks = sum(count for _, count in run)
    for block, count in run:
        total = total + count * block_renyi(block, total.orders, left_out / blocks)
    return total


@remembered
def block_renyi(block: Block, orders: tuple[float, ...], left_out: float) -> RenyiBounds:
    """Upper bounds on the Rényi divergences of one block, for every randomizer.

    Source: f-divergences as integrals of hockey-stick divergences (Sason & Verdú 2016,
    "f-divergence inequalities", Proposition 3), here as a sum over a polygon above the prices.

    Args:
        block: one window or step.
        orders: increasing real orders α > 1.
        left_out: probability that may be cut off in each direction, strictly between 0 and 1.
            Gaussian noise without amplification needs no cut.

    Returns:
        Bounds that are never below the true divergences if their ``left_out`` is added to δ.

    Raises:
        ParameterError: an order or ``left_out`` is outside its domain.
        NumericalError: a curve of the block cannot be certified.
    """
    checked_orders(orders)
    checks.open_unit(left_out=left_out)
    # Gaussian noise without amplification has a closed form and needs no cut.
    step = block if isinstance(block, PairBlock) and block.probability == 1.0 else None
    if step is not None and isinstance(step.pair, GaussianPair):
        return _gaussian(step.pair, orders)
    # Refine the grids until the bounds hardly fall; a grid that cannot be certified is skipped.
    best: RenyiBounds | None = None
    for refinement in range(_REFINEMENTS):
        try:
            curves = block.curves(Side.UPPER, left_out, refinement)
            found = _of_curves(curves, block.loss_deviation, orders, left_out)
        except NumericalError:
            if refinement == _REFINEMENTS - 1 and best is None:
                raise
            continue
        settled = best is not None and _excess(best, found) < 1e-3
        best = found if best is None else _least(best, found)
        if settled:
            break
    assert best is not None
    return best


def _gaussian(pair: GaussianPair, orders: tuple[float, ...]) -> RenyiBounds:
    """Exact Rényi divergences α·μ²/2 of Gaussian noise, in both directions.

    Source: Mironov 2017, Proposition 7.
    """
    values = tuple(order * pair.mu**2 / 2 * (1 + 8 * UNIT_ROUNDOFF) for order in orders)
    return RenyiBounds(orders, values, values)


def _excess(coarse: RenyiBounds, fine: RenyiBounds) -> float:
    """Largest relative difference between the bounds from a coarse grid and from a fine grid."""
    pairs = zip(coarse.remove + coarse.add, fine.remove + fine.add, strict=True)
    return max((a - b) / a if a > b else 0.0 for a, b in pairs)


def _least(a: RenyiBounds, b: RenyiBounds) -> RenyiBounds:
    """Smaller of two bounds at each order, valid with the larger of the two ``left_out``."""
    return RenyiBounds(
        a.orders,
        tuple(map(min, a.remove, b.remove)),
        tuple(map(min, a.add, b.add)),
        max(a.left_out, b.left_out),
    )


def _of_curves(
    curves: CurvePair, loss_deviation: float, orders: tuple[float, ...], left_out: float
) -> RenyiBounds:
    # Equal steps of the loss from −reach to reach, beyond which the curves are cut.
    reach = reach_of(curves, left_out)
    half = int(
        np.clip(math.ceil(_STEPS_A_DEVIATION * reach / max(loss_deviation, 1e-300)), _FEWEST, _MOST)
    )
    by_direction: dict[Direction, tuple[float, ...]] = {}
    cut = 0.0
    for direction in Direction:
        losses = reach / half * np.arange(-half, half + 1, dtype=np.float64)
        points = np.exp(losses)
        prices = np.minimum(curves.price_and_slope(direction, points)[0], np.minimum(points, 1.0))
        if np.isnan(prices).any():
            raise NumericalError("a privacy curve has a value that is NaN")
        by_direction[direction] = tuple(divergence_bound(losses, prices, order) for order in orders)
        cut = max(cut, float(prices[half:].min()))
    return RenyiBounds(orders, by_direction[Direction.REMOVE], by_direction[Direction.ADD], cut)


def divergence_bound(losses: FloatArray, prices: FloatArray, order: float) -> float:
    """Upper bound on D_α from prices on a grid of losses, without losses beyond the last point.

    The price at a grid point K_j is E(X − K_j)₊ for K_j ≥ 1 and E(K_j − X)₊ for K_j < 1, with X
    under Q. The chords of x^α between grid points have a jump of the slope at each K_j. The mean of
    X^α is at most 1 plus the sum over j of this jump times the price at K_j; all terms are
    positive. Beyond the last point the polygon is flat: a mass of P, the last price, lies at
    infinity and is left out.

    Args:
        losses: ln K_j, an even number of equal steps from −L to L, shape ``(2n + 1,)``.
        prices: never below the true prices, shape ``(2n + 1,)``.
        order: α above 1.
    """
    middle = losses.size // 2
    step = losses[-1] / middle
    # True prices fall above 1, so the least price so far bounds all later ones.
    above = np.minimum.accumulate(prices[middle:])
    counted = np.concatenate([prices[:middle], above - above[-1]])[:-1]
    slope = log_expm1(order * step) - log_expm1(step)  # of the chord on the right of K = 1
    jumps = (order - 1) * losses[:-1] + slope + math.log(-math.expm1(-(order - 1) * step))
    # Left of the first point the polygon goes straight to the origin.
    jumps[0] = (order - 1) * losses[0] + log_expm1(slope)
    with np.errstate(divide="ignore"):
        terms = jumps + np.log(counted)
    largest = float(terms.max())
    if largest == -math.inf:
        return 0.0
    log_excess = largest + math.log(float(np.exp(terms - largest).sum()))
    log_excess += _SLACK + 16 * UNIT_ROUNDOFF * float(np.abs(jumps).max())
    return float(np.logaddexp(0.0, log_excess)) / (order - 1) * (1 + 4 * UNIT_ROUNDOFF)
