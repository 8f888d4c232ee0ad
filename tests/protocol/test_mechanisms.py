"""Each release rule on cases computed by hand, and the distribution of its noise."""

from dataclasses import replace

import numpy as np
import pytest
from protocol_driver import (
    check_in,
    coordinator,
    mechanism,
    no_noise,
    run_step,
    scheme,
    source,
    std_itself,
    unexpected_noise,
    updates,
)
from scipy import stats

from turnout.core.aggregates import UpdateSum
from turnout.core.errors import (
    LocalProtocolError,
    ParameterError,
    RemoteProtocolError,
    UnsupportedError,
)
from turnout.protocol.lattice import Lattice
from turnout.protocol.mechanisms import Clipping, mechanism_for
from turnout.randomness import SimulationStreams
from turnout.schemes import CheckIn, EveryStep, LaplaceNoise, ReleaseRule

FALSE_ALARM = 1e-9
AGGREGATED, ONE_CLIENT, AVERAGED = ReleaseRule


def test_the_aggregated_rule_adds_noise_once_and_divides_by_the_expected_count():
    # C = 1, sigma = 2, expected 2: ((0.5, 0) + (0.25, 0.5) + (2, 2)) / 2.
    machine = coordinator(AGGREGATED, sigma=2.0)
    release = run_step(machine, {1: [0.5, 0], 4: [0.25, 0.5]})
    assert release.direction.tolist() == [1.375, 1.25]
    assert (release.checked_in, release.served, release.dummy, release.skipped) == (
        2,
        2,
        False,
        False,
    )


def test_the_divisor_of_the_aggregated_rule_does_not_depend_on_the_check_ins():
    machine = coordinator(AGGREGATED)
    alone = run_step(machine, {1: [0.5, 0]}, no_noise)
    three = run_step(machine, {2: [0.5, 0], 3: [0, 0], 4: [0, 0]}, no_noise)
    assert alone.direction.tolist() == three.direction.tolist() == [0.25, 0]


def test_the_aggregated_rule_releases_noise_if_no_client_checked_in():
    release = run_step(coordinator(AGGREGATED, sigma=2.0, clip_norm=3.0), {})
    assert release.direction.tolist() == [3.0, 3.0]
    assert (release.checked_in, release.served, release.dummy, release.skipped) == (
        0,
        0,
        True,
        False,
    )


def test_the_aggregated_rule_counts_a_client_without_update_as_zero():
    machine = coordinator(AGGREGATED)
    machine.open_step()
    check_in(machine, 1, 2)
    machine.close_check_ins(source())
    machine.receive(updates(0, {2: [0.5, 0]}))
    release = machine.close_step(std_itself)
    assert release.direction.tolist() == [0.75, 0.5]
    assert (release.checked_in, release.served) == (2, 1)


def test_the_one_client_rule_updates_the_model_by_the_mean_of_each_minibatch():
    # sigma C = 2. Step 0: (0.5, 0) + noise; step 1: nobody, noise alone; then their mean.
    machine = coordinator(ONE_CLIENT, sigma=2.0, minibatch=2)
    first = run_step(machine, {3: [0.5, 0]})
    assert (first.direction, first.skipped, first.dummy, first.served) == (None, False, False, 1)
    second = run_step(machine, {})
    assert second.direction.tolist() == [2.25, 2.0]
    assert (second.skipped, second.dummy, second.served) == (False, True, 0)
    assert machine.mechanism_state["pending"].tolist() == [0.0, 0.0]


def test_the_one_client_rule_discards_an_unfinished_minibatch():
    machine = coordinator(ONE_CLIENT, participation=CheckIn(window=3), minibatch=2)
    moved = [run_step(machine, {}).direction is not None for _ in range(3)]
    assert moved == [False, True, False]


def test_the_one_client_rule_selects_one_of_many_clients():
    machine = coordinator(ONE_CLIENT)
    machine.open_step()
    check_in(machine, 1, 4, 6, 8)
    request = machine.close_check_ins(source())
    assert request.clients.size == 1
    client = int(request.clients[0])
    machine.receive(updates(0, {client: [0.5, 0]}))
    release = machine.close_step(std_itself)
    assert release.direction.tolist() == [1.5, 1.0]
    assert (release.checked_in, release.served) == (4, 1)


def test_the_one_client_rule_releases_a_dummy_update_if_no_update_arrived():
    machine = coordinator(ONE_CLIENT)
    machine.open_step()
    check_in(machine, 1)
    machine.close_check_ins(source())
    release = machine.close_step(std_itself)
    assert release.direction.tolist() == [1.0, 1.0]
    assert (release.checked_in, release.served, release.dummy) == (1, 0, True)


def test_the_averaged_rule_adds_noise_to_each_update_and_divides_by_their_number():
    # Four updates, sigma C = 2: the sum carries 2 * sqrt(4) = 4.
    vectors = {1: [0.5, 0], 2: [0.5, 0], 5: [0, 1.0], 7: [0, 0]}
    release = run_step(coordinator(AVERAGED, sigma=2.0), vectors)
    assert release.direction.tolist() == [1.25, 1.25]
    assert (release.checked_in, release.served) == (4, 4)


def test_the_averaged_rule_skips_a_step_without_check_ins():
    release = run_step(coordinator(AVERAGED), {}, unexpected_noise)
    assert (release.direction, release.skipped, release.dummy) == (None, True, False)


def bounds():
    return [Clipping(2, 3.0), Lattice(0.25, 3.0, 2)]


@pytest.mark.parametrize("bound", bounds(), ids=lambda bound: type(bound).__name__)
def test_the_clip_norm_bounds_each_update(bound):
    built = mechanism_for(scheme(AGGREGATED), bound, expected_check_ins=4.0)
    assert built.clip_norm == 3.0
    message = built.encode(np.array([1.5, -2.0]), source())
    assert bound.to_model(message.total).tolist() == [1.5, -2.0]
    assert message.count == 1
    built.require(message)
    for wrong in ([np.nan, 0.0], [0.0]):
        with pytest.raises(LocalProtocolError, match=r"finite|shape"):
            built.encode(np.array(wrong), source())
    twice = message + message
    with pytest.raises(RemoteProtocolError, match="not clipped"):
        built.require(type(twice)(twice.total, 1))


def test_floating_point_updates_are_scaled_down_to_the_clip_norm():
    message = mechanism(clip_norm=1.0).encode(np.array([3.0, -4.0], np.float32), source())
    assert message.total.tolist() == pytest.approx([0.6, -0.8])


def test_a_lattice_mechanism_releases_integers_and_scales_the_model_step():
    # C/step = 4, sigma = 2: noise of 8 steps; (3 + 8, -2 + 8) * 0.25 / 4.
    lattice = Lattice(0.25, 1.0, 2)
    built = mechanism_for(scheme(AGGREGATED, sigma=2.0), lattice, expected_check_ins=4.0)
    total = built.encode(np.array([0.75, -0.5]), source())
    whole_std = lambda std, dimension: np.full(dimension, std).astype(np.int64)  # noqa: E731
    released, state = built.release(total, built.initial_state(), 0, whole_std)
    assert (released.total.tolist(), released.total.dtype) == ([11, 6], np.int64)
    assert released.direction.tolist() == [0.6875, 0.375]
    assert state == {}
    with pytest.raises(ParameterError, match="int64"):
        built.release(total, {}, 0, std_itself)


def test_mechanisms_refuse_noise_that_is_not_gaussian():
    laplace = replace(scheme(), randomizer=LaplaceNoise(1.0))
    with pytest.raises(UnsupportedError, match="no mechanism for LaplaceNoise"):
        mechanism_for(laplace, Clipping(2, 1.0), expected_check_ins=1.0)


@pytest.mark.parametrize("rule", [ONE_CLIENT, AVERAGED])
def test_updates_with_local_noise_receive_no_further_noise(rule):
    machine = coordinator(rule)
    machine.open_step()
    check_in(machine, 1)
    machine.close_check_ins(source())
    machine.receive(updates(0, {1: [9.0, -9.0]}, noised=1))
    assert machine.close_step(unexpected_noise).direction.tolist() == [9.0, -9.0]


def test_the_selected_client_does_not_depend_on_the_order_of_check_ins():
    for orders in [((1, 4, 6), (6, 1, 4))]:
        asked = []
        for order in orders:
            machine = coordinator(ONE_CLIENT)
            machine.open_step()
            for client in order:
                check_in(machine, client)
            asked.append(machine.close_check_ins(source("same")).clients.tolist())
        assert asked[0] == asked[1]


def chosen_counts(select, repetitions=4000):
    """Number of times that each of five clients is selected."""
    arrived = np.array([0, 2, 3, 7, 9])
    generator = source("choices")
    asked = [int(select(arrived, generator)[0]) for _ in range(repetitions)]
    return np.array([asked.count(client) for client in arrived])


def uniform(counts):
    return stats.chisquare(counts).pvalue > FALSE_ALARM


def test_the_selected_client_is_uniform_among_check_ins():
    assert uniform(chosen_counts(mechanism(ONE_CLIENT).select))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda arrived, draw: arrived[:1],
        lambda arrived, draw: arrived[draw.below(arrived.size - 1, 1)],
        lambda arrived, draw: arrived[draw.below(6, 1) % 5],
    ],
    ids=["the first", "never the last", "modulo bias"],
)
def test_a_nonuniform_selection_of_the_client_is_detected(wrong):
    assert not uniform(chosen_counts(wrong))


def gaussian(*name):
    generator = SimulationStreams(11).generator(*name)
    return lambda std, dimension: std * generator.standard_normal(dimension)


def has_std(sample, std):
    """Whether a two-sided χ² test at `FALSE_ALARM` accepts the standard deviation ``std``."""
    statistic = float(np.sum((sample / std) ** 2))
    tail = min(stats.chi2.cdf(statistic, sample.size), stats.chi2.sf(statistic, sample.size))
    return 2 * tail > FALSE_ALARM


# (rule, who come, standard deviation of a released coordinate in units of sigma C)
NOISE_DISTRIBUTIONS = [
    (AGGREGATED, 0, 1 / 5),
    (AGGREGATED, 3, 1 / 5),
    (AGGREGATED, 9, 1 / 5),
    (ONE_CLIENT, 0, 1.0),
    (ONE_CLIENT, 6, 1.0),
    (AVERAGED, 1, 1.0),
    (AVERAGED, 9, 1 / 3),
]
SIGMA, CLIP, WIDE = 1.3, 0.7, 8192


@pytest.mark.parametrize(("rule", "come", "scale"), NOISE_DISTRIBUTIONS)
def test_the_noise_of_a_release_has_the_standard_deviation_of_its_rule(rule, come, scale):
    machine = coordinator(
        rule,
        participation=EveryStep(1),
        sigma=SIGMA,
        clip_norm=CLIP,
        dimension=WIDE,
        expected_check_ins=5.0,
    )
    machine.open_step()
    check_in(machine, *range(come))
    request = machine.close_check_ins(source())
    for client in request.clients:
        message = updates(0, {int(client): [0.0, 0.0]})
        machine.receive(type(message)(0, message.clients, UpdateSum(np.zeros(WIDE), 1)))
    noise = machine.close_step(gaussian("noise", rule, come)).direction
    assert has_std(noise, SIGMA * CLIP * scale)
    # Named wrong distributions: 10 % more or less noise, C or sigma forgotten, a draw for the mean.
    wrong = [1.1 * scale, scale / 1.1, scale / CLIP, scale / SIGMA]
    wrong += [scale / 3] if (rule, come) == (AVERAGED, 9) else []
    assert not any(has_std(noise, SIGMA * CLIP * other) for other in wrong)
