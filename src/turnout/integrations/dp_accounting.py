"""Turnout's schemes in dp-accounting, and dp-accounting's privacy loss distributions in turnout.

`to_pld` and `from_pld` convert curves; `Accountant` composes `SchemeDpEvent` with dp-accounting's
own events; `random_allocation` and `shuffle` return such events. Every conversion is pessimistic: a
distribution that `to_pld` returns never has a smaller ε than the run, at any discretization, and
`from_pld` turns upper bounds into upper bounds and lower bounds into lower bounds.

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
"""Turnout's relation for each relation of dp-accounting."""


def to_pld(
    curve: PrivacyCurve, discretization: float = 1e-4, least_delta: float = 1e-10
) -> PrivacyLossDistribution:
    """Pessimistic privacy loss distribution on the multiples of ``discretization``.

    Its ε and δ are never below those of the run. The distribution composes with dp-accounting's
    own distributions of the same discretization.

    Args:
        curve: curve of the run.
        discretization: Δ, above 0; a smaller Δ gives a sharper bound.
        least_delta: smallest δ, in (0, 1), at which the bound is sharp; losses of smaller
            probability count as infinite.

    Raises:
        ParameterError: a value outside its domain.
        UnsupportedError: a curve that consists of two bounds, one for each kind of neighbour.
        NumericalError: the grid would be too large.
    """
    return curve.to_dp_accounting(least_delta, discretization)


def from_pld(
    pessimistic: PrivacyLossDistribution,
    relation: NeighboringRelation,
    optimistic: PrivacyLossDistribution | None = None,
) -> PrivacyCurve:
    """Privacy curve of a privacy loss distribution; + and * compose it with other curves.

    Args:
        pessimistic: pessimistic distribution of any discretization.
        relation: relation of the distribution, and of all curves with which it is composed.
        optimistic: the same distribution with ``pessimistic_estimate=False``, for lower bounds.

    Raises:
        ParameterError: ``pessimistic`` is an optimistic estimate, or ``optimistic`` is a
            pessimistic estimate, or the relation is unknown.
    """
    return PrivacyCurve.from_dp_accounting(pessimistic, _relation(relation), optimistic)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SchemeDpEvent(dp_event.DpEvent):
    """Event of dp-accounting: a whole run of a scheme, whose ε `Accountant` computes.

    Attributes:
        scheme: the run's scheme, under the accountant's relation.
    """

    scheme: Scheme


def random_allocation(
    event: dp_event.DpEvent,
    num_selected: int,
    num_steps: int,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> SchemeDpEvent:
    """Event in which each record is in a uniform set of ``num_selected`` of ``num_steps`` steps.

    Args:
        event: `GaussianDpEvent` or `LaplaceDpEvent` of each step.
        num_selected: number of steps that use a record, at least 1.
        num_steps: number of steps, at least ``num_selected``.
        relation: the accountant's relation.

    Raises:
        ParameterError: a number outside its domain, or an unknown relation.
        UnsupportedError: an event of another kind.
    """
    if isinstance(event, dp_event.GaussianDpEvent):
        noise = GaussianNoise(event.noise_multiplier)
    elif isinstance(event, dp_event.LaplaceDpEvent):
        noise = LaplaceNoise(event.noise_multiplier)
    else:
        raise UnsupportedError(f"random allocation of {type(event).__name__} has no analysis")
    allocation = CheckIn(num_steps) if num_selected == 1 else KSubset(num_steps, num_selected)
    return SchemeDpEvent(Scheme(noise, allocation, _relation(relation)))


def shuffle(randomizer: Any, clients: int, **options: Any) -> SchemeDpEvent:
    """Event of the shuffled messages of ``clients`` clients.

    Args:
        randomizer: randomizer of each client's message.
        clients: number of clients.
        options: options of `turnout.shuffled`; its relation must be the accountant's.
    """
    return SchemeDpEvent(shuffled(randomizer, clients, **options))


class Accountant(PLDAccountant):
    """Accountant of dp-accounting that composes `SchemeDpEvent` with dp-accounting's own events.

    All schemes must have one privacy unit and one trust model. Dp-accounting's own events state
    neither, and are assumed to have the same. The accountant also composes the event
    ``RandomAllocationDpEvent(event, num_selected, num_steps)`` of later versions of dp-accounting,
    by turnout's bounds.
    """

    _first: Scheme | None = None

    def _maybe_compose(self, event: dp_event.DpEvent, count: int, do_compose: bool) -> Any:
        # Checked before any part of the event is composed, as later parts could be refused.
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
        """Error text if the events have several privacy units or trust models; None otherwise."""
        first, *others = [*filter(None, [self._first]), *_schemes(event)] or [None]
        for name in ("unit", "trust"):
            for scheme in others:
                before, found = getattr(first, name), getattr(scheme, name)
                if found is not before:
                    expected = f"{before.value}, as in the previous events"
                    return str(ParameterError(name, found.value, expected))
        return None

    def _translated(self, event: Any) -> dp_event.DpEvent:
        """Result of `random_allocation`; the unchanged event if turnout has no bound for it."""
        try:
            parts = event.event, event.num_selected, event.num_steps
            return random_allocation(*parts, self.neighboring_relation)
        except TurnoutError:
            return event

    def _curve(self, scheme: Scheme) -> PrivacyCurve:
        """Privacy curve of a scheme under the accountant's relation."""
        if scheme.relation is not _relation(self.neighboring_relation):
            expected = f"{_relation(self.neighboring_relation).value}, the accountant's relation"
            raise ParameterError("relation", scheme.relation.value, expected)
        curve = PrivacyCurve.of(scheme)
        if curve.parts.replacement_against_null is not None:
            raise UnsupportedError(
                f"relation = {scheme.relation.value!r} needs two neighbour bounds here, which no "
                "single privacy loss distribution represents: use turnout.price"
            )
        return curve


def _schemes(event: dp_event.DpEvent) -> Iterator[Scheme]:
    """All schemes in an event and in the events that it composes."""
    if isinstance(event, SchemeDpEvent):
        yield event.scheme
    inner = getattr(event, "event", None)
    for part in (*getattr(event, "events", ()), *filter(None, [inner])):
        yield from _schemes(part)


def _relation(relation: NeighboringRelation) -> Relation:
    """Member of `Relation` that corresponds to a neighbouring relation of dp-accounting."""
    if relation not in RELATIONS:
        raise ParameterError("relation", relation, "one of dp-accounting's NeighboringRelation")
    return RELATIONS[relation]
