"""A filter that adds up squares of Gaussian μ's.

A window is charged the μ² of a Gaussian pair N(μ, 1), N(0, 1) that dominates it. The Gaussians are
closed under composition, so whoever runs less than is left could always be given the rest: what is
released under Σμ² ≤ B is dominated by one Gaussian pair of μ² = B, however each μ was chosen. Under
Gaussian noise without amplification nothing is lost against a plan that is fixed in advance.

An amplified window has a heavier tail than any Gaussian of its own width. It is dominated up to a
cut: an event of small probability is given away, the rest lies under the Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from turnout.accounting.budgets.entries import Entries, entries_from, require_kind, with_entry
from turnout.accounting.budgets.plan import Ledger, largest, run_before
from turnout.accounting.budgets.terms import Terms, require_terms
from turnout.accounting.divergence.blocks import Block, PairBlock
from turnout.accounting.divergence.curves import Direction, PairCurve, Side
from turnout.accounting.divergence.loss_laws import CurvePair, reach_of
from turnout.accounting.divergence.neighbour_bounds import Run, merged
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF, GaussianPair
from turnout.accounting.divergence.runs import run_epsilon
from turnout.core import checks
from turnout.core.errors import BudgetExceededError, NumericalError, ParameterError
from turnout.spec import Scheme

_KIND = "gaussian-filter"
_LEFT_OUT_SHARE = 0.01  # part of δ that the windows' cut tails may use up
_POINTS = 2**14  # losses at which a window is compared with a Gaussian
_TOLERANCE = 1e-4  # relative, of a μ
_SMALLEST, _LARGEST = 1e-6, 100.0  # μ's that are searched
_ROUNDING = 1e-12  # relative, of sums of charges


@dataclass(frozen=True, slots=True)
class GaussianCharge:
    """A Gaussian pair that dominates a window, but for a cut.

    Attributes:
        square: μ².
        left_out: probability of what is given away.
    """

    square: float
    left_out: float

    def __post_init__(self) -> None:
        checks.non_negative(square=self.square, left_out=self.left_out)

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers."""
        return {"square": self.square, "left_out": self.left_out}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GaussianCharge:
        """What `to_dict` gave."""
        return cls(data["square"], data["left_out"])


@dataclass(frozen=True, slots=True)
class GaussianFilter:
    """A filter for Gaussian and nearly Gaussian windows; see `Filter` for what it guarantees.

    Source: Koskela, Tobaben & Honkela 2023, "Individual privacy accounting with Gaussian
    differential privacy"; Smith & Thakurta 2022, "Fully adaptive composition for Gaussian
    differential privacy". Tight for Gaussian noise; the cut is derived in docs/design/ledger.md.

    Attributes:
        terms: relation, unit and trust.
        epsilon: ε that holds at the end.
        delta: δ that holds at the end.
        budget: what Σμ² may be.
        left_out: probability that may be cut off a window's tails.
        most_windows: how many windows may be spent; their cuts are paid for in advance.
        entries: what was spent.
    """

    terms: Terms
    epsilon: float
    delta: float
    budget: float
    left_out: float
    most_windows: int
    entries: Entries[GaussianCharge] = ()

    def __post_init__(self) -> None:
        require_terms(self.terms)
        checks.positive(epsilon=self.epsilon, left_out=self.left_out, budget=self.budget)
        checks.open_unit(delta=self.delta)
        checks.count(most_windows=self.most_windows)
        # Less may be right, where something is run before; more never is.
        cuts = self.left_out * self.most_windows
        whole = PairCurve(_gaussian(self.budget), Direction.REMOVE, Side.LOWER)
        if cuts + float(whole.delta(np.array(math.exp(self.epsilon)))) > self.delta:
            raise ParameterError("budget", self.budget, "a budget that keeps (epsilon, delta)")
        if self.spent > self.budget:
            raise BudgetExceededError(self.spent, self.budget, "μ²")

    @classmethod
    def of(
        cls,
        terms: Terms,
        epsilon: float,
        delta: float,
        *,
        before: Ledger | None = None,
        most_windows: int = 1000,
    ) -> GaussianFilter:
        """The filter with the largest budget that keeps (ε, δ).

        Args:
            terms: relation, unit and trust.
            epsilon: ε that holds at the end.
            delta: δ that holds at the end.
            before: what is run before the first window is spent, fixed in advance. It is composed
                exactly with the budget's Gaussian; its releases may decide on everything after it.
            most_windows: the most windows that will be run.

        Raises:
            BudgetExceededError: what is run before spends all of ε.
        """
        checks.positive(epsilon=epsilon)
        checks.open_unit(delta=delta)
        checks.count(most_windows=most_windows)
        run = run_before(terms, before)
        left_out = _LEFT_OUT_SHARE * delta / most_windows
        rest = delta * (1 - _LEFT_OUT_SHARE) * (1 - _ROUNDING)
        budget = _largest_square(run, epsilon, rest)
        return cls(terms, epsilon, delta, budget, left_out, most_windows)

    @property
    def spent(self) -> float:
        """Σμ² so far, rounded up."""
        total = math.fsum(entry.count * entry.charge.square for entry in self.entries)
        return total * (1 + _ROUNDING)

    @property
    def windows(self) -> int:
        """Windows spent so far."""
        return sum(entry.count for entry in self.entries)

    def charge(self, scheme: Scheme) -> GaussianCharge:
        """What one scheme costs, as a whole."""
        return gaussian_charge(self.terms.run_of(scheme), self.left_out)

    def spend(self, scheme: Scheme, label: str = "") -> GaussianFilter:
        """See `Filter.spend`."""
        charge, left = self.charge(scheme), self.budget - self.spent
        if self.windows >= self.most_windows:
            raise BudgetExceededError(1, 0, "windows")
        if charge.square * (1 + _ROUNDING) > left:
            raise BudgetExceededError(charge.square, max(left, 0.0), "μ²")
        return replace(self, entries=with_entry(self.entries, charge, label))

    def fits(self, scheme: Scheme) -> int:
        """See `Filter.fits`."""
        square, spent, left = (
            self.charge(scheme).square,
            self.spent,
            self.most_windows - self.windows,
        )
        if not left:
            return 0
        return largest(lambda n: n * square * (1 + _ROUNDING) <= self.budget - spent, left)

    def to_dict(self) -> dict[str, Any]:
        """See `Filter.to_dict`."""
        return {
            "kind": _KIND,
            "terms": self.terms.to_dict(),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "budget": self.budget,
            "left_out": self.left_out,
            "most_windows": self.most_windows,
            "entries": [entry.to_dict() for entry in self.entries],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GaussianFilter:
        """What `to_dict` gave."""
        require_kind(data, _KIND)
        return cls(
            Terms.from_dict(data["terms"]),
            data["epsilon"],
            data["delta"],
            data["budget"],
            data["left_out"],
            data["most_windows"],
            entries_from(data, GaussianCharge.from_dict),
        )


def _gaussian(square: float) -> GaussianPair:
    return GaussianPair(1 / math.sqrt(square))


def _largest_square(run: Run, epsilon: float, delta: float) -> float:
    """The largest μ² that, after a run, keeps (ε, δ), to a relative tolerance."""

    def proved(square: float) -> bool:
        whole = merged(run, [(PairBlock(_gaussian(square)), 1)])
        try:
            found = (run_epsilon(whole, d, Side.UPPER, delta, 0) for d in Direction)
            return max(found) <= epsilon
        except NumericalError:
            return False

    low, high = _SMALLEST**2, _LARGEST**2
    if not proved(low):
        spent = max((run_epsilon(run, d, Side.UPPER, delta, 0) for d in Direction), default=0.0)
        raise BudgetExceededError(spent, epsilon)
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if proved(middle) else (low, middle)
    return low


def gaussian_charge(run: Run, left_out: float) -> GaussianCharge:
    """The Gaussian that dominates a run's blocks one by one, ``left_out`` shared among them.

    Returns:
        Σμ², rounded up, and what the blocks leave out.

    Raises:
        NumericalError: a block's curves do not fall below its share of ``left_out``.
    """
    blocks = sum(count for _, count in run)
    charges = [(block_charge(block, left_out / blocks), count) for block, count in run]
    square = math.fsum(count * charge.square for charge, count in charges)
    cut = math.fsum(count * charge.left_out for charge, count in charges)
    return GaussianCharge(square * (1 + _ROUNDING), min(cut, left_out))


@lru_cache(maxsize=512)
def block_charge(block: Block, left_out: float) -> GaussianCharge:
    """The smallest Gaussian pair that dominates one block, but for a cut.

    Given μ and a cut d, the pair "d given away, else Gaussian" has δ(K) = d + (1 − d)·G_μ(K) for
    K ≥ 1 in both directions. A block is dominated where its own curve lies below.
    """
    if isinstance(block, PairBlock) and block.probability == 1.0:
        pair = block.pair
        if isinstance(pair, GaussianPair):
            return GaussianCharge(pair.mu**2 * (1 + 8 * UNIT_ROUNDOFF), 0.0)
    curves = block.curves(Side.UPPER, left_out, 0)
    needed = [_excess(curves, direction, left_out) for direction in Direction]

    def dominated(mu: float) -> bool:
        gaussian = PairCurve(GaussianPair(1 / mu), Direction.REMOVE, Side.LOWER)
        return all(np.all(values <= gaussian.delta(points)) for points, values in needed)

    low, high = _SMALLEST, _LARGEST
    if not dominated(high):
        raise NumericalError(f"no Gaussian with μ up to {_LARGEST:g} dominates this window")
    while high > low * (1 + _TOLERANCE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if dominated(middle) else (middle, high)
    return GaussianCharge(high**2 * (1 + 8 * UNIT_ROUNDOFF), left_out)


def _excess(curves: CurvePair, direction: Direction, left_out: float) -> tuple[Any, Any]:
    """Where a Gaussian curve must be how high: points K and values, between which curves fall.

    A curve at the left end of a cell is compared with the Gaussian at its right end.
    """
    reach = reach_of(curves, left_out)
    points = np.exp(np.linspace(0.0, reach, _POINTS))
    values = curves.price_and_slope(direction, points)[0]
    if np.isnan(values).any():
        raise NumericalError("a privacy curve is not a number")
    values = np.minimum.accumulate(values)
    above = np.maximum(values - left_out, 0.0) / (1 - left_out) * (1 + 8 * UNIT_ROUNDOFF)
    if above[-1] > 0:
        raise NumericalError(f"a privacy curve does not fall below {left_out:.3g}")
    return points[1:], above[:-1]
