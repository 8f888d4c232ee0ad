"""The privacy curve of several runs: composition by ``+`` and ``*``, with dp-accounting's too.

`PrivacyCurve` is a multiset of independent blocks; composing adds up multisets, so that
``m * 3 == m + m + m`` holds by construction. ε and δ are computed on request. `LossBlock` and
`LossCurve` hold privacy loss distributions imported from dp-accounting. The module builds on
`decomposition` and `pricing`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
"""δ's at which an exported curve is made sharp, besides the least."""
_EXPORTED_LOSSES = 2**14
_COARSEST = 50.0  # distance between losses
_MOST_LOSSES = 10_000_000
_SHARP_TO = (1e-6, 1e-9, 1e-12, 1e-15)  # δ's to which a profile is made sharp, one by one
_CAP_ROUNDING = 1e-12  # more than a sum of ε₀ errs by
_BEYOND = 500.0  # an ε at which only the infinity mass is left


@dataclass(frozen=True, slots=True, eq=False)
class LossCurve:
    """δ(K) of a given privacy loss distribution, such as an imported one."""

    law: LossDistribution
    side: Side

    def delta(self, k: FloatArray) -> FloatArray:
        """δ at each K ≥ 1, shape of ``k``, moved to the side by the rounding of its own sums."""
        mass, inverse = self._tails(k)
        far = k * inverse
        error = 8.0 * UNIT_ROUNDOFF * self.law.masses.size * (mass + far)
        value = self.law.infinity + mass - far
        return np.clip(value + error if self.side is Side.UPPER else value - error, 0.0, 1.0)

    def slope(self, k: FloatArray) -> FloatArray:
        """dδ/dK at each K ≥ 1."""
        return -self._tails(k)[1]

    def _tails(self, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        losses, masses = self.law.losses, self.law.masses
        inverses = masses * np.exp(-np.maximum(losses, 0.0))
        index = np.searchsorted(losses, np.log(k), side="right")
        mass, inverse = (np.append(np.cumsum(v[::-1])[::-1], 0.0) for v in (masses, inverses))
        return mass[index], inverse[index]


@dataclass(frozen=True, slots=True, eq=False)
class LossBlock:
    """A mechanism by its loss distributions in both directions; compared by identity."""

    remove: LossDistribution
    add: LossDistribution

    @property
    def loss_deviation(self) -> float:
        """Standard deviation of the loss, at most 1."""
        losses, masses = self.remove.losses, self.remove.masses
        mean = float(masses @ losses)
        return float(min(1.0, max(1e-9, masses @ (losses - mean) ** 2) ** 0.5))

    def curve(self, direction: Direction, side: Side, delta: float, refinement: int) -> Curve:
        """Curve of one direction; its side of the truth is that of the given distribution."""
        return LossCurve(self.remove if direction is Direction.REMOVE else self.add, side)

    def curves(self, side: Side, delta: float, refinement: int) -> CurvePair:
        """Curves of both directions."""
        remove, add = (self.curve(direction, side, delta, refinement) for direction in Direction)
        return CurvePair(side, [remove], [add], (self.remove.infinity, self.add.infinity))


@dataclass(frozen=True, slots=True, repr=False)
class PrivacyCurve:
    """Privacy curve of one or several runs about the same client, composed adaptively.

    Guarantees:
        ``m * 3 == m + m + m``; the ε of ``a + b`` is at least that of a and that of b.

    Curves that differ in relation, unit or trust cannot be composed.

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
        """Privacy curve of a scheme's first ``steps`` steps, or of all.

        Raises:
            UnsupportedError: no sound analysis is known, or clients have windows of their own.
        """
        if is_per_client(scheme):
            raise UnsupportedError("windows cut from a trace differ by client; price them alone")
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
        """Privacy curve of a dp-accounting mechanism, for instance `from_laplace_mechanism`.

        Args:
            pessimistic: made with ``pessimistic_estimate=True``, as is its default.
            relation: the neighbours of its two directions; dp-accounting does not record it.
            optimistic: the same made with False, for lower bounds; without it they are as if
                nothing was released.
            unit: the unit of one record.
            trust: the trust model.

        Raises:
            ParameterError: an estimate on the wrong side.
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
        """Privacy curve of both, composed adaptively."""
        mine, yours = ((m.relation.value, m.unit.value, m.trust.value) for m in (self, other))
        if mine != yours:
            raise ParameterError("other", " ".join(yours), f"a mechanism under {' '.join(mine)}")
        return PrivacyCurve(
            joined_decompositions([self.parts, other.parts]), self.relation, self.unit, self.trust
        )

    def __radd__(self, other: object) -> PrivacyCurve:
        """The curve itself, to 0, with which `sum` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, times: int) -> PrivacyCurve:
        """Privacy curve of ``times`` repetitions, composed adaptively."""
        checks.count(times=times)
        times = int(times)  # of numpy's smaller types a product of counts may not be one
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
        """Lower and upper bound on ε at δ; quote ``upper``.

        Raises:
            NumericalError: no upper bound can be certified.
        """
        return reduce(or_, self.directions(delta, tolerance).values())

    def directions(self, delta: float, tolerance: float = 1e-3) -> dict[str, Bounds]:
        """Bounds on ε at δ by direction: "remove" and "add", or "replace".

        Raises:
            NumericalError: no upper bound can be certified.
        """
        checks.open_unit(delta=delta, tolerance=tolerance)
        return decomposition_bounds(self.parts, self.relation, delta, tolerance)

    def delta(self, epsilon: float) -> Bounds:
        """Lower and upper bound on δ at ε; quote ``upper``.

        Raises:
            ParameterError: an ε outside [0, 600].
            NumericalError: nothing can be certified.
        """
        from turnout.accounting.meaning.profile import LARGEST_EPSILON, composed_curves

        # Check ε; beyond the cap of a run δ is 0.
        checks.non_negative(epsilon=epsilon)
        if epsilon > LARGEST_EPSILON:
            raise ParameterError("epsilon", epsilon, f"at most {LARGEST_EPSILON:g}")
        if epsilon > self.parts.unhidden.upper(0.0) * (1.0 + _CAP_ROUNDING):
            return Bounds(0.0, 0.0)
        # Profiles sharp to smaller and smaller δ, until the upper bound is within their range.
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

        It is sharp down to ``least_delta``; the mass beyond counts as infinity mass. Its losses are
        multiples of ``discretization``, which is chosen if None.

        Raises:
            ParameterError: a δ outside (0, 1), or a discretization of more than 10⁷ losses.
            UnsupportedError: the relation takes two neighbour bounds.
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
            raise UnsupportedError("two neighbour bounds have no one privacy loss distribution")
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
        laws = [
            loss_distribution(pair, direction, gap, tail).to_dp_accounting()
            for direction in Direction
        ]
        return PrivacyLossDistribution(*laws)


def _repeated(parts: Decomposition, times: int) -> Decomposition:
    def bound(one: NeighbourBound) -> NeighbourBound:
        upper = [(block, count * times) for block, count in one.upper]
        lower = [(block, count * times) for block, count in one.lower]
        return NeighbourBound(upper, lower, one.method, one.tight, one.symmetric)

    return Decomposition(
        bound(parts.record_against_null),
        bound(parts.replacement_against_null) if parts.replacement_against_null else None,
        parts.unhidden * times,
    )


def _imported(name: str, pld: PrivacyLossDistribution, *, expected: bool) -> LossBlock:
    laws = []
    for pmf in (pld._pmf_remove, pld._pmf_add):
        dense = pmf.to_dense_pmf()
        if dense._pessimistic_estimate is not expected:
            side = "pessimistic" if expected else "optimistic"
            raise ParameterError(name, "a distribution", f"one with {side} estimates")
        masses = np.asarray(dense._probs, dtype=float)
        laws.append(
            LossDistribution(
                dense._discretization, dense._lower_loss, masses, float(dense._infinity_mass)
            )
        )
    return LossBlock(*laws)
