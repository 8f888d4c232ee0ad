"""Privacy curve of several runs: composition by ``+`` and ``*``, exchange with dp-accounting.

`PrivacyCurve` is a multiset of independent blocks. Composition is the union of multisets, so ``m *
3 == m + m + m`` is true by construction. ε and δ are computed when they are requested. `LossBlock`
and `LossCurve` hold privacy loss distributions imported from dp-accounting. This module builds on
`decomposition` and `pricing`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from turnout.accounting.decomposition import decompose, is_per_client
from turnout.accounting.divergence.blocks import (
    CurvePair,
    Decomposition,
    LossDistribution,
    NeighbourBound,
    joined_decompositions,
    loss_distribution,
    reach_of,
)
from turnout.accounting.divergence.composition import run_curve
from turnout.accounting.divergence.curves import Curve, Direction, Side
from turnout.accounting.divergence.pairs import UNIT_ROUNDOFF
from turnout.accounting.pricing import decomposition_bounds
from turnout.core import checks
from turnout.core.arrays import FloatArray
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.core.optional import require
from turnout.schemes import PrivacyUnit, Relation, Scheme, TrustModel
from turnout.schemes.parameters import hold_members

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_HINTS = (1e-1, 1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
"""Values of δ at which an exported curve is sharp, in addition to its tail."""
_EXPORTED_LOSSES = 2**14
_COARSEST = 50.0  # largest distance between losses
_MOST_LOSSES = 10_000_000
_SHARP_TO = (1e-6, 1e-9, 1e-12, 1e-15)  # values of δ to which profiles are sharp, tried in turn
_CAP_ROUNDING = 1e-12  # relative, above the rounding error of a sum of ε₀
_BEYOND = 500.0  # ε at which δ is the infinity mass alone


@dataclass(frozen=True, slots=True, eq=False)
class LossCurve:
    """Curve δ(K), with K = e^ε, of a given privacy loss distribution."""

    distribution: LossDistribution
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """Value of δ(K) at each K ≥ 1, shape of ``k``, rounded to the curve's side."""
        mass, inverse = self._tails(k)
        far = k * inverse
        error = 8.0 * UNIT_ROUNDOFF * self.distribution.masses.size * (mass + far)
        value = self.distribution.infinity + mass - far
        return np.clip(value + error if self.side is Side.UPPER else value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """Derivative dδ/dK at each K ≥ 1, shape of ``k``."""
        return -self._tails(k)[1]

    def _tails(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Probabilities under P and under Q of losses above ln K, shape of ``k`` each."""
        losses, masses = self.distribution.losses, self.distribution.masses
        inverses = masses * np.exp(-np.maximum(losses, 0.0))
        index = np.searchsorted(losses, np.log(k), side="right")
        mass, inverse = (np.append(np.cumsum(v[::-1])[::-1], 0.0) for v in (masses, inverses))
        return mass[index], inverse[index]


@dataclass(frozen=True, slots=True, eq=False)
class LossBlock:
    """Block with a given loss distribution in each direction; blocks are compared by identity."""

    remove: LossDistribution
    add: LossDistribution

    @property
    def loss_deviation(self) -> float:
        """Standard deviation of the privacy loss, at most 1."""
        losses, masses = self.remove.losses, self.remove.masses
        mean = float(masses @ losses)
        return float(min(1.0, max(1e-9, masses @ (losses - mean) ** 2) ** 0.5))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of one direction; it is an upper bound if the distribution is pessimistic."""
        return LossCurve(self.remove if direction is Direction.REMOVE else self.add, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        return CurvePair(side, [remove], [add], (self.remove.infinity, self.add.infinity))


@dataclass(frozen=True, slots=True, repr=False)
class PrivacyCurve:
    """Privacy curve of one or several runs on the same clients' data, composed adaptively.

    Guarantees:
        ``m * 3 == m + m + m``; ε of ``a + b`` is at least ε of a and at least ε of b.

    Curves that differ in relation, unit or trust cannot be composed.

    Attributes:
        parts: independent blocks of all runs.
        relation: neighbouring relation.
        unit: unit of privacy, all data of a client or one example.
        trust: parties that a client must trust for ε to hold.

    >>> from turnout.schemes import CheckIn, GaussianNoise
    >>> week = PrivacyCurve.of(Scheme(GaussianNoise(2.0), CheckIn(100), Relation.ADD_REMOVE))
    >>> week * 3 == week + week + week == sum([week] * 3)
    True
    >>> (week * 3).delta(1.0).upper < 1e-3
    True
    """

    parts: Decomposition
    relation: Relation
    unit: PrivacyUnit
    trust: TrustModel

    def __post_init__(self) -> None:
        hold_members(self, relation=Relation, unit=PrivacyUnit, trust=TrustModel)

    @classmethod
    def of(cls, scheme: Scheme, steps: int | None = None) -> PrivacyCurve:
        """Privacy curve of a scheme or of its first steps.

        Args:
            scheme: the whole scheme.
            steps: number of first steps, from 0 to the scheme's; the whole run if None.

        Raises:
            ParameterError: the scheme has fewer steps.
            UnsupportedError: no sound analysis is known, or windows differ by client.
        """
        if is_per_client(scheme):
            raise UnsupportedError(
                "windows of an availability trace differ by client, so there is no one privacy "
                "curve; use price(scheme, delta)"
            )
        return cls(
            joined_decompositions([decompose(scheme, steps)]),
            scheme.relation,
            scheme.unit,
            scheme.trust,
        )

    @classmethod
    def from_dp_accounting(
        cls,
        pessimistic: PrivacyLossDistribution,
        relation: Relation,
        optimistic: PrivacyLossDistribution | None = None,
        unit: PrivacyUnit = PrivacyUnit.CLIENT,
        trust: TrustModel = TrustModel.CENTRAL,
    ) -> PrivacyCurve:
        """Privacy curve of a privacy loss distribution that was made with dp-accounting.

        Args:
            pessimistic: loss distribution made with ``pessimistic_estimate=True``, the default of
                dp-accounting; the curve's upper bounds use it.
            relation: neighbouring relation of the distribution; dp-accounting does not record the
                relation.
            optimistic: loss distribution of the same mechanism made with
                ``pessimistic_estimate=False``; gives lower bounds. Without it lower bounds are 0.
            unit: unit of privacy.
            trust: trust model.

        Returns:
            A curve. Its upper bounds are never below the true values if the pessimistic estimate is
            never below the true values.

        Raises:
            ParameterError: ``pessimistic`` has optimistic estimates, or ``optimistic`` has
                pessimistic ones.
        """
        upper = _imported("pessimistic", pessimistic, expected=True)
        lower = _imported("optimistic", optimistic, expected=False) if optimistic else None
        bound = NeighbourBound(
            [(upper, 1)], [(lower, 1)] if lower else [], "by dp-accounting", tight=False
        )
        return cls(Decomposition(bound), relation, unit, trust)

    def __repr__(self) -> str:
        blocks = sum(count for _, count in self.parts.record_against_null.upper)
        terms = ", ".join(each.value for each in (self.relation, self.unit, self.trust))
        return f"PrivacyCurve({blocks:,} block{'s'[: blocks != 1]}; {terms})"

    def __add__(self, other: PrivacyCurve) -> PrivacyCurve:
        """Privacy curve of the runs of both curves together, composed adaptively.

        Raises:
            ParameterError: the curves differ in relation, unit or trust model.
        """
        mine, yours = ((m.relation.value, m.unit.value, m.trust.value) for m in (self, other))
        if mine != yours:
            raise ParameterError(
                "other", " ".join(yours), f"a privacy curve under {' '.join(mine)}"
            )
        return PrivacyCurve(
            joined_decompositions([self.parts, other.parts]), self.relation, self.unit, self.trust
        )

    def __radd__(self, other: object) -> PrivacyCurve:
        """This curve if the left operand is 0, so that `sum` of several curves works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, times: int) -> PrivacyCurve:
        """Privacy curve of ``times`` repetitions of the run, composed adaptively."""
        checks.count(times=times)
        times = int(times)  # products of counts could overflow in small numpy types
        return PrivacyCurve(
            joined_decompositions([self.parts] * times)
            if times < 2
            else _repeated(self.parts, times),
            self.relation,
            self.unit,
            self.trust,
        )

    __rmul__ = __mul__

    def epsilon(self, delta: float, tolerance: float = 1e-3) -> Bounds:
        """Lower and upper bound on ε at δ; ``upper`` is the guarantee.

        Args:
            delta: δ, strictly between 0 and 1.
            tolerance: relative width of the bounds at which refinement stops, strictly between 0
                and 1.

        Returns:
            Bounds on the larger ε of the two directions; the true ε lies between the bounds.

        Raises:
            ParameterError: δ or the tolerance is out of range.
            NumericalError: no upper bound can be certified.
        """
        return reduce(or_, self.directions(delta, tolerance).values())

    def directions(self, delta: float, tolerance: float = 1e-3) -> dict[str, Bounds]:
        """Bounds on ε at δ for each direction: "remove" and "add", or "replace" alone.

        The arguments are those of `epsilon`.

        Raises:
            ParameterError: δ or the tolerance is out of range.
            NumericalError: no upper bound can be certified.
        """
        checks.open_unit(delta=delta, tolerance=tolerance)
        return decomposition_bounds(self.parts, self.relation, delta, tolerance)

    def delta(self, epsilon: float) -> Bounds:
        """Lower and upper bound on δ at ε; ``upper`` is the guarantee.

        Args:
            epsilon: ε in [0, 600].

        Returns:
            Bounds on the larger δ of the two directions; the true δ lies between the bounds.

        Raises:
            ParameterError: ε is outside [0, 600].
            NumericalError: no bound can be certified.
        """
        from turnout.accounting.meaning.profile import LARGEST_EPSILON, composed_curves

        # Check ε; above the closed-form bound at δ = 0, δ is 0.
        checks.non_negative(epsilon=epsilon)
        if epsilon > LARGEST_EPSILON:
            raise ParameterError("epsilon", epsilon, f"at most {LARGEST_EPSILON:g}")
        if epsilon > self.parts.unhidden.upper(0.0) * (1.0 + _CAP_ROUNDING):
            return Bounds(0.0, 0.0)
        # Profiles that are sharp to ever smaller δ, until δ lies in their range; the bounds of all
        # of them are valid, so the best ones are kept.
        lower, upper = 0.0, 1.0
        for sharp_to in _SHARP_TO:
            try:
                curves = composed_curves(self.parts, self.relation, sharp_to)
                worst = curves.at(np.array([epsilon, LARGEST_EPSILON])).worst
            except NumericalError:
                if sharp_to == _SHARP_TO[0]:
                    raise
                break
            at = int(np.searchsorted(worst.epsilons, epsilon))
            lower = max(lower, float(worst.lower[at]))
            upper = min(upper, float(worst.upper[at]))
            if upper >= sharp_to:
                break
        return Bounds(lower, upper)

    def to_dp_accounting(
        self, least_delta: float = 1e-10, discretization: float | None = None
    ) -> PrivacyLossDistribution:
        """Pessimistic privacy loss distribution for dp-accounting.

        Args:
            least_delta: δ down to which the distribution is sharp, strictly between 0 and 1; the
                mass of larger losses counts as infinity mass.
            discretization: distance between neighbouring losses, positive and at most 50; if None,
                a suitable distance is chosen.

        Returns:
            Loss distributions of both directions; every ε or δ computed from these distributions is
            an upper bound.

        Raises:
            ParameterError: ``least_delta`` is outside (0, 1), or the discretization is out of range
                or needs more than 10⁷ losses.
            UnsupportedError: the relation needs two neighbour bounds.
        """
        # Check the arguments.
        checks.open_unit(least_delta=least_delta)
        if discretization is not None:
            checks.positive(discretization=discretization)
            if discretization > _COARSEST:
                raise ParameterError("discretization", discretization, f"at most {_COARSEST:g}")
        require("dp-accounting", what="PrivacyCurve.to_dp_accounting")
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        # Upper curves in both directions, sharp at several δ's down to the tail.
        if self.parts.replacement_against_null is not None:
            raise UnsupportedError(
                f"relation = {self.relation.value!r} needs two neighbour bounds here, which no "
                "single privacy loss distribution represents: use epsilon or delta"
            )
        run, tail = self.parts.record_against_null.upper, 1e-3 * least_delta
        hints = [*(h for h in _HINTS if h > tail), 0.9 * tail]
        remove, add = (
            [run_curve(run, direction, Side.UPPER, hint, 0) for hint in hints]
            for direction in Direction
        )
        # δ at an ε beyond all losses: the infinity mass of each direction.
        end = np.array([math.exp(_BEYOND)])
        floors = [min(float(curve.delta(end)[0]) for curve in curves) for curves in (remove, add)]
        pair = CurvePair(Side.UPPER, remove, add, (floors[0], floors[1]))
        # The grid of losses: from −reach to reach, in steps of the discretization.
        reach = max(1e-9, reach_of(pair, tail))
        gap = 2.0 * reach / _EXPORTED_LOSSES if discretization is None else discretization
        if 2.0 * reach / gap > _MOST_LOSSES:
            least = f"at least {2.0 * reach / _MOST_LOSSES:.1e}, which is {_MOST_LOSSES:,} losses"
            raise ParameterError("discretization", gap, least)
        distributions = [
            loss_distribution(pair, direction, gap, tail).to_dp_accounting()
            for direction in Direction
        ]
        return PrivacyLossDistribution(*distributions)


def _repeated(parts: Decomposition, times: int) -> Decomposition:
    """Decomposition of several independent repetitions of a run."""

    def bound(one: NeighbourBound) -> NeighbourBound:
        upper, *lowers = (
            [(block, count * times) for block, count in run] for run in (one.upper, *one.lowers)
        )
        return replace(one, upper=upper, lower=lowers[0], attacks=tuple(lowers[1:]))

    return Decomposition(
        bound(parts.record_against_null),
        bound(parts.replacement_against_null) if parts.replacement_against_null else None,
        bound(parts.through_null) if parts.through_null else None,
        parts.unhidden * times,
    )


def _imported(name: str, pld: PrivacyLossDistribution, *, expected: bool) -> LossBlock:
    """Block of a distribution of dp-accounting.

    ``expected`` is true for pessimistic estimates, false for optimistic ones. A ParameterError is
    raised for a distribution of the other kind.
    """
    distributions = []
    for pmf in (pld._pmf_remove, pld._pmf_add):
        dense = pmf.to_dense_pmf()
        if dense._pessimistic_estimate is not expected:
            given, side = (
                ("optimistic", "pessimistic") if expected else ("pessimistic", "optimistic")
            )
            raise ParameterError(
                name, f"a distribution with {given} estimates", f"{side} estimates"
            )
        masses = np.asarray(dense._probs, dtype=float)
        distributions.append(
            LossDistribution(
                dense._discretization, dense._lower_loss, masses, float(dense._infinity_mass)
            )
        )
    return LossBlock(*distributions)
