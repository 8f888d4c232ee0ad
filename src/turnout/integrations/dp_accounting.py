"""Turnout's prices in dp-accounting, and its privacy loss distributions here.

Whatever crosses is pessimistic: a distribution made here is never better than the run that it
stands for, at any discretization, and one that is taken over keeps its own side.

Notation: Δ is the discretization, the distance between losses of a distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnout.accounting import PrivacyCurve
from turnout.core.errors import ParameterError, TurnoutError, UnsupportedError
from turnout.core.optional import unavailable
from turnout.schemes import CheckIn, GaussianNoise, KSubset, LaplaceNoise, Relation, Scheme
from turnout.schemes.scheme import shuffled

try:
    import attr
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from dp_accounting.privacy_accountant import NeighboringRelation
except ImportError as error:
    raise unavailable(error, __name__, "dp-accounting") from None

RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Relation.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Relation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL: Relation.ZERO_OUT,
}
"""Dp-accounting's relations by ours."""


def to_pld(
    curve: PrivacyCurve, discretization: float = 1e-4, least_delta: float = 1e-10
) -> PrivacyLossDistribution:
    """A pessimistic privacy loss distribution on the multiples of ``discretization``.

    It composes with dp-accounting's own of the same discretization.

    Args:
        curve: the run.
        discretization: Δ, above 0; the smaller, the sharper.
        least_delta: δ down to which it is sharp; what is beyond is lost for sure.

    Raises:
        ParameterError: a value outside its domain.
        UnsupportedError: the relation takes two neighbour bounds.
        NumericalError: the grid would be too large.
    """
    return curve.to_dp_accounting(least_delta, discretization)


def from_pld(
    pessimistic: PrivacyLossDistribution,
    relation: NeighboringRelation,
    optimistic: PrivacyLossDistribution | None = None,
) -> PrivacyCurve:
    """A curve that is composed by + and × with those of schemes under the same relation.

    Args:
        pessimistic: of any discretization.
        relation: under which it was made; the distribution does not say.
        optimistic: the same with ``pessimistic_estimate=False``, for lower bounds.

    Raises:
        ParameterError: an estimate on the wrong side, or an unknown relation.
    """
    return PrivacyCurve.from_dp_accounting(pessimistic, _relation(relation), optimistic)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SchemeDpEvent(dp_event.DpEvent):
    """An event of dp-accounting's: a whole run of a scheme, priced by `Accountant`.

    Attributes:
        scheme: the run, with the relation under which it is accounted.
    """

    scheme: Scheme


def random_allocation(
    event: dp_event.DpEvent,
    num_selected: int,
    num_steps: int,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> SchemeDpEvent:
    """An event: each record is in exactly ``num_selected`` of ``num_steps`` steps, at random.

    Args:
        event: each step's `GaussianDpEvent` or `LaplaceDpEvent`.
        num_selected: k.
        num_steps: t, at least k.
        relation: of the accountant.

    Raises:
        UnsupportedError: another event.
    """
    if isinstance(event, dp_event.GaussianDpEvent):
        noise = GaussianNoise(event.noise_multiplier)
    elif isinstance(event, dp_event.LaplaceDpEvent):
        noise = LaplaceNoise(event.noise_multiplier)
    else:
        raise UnsupportedError(f"random allocation of {type(event).__name__} has no price here")
    law = CheckIn(num_steps) if num_selected == 1 else KSubset(num_steps, num_selected)
    return SchemeDpEvent(Scheme(noise, law, _relation(relation)))


def shuffle(randomizer: Any, clients: int, **options: Any) -> SchemeDpEvent:
    """An event: ``clients`` clients' messages by a randomizer, shuffled.

    ``options`` are those of `turnout.shuffled`; its relation must be the accountant's.
    """
    return SchemeDpEvent(shuffled(randomizer, clients, **options))


class Accountant(PLDAccountant):
    """Dp-accounting's accountant, which composes `SchemeDpEvent` with its own events.

    All schemes have one privacy unit and one trust model, to which dp-accounting's events, which
    name neither, are taken to belong.

    It also prices a ``RandomAllocationDpEvent(event, num_selected, num_steps)``, which later
    versions of dp-accounting have, by turnout's bounds.
    """

    _first: Scheme | None = None

    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool) -> Any:
        # Before anything of the event is composed: what is refused later would be left out.
        if (mixed := self._mixed(event)) is not None:
            return self.CompositionErrorDetails(invalid_event=event, error_message=mixed)
        if type(event).__name__ == "RandomAllocationDpEvent":
            event = self._translated(event)
        if not isinstance(event, SchemeDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        try:
            curve = self._curve(event.scheme)
            if do_compose and count:
                self._first = self._first or event.scheme
                gap = self._value_discretization_interval
                self._pld = self._pld.compose(to_pld(curve * int(count), gap))
        except TurnoutError as error:
            return self.CompositionErrorDetails(invalid_event=event, error_message=str(error))
        return None

    def _mixed(self, event: dp_event.DpEvent) -> str | None:
        """What is wrong with an event whose schemes have several units or trust models."""
        first, *others = [*filter(None, [self._first]), *_schemes(event)] or [None]
        for name in ("unit", "trust"):
            for scheme in others:
                before, found = getattr(first, name), getattr(scheme, name)
                if found is not before:
                    expected = f"{before.value}, as of the events before"
                    return str(ParameterError(name, found.value, expected))
        return None

    def _translated(self, event: Any) -> dp_event.DpEvent:
        """Their event as ours; itself, which is refused, where we have no price."""
        try:
            parts = event.event, event.num_selected, event.num_steps
            return random_allocation(*parts, self.neighboring_relation)
        except TurnoutError:
            return event

    def _curve(self, scheme: Scheme) -> PrivacyCurve:
        if scheme.relation is not _relation(self.neighboring_relation):
            expected = f"{_relation(self.neighboring_relation).value}, as the accountant's"
            raise ParameterError("relation", scheme.relation.value, expected)
        curve = PrivacyCurve.of(scheme)
        if curve.parts.replacement_against_null is not None:
            raise UnsupportedError("two neighbour bounds have no one privacy loss distribution")
        return curve


def _schemes(event: dp_event.DpEvent) -> Iterator[Scheme]:
    """All schemes in an event."""
    if isinstance(event, SchemeDpEvent):
        yield event.scheme
    inner = getattr(event, "event", None)
    for part in (*getattr(event, "events", ()), *filter(None, [inner])):
        yield from _schemes(part)


def _relation(relation: NeighboringRelation) -> Relation:
    if relation not in RELATIONS:
        raise ParameterError("relation", relation, "one of dp-accounting's NeighboringRelation")
    return RELATIONS[relation]
