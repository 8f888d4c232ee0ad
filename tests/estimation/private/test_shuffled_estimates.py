"""Estimates from shuffled messages spend at most the proved ε of their randomizer."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from turnout.accounting import shuffled_price
from turnout.accounting.shuffling import clones_2021
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation.private.answers import PrivacyRequest, frequency_randomizer
from turnout.estimation.private.estimates import frequencies, mean
from turnout.estimation.private.shuffled import at_level, shuffled_frequencies, shuffled_mean
from turnout.estimation.private.shuffled_means import level_of_any
from turnout.randomizers.interface import all_mechanisms
from turnout.randomizers.vectors import L1Randomizer, L2Randomizer, SphericalCode
from turnout.randomness import SimulationStreams

SHUFFLED = PrivacyRequest(1.0, "shuffled", delta=1e-6)


def kary_truth(local, items, clients, epsilon):
    """Exact δ of k-ary response if all other clients hold one value that is not the victim's."""
    e = math.exp(local)
    low = 1 / (e + items - 1)
    reach = int(2 * clients * low + 12 * math.sqrt(2 * clients * low) + 20)
    both = stats.binom.pmf(np.arange(reach), clients - 1, 2 * low)
    others = np.zeros((reach, reach))
    for total, chance in enumerate(both):
        ones = np.arange(total + 1)
        others[ones, total - ones] = chance * stats.binom.pmf(ones, total, 0.5)
    one_more, other_more = np.zeros_like(others), np.zeros_like(others)
    one_more[1:], other_more[:, 1:] = others[:-1], others[:, :-1]
    rest = (1 - (e + 1) * low) * others
    first = e * low * one_more + low * other_more + rest
    second = low * one_more + e * low * other_more + rest
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def test_epsilon_of_shuffled_frequencies_is_at_most_the_target_and_close(tmp_path):
    np.save(tmp_path / "items.npy", np.repeat(np.arange(4), [8000, 6000, 4000, 2000]))
    clients = SimulationStreams(11).source("clients")
    found = frequencies(tmp_path / "items.npy", 4, SHUFFLED, clients, mechanism="k-ary")
    local, n = found.cost.local_epsilon, 20_000
    assert 0.998 < found.cost.epsilon <= 1.0
    assert kary_truth(local, 4, n, found.cost.epsilon) <= 1e-6
    # A level one per cent larger exceeds δ for these neighbours.
    assert kary_truth(1.01 * local, 4, n, 1.0) > 1e-6
    assumed = " ".join(found.cost.assumptions)
    assert "a trusted shuffler" in assumed
    assert "all 20,000 clients follow the protocol" in assumed
    assert "4-ary response" in found.cost.kind
    # Public questions would identify the senders.
    for name in all_mechanisms():
        assert not getattr(frequency_randomizer(1.0, 4, name, public=False)[0], "public", False)


@pytest.mark.parametrize(("size", "clients"), [(4, 20_000), (1000, 100_000), (50, 300)])
def test_each_mechanism_has_the_largest_epsilon0_within_the_target(size, clients):
    levels, errors = {}, {}
    for name in all_mechanisms():
        one, cost = shuffled_frequencies(size, SHUFFLED, clients, mechanism=name)
        assert cost.epsilon <= SHUFFLED.epsilon
        assert cost.epsilon == shuffled_price([(one.priced_as, 1)], clients, 1e-6)
        levels[name], errors[name] = one.epsilon0, one.mse_bound(1)
    # The level that every randomizer may have is smaller, and is the least here.
    anybody = min(levels.values())
    assert clones_2021(anybody, clients, 1e-6) > SHUFFLED.epsilon * (1 - 1e-2)
    best, cost = shuffled_frequencies(size, SHUFFLED, clients)
    assert best.mse_bound(1) <= 1.05 * min(errors.values())
    assert cost.local_epsilon == levels[cost.reason.split()[0]]


def test_the_estimate_page_shows_the_epsilon0_of_each_shuffled_mechanism():
    page = (Path(__file__).parents[3] / "docs" / "estimate.md").read_text()
    table = page[page.index("| 1,000 items, n = 100,000") :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in table]
    assert {row[0] for row in rows} == set(all_mechanisms())
    for name, level, bits, error in rows:
        one, cost = shuffled_frequencies(1000, SHUFFLED, 100_000, mechanism=name)
        said = (f"{cost.local_epsilon:.2f}", str(cost.message_bits))
        assert said == (level, bits)
        assert f"{math.sqrt(one.mse_bound(100_000)):.4f}" == error


def test_shuffled_means_use_the_largest_epsilon0_within_the_target():
    n = 20_000
    levels = {}
    for norm, dimension in (("linf", 1), ("linf", 3)):
        one, cost = shuffled_mean(norm, dimension, 1.0, SHUFFLED, n, mechanism="one-message")
        assert cost.epsilon == shuffled_price([(one.priced_as, 1)], n, 1e-6) <= 1.0
        assert cost.epsilon > 0.998
        levels[norm, dimension] = cost.local_epsilon
    assert min(levels.values()) >= level_of_any(n, 1.0, 1e-6) * (1 - 1e-9)
    assert clones_2021(min(levels.values()), n, 1e-6) > 1.4
    # The kind and form of the randomizer do not change.
    for shape in (L1Randomizer(4, 1.0), L2Randomizer.kashin(3, 1.0, width=6, samples=2)):
        again = at_level(shape, 3.0)
        assert again.epsilon0 == pytest.approx(3.0)
        assert again.radices == shape.radices
    with pytest.raises(UnsupportedError, match="SphericalCode"):
        at_level(SphericalCode(5, 1.0), 2.0)


class Shrinking:
    """Rows of which each pass returns fewer."""

    names = ("value",)

    def __init__(self):
        self.passes = 0

    def entries(self, column):
        self.passes += 1
        yield np.arange(2000 // self.passes) % 3

    def vectors(self, columns):
        self.passes += 1
        yield np.full((2000 // self.passes, 1), 0.5)


def test_data_that_change_between_two_passes_are_refused():
    asked = SHUFFLED
    source = SimulationStreams(1).source("test")
    with pytest.raises(ParameterError, match="rows, as in the first pass"):
        frequencies(Shrinking(), 3, asked, source)
    with pytest.raises(ParameterError, match="rows, as in the first pass"):
        mean(Shrinking(), "l2", 1.0, asked, source)
