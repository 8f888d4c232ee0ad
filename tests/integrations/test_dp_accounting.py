"""Conversions from and to dp-accounting's distributions and events."""

from __future__ import annotations

import attr
import dp_accounting
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError

from turnout.accounting import PrivacyCurve, price
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.integrations.dp_accounting import (
    Accountant,
    SchemeDpEvent,
    from_pld,
    random_allocation,
    shuffle,
    to_pld,
)
from turnout.schemes import (
    CheckIn,
    EveryStep,
    GaussianNoise,
    KaryResponse,
    Scheme,
    TableRandomizer,
)

ADD, ZERO = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE
CHECK_IN = Scheme(GaussianNoise(1.0), CheckIn(100), "add-remove")
DELTA = 1e-5


@pytest.mark.parametrize("discretization", [1e-4, 1e-3, 0.0123])
def test_a_converted_loss_distribution_is_never_below_the_exact_epsilon(discretization):
    truth = price(CHECK_IN, DELTA).epsilon
    found = to_pld(PrivacyCurve.of(CHECK_IN), discretization).get_epsilon_for_delta(DELTA)
    assert truth.lower <= found <= truth.upper + 2 * discretization
    curve = PrivacyCurve.of(CHECK_IN)
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        bound = to_pld(curve, discretization).get_delta_for_epsilon(epsilon)
        assert bound >= curve.delta(epsilon).lower * (1 - 1e-9)


@pytest.mark.parametrize("theirs", [1e-4, 2e-3])
def test_loss_distributions_are_converted_at_any_discretization(theirs):
    made = [
        pld.from_gaussian_mechanism(
            2.0, value_discretization_interval=theirs, pessimistic_estimate=side
        )
        for side in (True, False)
    ]
    curve = from_pld(made[0], ADD, made[1])
    truth = price(Scheme(GaussianNoise(2.0), EveryStep(1), "add-remove"), DELTA).epsilon
    found = curve.epsilon(DELTA)
    assert found.lower <= truth.upper
    assert truth.lower <= found.upper <= truth.upper + 3 * theirs
    both = curve + PrivacyCurve.of(CHECK_IN)
    again = to_pld(both, 1e-3)
    assert again.get_epsilon_for_delta(DELTA) >= both.epsilon(DELTA).lower
    with pytest.raises(ParameterError, match="pessimistic"):
        from_pld(made[1], ADD)


def test_converting_to_a_grid_that_is_too_large_is_refused():
    with pytest.raises(ParameterError, match="discretization = 1e-09: expected at least"):
        to_pld(PrivacyCurve.of(CHECK_IN), 1e-9)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ParameterError, match="discretization"):
            to_pld(PrivacyCurve.of(CHECK_IN), wrong)


def test_the_accountant_composes_schemes_with_events_of_dp_accounting():
    gaussian = dp_event.GaussianDpEvent(3.0)
    ours = random_allocation(dp_event.GaussianDpEvent(1.0), 1, 100)
    assert ours.scheme == CHECK_IN
    accountant = Accountant(ADD, 1e-3).compose(gaussian, 2).compose(ours)
    curve = PrivacyCurve.of(CHECK_IN) + PrivacyCurve.of(
        Scheme(GaussianNoise(3.0), EveryStep(2), "add-remove")
    )
    truth = curve.epsilon(DELTA)
    assert truth.lower <= accountant.get_epsilon(DELTA) <= truth.upper + 5e-3
    nested = dp_event.SelfComposedDpEvent(dp_event.ComposedDpEvent([ours, gaussian]), 2)
    twice = Accountant(ADD, 1e-3).compose(nested).get_epsilon(DELTA)
    assert twice >= (PrivacyCurve.of(CHECK_IN) * 2).epsilon(DELTA).lower
    assert twice > accountant.get_epsilon(DELTA)
    with pytest.raises(UnsupportedEventError):
        PLDAccountant(ADD).compose(ours)


def test_a_scheme_of_another_relation_is_refused():
    ours = random_allocation(dp_event.GaussianDpEvent(1.0), 1, 100)
    assert Accountant(ADD).supports(ours)
    for other in (ZERO, REPLACE):
        with pytest.raises(UnsupportedEventError, match="relation"):
            Accountant(other).compose(ours)
    zero = random_allocation(dp_event.GaussianDpEvent(1.0), 1, 100, ZERO)
    found = Accountant(ZERO, 1e-3).compose(zero).get_epsilon(DELTA)
    assert found == pytest.approx(price(CHECK_IN, DELTA).epsilon.upper, abs=2e-3)


@attr.s(frozen=True, auto_attribs=True)
class RandomAllocationDpEvent(dp_event.DpEvent):
    """Event of dp-accounting after 0.6."""

    event: dp_accounting.DpEvent
    num_selected: int
    num_steps: int


def test_random_allocation_events_have_the_epsilon_of_turnout():
    one = RandomAllocationDpEvent(dp_event.GaussianDpEvent(1.0), 1, 100)
    ours = random_allocation(one.event, 1, 100)
    a, b = (Accountant(ADD, 1e-3).compose(event).get_epsilon(DELTA) for event in (one, ours))
    assert a == b
    other = RandomAllocationDpEvent(dp_event.NonPrivateDpEvent(), 1, 100)
    with pytest.raises(UnsupportedEventError):
        Accountant(ADD).compose(other)
    with pytest.raises(UnsupportedError, match="ZCDpEvent"):
        random_allocation(dp_event.ZCDpEvent(1.0), 1, 10)


def test_the_accountant_composes_shuffled_messages():
    event = shuffle(KaryResponse(1.0, 4), 1000)
    found = Accountant(REPLACE, 1e-3).compose(event).get_epsilon(1e-6)
    truth = price(event.scheme, 1e-6).epsilon
    assert truth.lower <= found <= truth.upper * 1.02 + 2e-3
    assert found < 1.0
    assert not Accountant(ADD).supports(event)


def test_a_scheme_with_two_neighbour_bounds_is_not_converted():
    table = TableRandomizer([0.7, 0.3], [0.5, 0.5])
    event = SchemeDpEvent(Scheme(table, CheckIn(10), "replace-one"))
    with pytest.raises(UnsupportedEventError, match="two neighbour bounds"):
        Accountant(REPLACE).compose(event)


def test_the_accountant_refuses_events_with_different_units_or_trust_models():
    event = dp_event.GaussianDpEvent(1.0)
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    of_clients = random_allocation(event, 1, 10)
    noise, participation = of_clients.scheme.randomizer, of_clients.scheme.participation
    of_examples = SchemeDpEvent(Scheme(noise, participation, "add-remove", unit="example"))
    accountant = Accountant(relation, 1e-2).compose(of_clients)
    assert accountant.supports(of_clients)
    assert not accountant.supports(of_examples)
    with pytest.raises(UnsupportedEventError, match="unit"):
        accountant.compose(of_examples)
    both = dp_event.ComposedDpEvent([of_clients, dp_event.SelfComposedDpEvent(of_examples, 2)])
    fresh = Accountant(relation, 1e-2)
    with pytest.raises(UnsupportedEventError, match="unit"):
        fresh.compose(both)
    assert fresh.get_epsilon(DELTA) == 0.0


def test_converting_to_a_grid_coarser_than_all_losses_is_refused():
    curve = PrivacyCurve.of(random_allocation(dp_event.GaussianDpEvent(1.0), 1, 10).scheme)
    with pytest.raises(ParameterError, match="discretization"):
        to_pld(curve, 1000.0)
