"""Randomizers of numbers: exact ε₀ and distributions, Rényi divergences, message bytes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from turnout.core.errors import ParameterError
from turnout.randomizers import GaussianRandomizer, LaplaceRandomizer
from turnout.randomizers.interface import exponential_below
from turnout.randomizers.numbers import geometric_weights, halvings, shift_ratio
from turnout.randomness import OSRandomness, SimulationStreams, Source
from turnout.randomness.source import LARGEST_RANGE
from turnout.testing import assert_frequencies, assert_mean, assert_rejects


def source(*name):
    return SimulationStreams(30).source(*name)


def level_probability(halving: int, level: int) -> Fraction:
    """P(G = level) computed from the weights, with one fair bit for each halving."""
    whole, rest = divmod(level, halving)
    return Fraction(int(geometric_weights(halving)[rest]), LARGEST_RANGE) / 2 ** (whole + 1)


@pytest.mark.parametrize(
    ("halving", "epsilon"), [(2, 1.0), (4, 1.0), (16, 0.7), (64, 2.0), (7, 5.0)]
)
def test_epsilon0_of_laplace_noise_equals_its_enumerated_value(halving, epsilon):
    randomizer = LaplaceRandomizer(epsilon, 1.0, halving=halving)
    steps, reach = randomizer.steps, 6 * halving

    def distribution(place: int, message: int) -> Fraction:
        return level_probability(halving, (abs(message - 2 * place) - 1) // 2) / 2

    ratios = []
    for message in range(-2 * reach + 1, 2 * (steps + reach), 2):
        values = [distribution(place, message) for place in range(steps + 1)]
        ratios.append(max(values) / min(values))
    assert max(ratios) == randomizer.ratio == shift_ratio(halving, steps)
    assert randomizer.ratio <= exponential_below(epsilon) < shift_ratio(halving, steps + 1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 30.0])
def test_epsilon0_of_laplace_noise_is_close_to_the_requested_epsilon(epsilon):
    randomizer = LaplaceRandomizer(epsilon, 3.0)
    assert randomizer.epsilon0 <= epsilon
    assert randomizer.epsilon0 >= epsilon - 2 * math.log(2) / 2**16
    ideal = 2 * (2 * 3.0 / epsilon) ** 2
    assert randomizer.variance_bound == pytest.approx(ideal, rel=2.2e-5 / epsilon + 1e-9)
    with pytest.raises(ParameterError, match="epsilon"):
        LaplaceRandomizer(1e-6, 1.0)


class Scripted(Source):
    """Random source that returns given numbers in order."""

    secure = False

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)

    def below(self, n, size):
        return np.array([self.answers.pop(0) for _ in range(size)], dtype=np.int64)


def test_laplace_noise_of_each_magnitude_is_drawn_with_its_weight():
    randomizer = LaplaceRandomizer(1.0, 1.0, halving=4)
    ends = np.cumsum(geometric_weights(4))
    for rest, (first, last) in enumerate(zip([0, *ends[:-1]], ends - 1, strict=True)):
        for drawn in (int(first), int(last)):
            for sign in (0, 1):
                # Draws: no halving (an odd word), the weight, the sign; −1 is place 0.
                message = randomizer.encode([-1.0], Scripted(1, drawn, sign))[0]
                assert message == (2 * sign - 1) * (2 * rest + 1)
    assert halvings(3, Scripted(1, 8, 0, 0, 4)).tolist() == [0, 3, 126]


@pytest.mark.parametrize("stream", [OSRandomness(), SimulationStreams(31).source("laplace")])
def test_drawn_laplace_noise_has_the_enumerated_distribution(stream):
    randomizer = LaplaceRandomizer(2.0, 1.0, halving=4)
    n, top = 100_000, 20
    messages = randomizer.encode(np.full(n, 1.0), stream) - 2 * randomizer.steps
    levels = np.minimum((np.abs(messages) - 1) // 2, top)
    distribution = [float(level_probability(4, level)) for level in range(top)]
    distribution.append(1 - sum(distribution))
    counts = np.bincount(levels, minlength=top + 1)
    assert_frequencies(counts, distribution)
    assert_frequencies([(messages > 0).sum(), (messages < 0).sum()], [0.5, 0.5])
    wrong = np.roll(distribution, 1)
    assert_rejects(lambda seen: assert_frequencies(seen, wrong), {"one level off": counts})


NOISY = [LaplaceRandomizer(1.0, 2.0), LaplaceRandomizer(0.5, 0.1), GaussianRandomizer(0.7, 2.0)]


@pytest.mark.parametrize("randomizer", NOISY, ids=str)
@pytest.mark.parametrize("share", [-1.0, 0.2345, 1.0])
def test_noisy_numbers_are_unbiased_and_within_their_variance_bound(randomizer, share):
    value = share * randomizer.clip
    found = randomizer.decode(randomizer.encode(np.full(60_000, value), source("unbiased")))
    assert_mean(found, value)
    assert_mean((found - value) ** 2 / randomizer.variance_bound, 1.0)
    assert_rejects(
        lambda values: assert_mean(values, value), {"shifted": found + 0.1 * found.std()}
    )
    beyond = randomizer.decode(randomizer.encode(np.full(60_000, 9 * value), source("clip")))
    assert_mean(beyond, float(np.clip(9 * value, -randomizer.clip, randomizer.clip)))


@pytest.mark.parametrize("randomizer", NOISY, ids=str)
def test_unpacking_inverts_packing_of_noisy_numbers(randomizer):
    messages = randomizer.encode(np.linspace(-3, 3, 50), source("bytes"))
    data = randomizer.pack(messages)
    assert len(data) == 50 * randomizer.message_bits // 8
    assert np.array_equal(randomizer.unpack(data, 50), messages)
    with pytest.raises(ParameterError, match="bytes"):
        randomizer.unpack(data, 49)
    for wrong in ([math.nan], [math.inf], [[1.0]]):
        with pytest.raises(ParameterError, match="values"):
            randomizer.encode(wrong, source())


def test_rounding_to_the_lattice_is_unbiased():
    randomizer = GaussianRandomizer(1.0, 1.0)
    step = randomizer.clip / randomizer.half_steps
    # At a third of a step, the nearer of the two lattice points is drawn twice as often.
    fine = LaplaceRandomizer(30.0, 1.0, halving=2)
    value = -1 + fine.step / 3
    messages = fine.encode(np.full(30_000, value), source("fair"))
    assert_mean(fine.decode(messages), value)
    assert step < 1e-5


@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0, 80.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 6.0])
def test_delta_of_the_gaussian_randomizer_is_the_exact_value_rounded_up(noise, epsilon):
    mpmath = pytest.importorskip("mpmath")
    found = GaussianRandomizer(noise, 3.0).delta(epsilon)
    with mpmath.workdps(400):
        shift, e = 2 / mpmath.mpf(noise), mpmath.mpf(epsilon)
        truth = mpmath.ncdf(shift / 2 - e / shift)
        truth -= mpmath.exp(e) * mpmath.ncdf(-shift / 2 - e / shift)
        assert mpmath.mpf(found) >= truth
        assert found <= float(truth) * (1 + 1e-9) + 1e-300
        # Negative control: sensitivity C, as if a client could only be added or removed.
        half = mpmath.ncdf(shift / 4 - 2 * e / shift)
        half -= mpmath.exp(e) * mpmath.ncdf(-shift / 4 - 2 * e / shift)
        assert mpmath.mpf(found) > half


def test_the_gaussian_randomizer_has_infinite_epsilon0_and_exact_renyi_divergence():
    randomizer = GaussianRandomizer(2.0, 5.0)
    assert randomizer.epsilon0 == math.inf
    assert randomizer.rdp(3.0) == pytest.approx(1.5)
    assert randomizer.mse_bound(10) == pytest.approx(10.0, rel=1e-5)
    lattice = 2 * randomizer.half_steps
    assert randomizer.decode([0, lattice]) == pytest.approx([-5.0, 5.0])
    for noise in (0.0, 2.0**-11, 2.0**21, math.nan):
        with pytest.raises(ParameterError, match="noise_multiplier"):
            GaussianRandomizer(noise, 1.0)


def test_drawn_gaussian_noise_is_normal():
    randomizer = GaussianRandomizer(1.5, 1.0)
    found = randomizer.decode(randomizer.encode(np.zeros(50_000), source("normal"))) / 1.5
    inner = stats.norm.ppf(np.linspace(0.02, 0.98, 49))
    cells = np.searchsorted(inner, found)
    distribution = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], inner, [np.inf]])))
    assert_frequencies(np.bincount(cells, minlength=50), distribution)
