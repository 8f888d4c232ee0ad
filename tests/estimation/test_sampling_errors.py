"""Standard errors for the mean of the clients, and for the mean of their population."""

import numpy as np
import pytest

from turnout.estimation import collect, estimate_frequencies
from turnout.estimation.frequencies import sampled_limits, sampling_errors
from turnout.estimation.means import collect_mean, estimate_mean, sampling_bounds
from turnout.estimation.private.answers import PrivacyRequest
from turnout.estimation.private.central import central_frequencies, central_mean
from turnout.randomizers import HadamardRandomizer, KaryRandomizedResponse
from turnout.randomizers.vectors import LInfRandomizer, SphericalCode
from turnout.randomness import SimulationStreams

RUNS, N = 400, 400
POPULATION = np.array([0.6, 0.3, 0.1])
SLACK = 6.5 * np.sqrt(0.05 * 0.95 / RUNS)  # for a coverage of 0.95; false alarm 1e-10
FEWEST = 0.95 - SLACK


def samples(name):
    draw = SimulationStreams(3).generator(name)
    return [np.repeat(np.arange(3), draw.multinomial(N, POPULATION)) for _ in range(RUNS)]


def coverage(low, high, truth):
    return float(np.mean((np.array(low) <= truth) & (truth <= np.array(high)), axis=0).min())


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_central_confidence_intervals_cover_the_clients_and_their_population(relation):
    privacy, source = (
        PrivacyRequest(1.0, "central", relation=relation),
        SimulationStreams(3).source("noise"),
    )
    held = samples(f"central-{relation}")
    found = [
        central_frequencies(
            [each], 3, privacy, source, mechanism="auto", post_processing="raw", confidence=0.95
        )
        for each in held
    ]
    shares = np.array([np.bincount(each, minlength=3) / N for each in held])
    low, high = [one.low for one in found], [one.high for one in found]
    wide = [one.population_low for one in found], [one.population_high for one in found]
    assert coverage(low, high, shares) > FEWEST
    assert coverage(*wide, POPULATION) > FEWEST
    # Limits from noise alone do not cover the population's share.
    assert coverage(low, high, POPULATION) < 0.5
    z = np.array([(one.raw - POPULATION) / one.population_errors for one in found])
    assert np.mean(z**2) == pytest.approx(1, abs=0.25)
    z = np.array([(one.raw - POPULATION) / one.noise_errors for one in found])
    assert np.mean(z**2) > 3
    assert np.allclose(found[0].sampling_errors, sampling_errors(found[0].raw, found[0].about))


@pytest.mark.parametrize(
    "randomizer", [KaryRandomizedResponse(5.0, 3), HadamardRandomizer(4.0, 3, blocks=2)]
)
def test_local_confidence_intervals_cover_the_clients_and_their_population(randomizer):
    source = SimulationStreams(3).source("messages")
    held = samples("messages")
    found = [estimate_frequencies(collect(randomizer, each, source)) for each in held]
    shares = np.array([np.bincount(each, minlength=3) / N for each in held])
    limits = [one.intervals() for one in found]
    low, high = [one.low for one in limits], [one.high for one in limits]
    assert coverage(low, high, shares) > FEWEST
    assert coverage(low, high, POPULATION) > FEWEST
    z = np.array([(one.raw - POPULATION) / one.population_errors for one in found])
    assert np.mean(z**2) == pytest.approx(1, abs=0.25)
    if isinstance(randomizer, KaryRandomizedResponse):
        two = 2 * np.array([one.noise_errors for one in found])
        raw = np.array([one.raw for one in found])
        assert coverage(raw - two, raw + two, POPULATION) < 0.7


def test_the_variance_of_messages_includes_noise_and_sampling():
    streams, randomizer = SimulationStreams(3), LInfRandomizer.best(1, 14.0, radius=4.0)
    draw, source = streams.generator("means"), streams.source("means")
    z, noise = [], []
    for _ in range(60):
        rows = 1 + draw.choice([-1.9, 1.9], size=(200, 1))
        found = estimate_mean(collect_mean(randomizer, rows, source))
        z.append((found.value[0] - 1) / found.population_errors[0])
        noise.append((found.value[0] - 1) / found.noise_error)
    assert np.mean(np.square(z)) == pytest.approx(1, abs=0.8)
    assert np.mean(np.square(noise)) > 3
    # Where rows are equal, only noise remains.
    alike = estimate_mean(collect_mean(randomizer, np.ones((200, 1)), source))
    assert alike.population_errors[0] < 1.5 * alike.noise_error


def test_a_variance_estimated_from_some_messages_agrees_with_that_of_all():
    rows = np.tile([[0.6, 0.8, 0.0]], (600, 1)) * np.linspace(-1, 1, 600)[:, None]
    randomizer, source = SphericalCode(3, 6.0, code_bits=5), SimulationStreams(3).source("few")
    found = estimate_mean(collect_mean(randomizer, rows, source, block_clients=300))
    messages = randomizer.encode(rows, source)
    vectors = np.array([randomizer.total(messages[i : i + 1], i) for i in range(600)])
    exact = np.sqrt(vectors.var(axis=0) / 600)
    assert np.all(abs(found.population_errors / np.maximum(exact, found.noise_error) - 1) < 0.25)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_the_central_bound_on_sampling_errors_holds_for_the_widest_population(norm):
    privacy, source = (
        PrivacyRequest(5.0, "central", relation="replace-one"),
        SimulationStreams(3).source(norm),
    )
    draw = SimulationStreams(3).generator(norm)
    z, noise = [], []
    for _ in range(RUNS // 2):
        corners = np.eye(2)[draw.integers(0, 2, N)] if norm != "linf" else 1.0
        rows = draw.choice([-1.0, 1.0], size=(N, 2)) * corners
        found = central_mean([rows], privacy, source, norm=norm, dimension=2, radius=1.0)
        z.append(found.value / found.population_errors)
        noise.append(found.value / found.noise_errors)
    assert np.mean(np.square(z)) == pytest.approx(1, abs=0.35)  # The bound is reached here,
    assert np.mean(np.square(noise)) > 5  # and noise alone is far too little.


def test_bounds_on_sampling_errors_stay_in_their_domain():
    errors = np.array([0.1, 0.1])
    assert sampling_bounds(np.array([9.0, 0.0]), errors, np.inf, 1.0, 4).tolist() == [0.0, 0.5]
    assert sampling_bounds(np.array([9.0, 0.0]), errors, 2, 1.0, 4).tolist() == [0.0, 0.0]
    assert sampling_errors(np.array([-0.2, 1.3, 0.5]), 25).tolist() == [0.0, 0.0, 0.1]
    low, high = sampled_limits((np.array([-3.0, 0.0]), np.array([0.0, 9.0])), 5, 0.025)
    assert low.tolist() == [0.0, 0.0]
    assert high[1] == 1.0
    assert high[0] == pytest.approx(1 - 0.025 ** (1 / 5))
