"""Heavy hitters among billions of items: frequent items are found, others rarely named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.estimation import FrequencyTally
from turnout.estimation.prefix_search import PrefixSearch, continuation_scores
from turnout.randomizers import OneBitHadamard
from turnout.randomness import SimulationStreams
from turnout.testing import enumerate_outputs


def source(*name):
    return SimulationStreams(40).source(*name)


def test_scores_of_longer_prefixes_are_sums_of_the_scores_of_single_messages():
    randomizer = OneBitHadamard(1.0, 2**7)
    stream = source("continued")
    messages = randomizer.encode(stream.below(2**7, 50), stream)
    prefixes = np.array([3, 0, 6])
    found = continuation_scores(messages, prefixes, 4)
    for place, prefix in enumerate(prefixes):
        for suffix in range(16):
            item = int(prefix) * 16 + suffix
            assert found[place, suffix] == sum(randomizer.score(int(m), item) for m in messages)


def test_a_prefix_search_finds_frequent_items_of_sixty_bits():
    search = PrefixSearch(epsilon=4.0, bits=60, first_bits=12, stride=12, width=16)
    heavy = np.array([2**59 + 12345, 987_654_321_987, 2**60 - 1])
    n, stream = 60_000, source("sixty")
    values = stream.below(2**60, n)
    values[: n // 2] = np.repeat(heavy, [15_000, 9_000, 6_000])
    groups = search.groups(n, stream)
    found = search.find(search.encode(values, groups, stream), 0.03, 0.05)
    assert set(found.items.tolist()) == set(heavy.tolist())
    truth = dict(zip(heavy.tolist(), (0.25, 0.15, 0.1), strict=True))
    for item, frequency in zip(found.items.tolist(), found.frequencies, strict=True):
        assert abs(frequency - truth[item]) < 6 * found.standard_error
    assert found.candidates == 16 * 2**12
    assert search.lengths == (12, 24, 36, 48, 60)
    assert search.epsilon0 == 4.0
    assert search.randomizer(4).message_bits == 1


@pytest.mark.parametrize(
    ("wrong", "most"), [({"bits": 62}, 61), ({"first_bits": 25}, 24), ({"stride": 30}, 24)]
)
def test_a_prefix_search_over_too_many_bits_is_refused(wrong, most):
    ((name, value),) = wrong.items()
    with pytest.raises(ParameterError) as refused:
        PrefixSearch(**{"epsilon": 1.0, "bits": 60, **wrong})
    assert str(refused.value) == f"{name} = {value}: expected at most {most}"


def ratio_of(distributions):
    """Largest ratio of an outcome's probabilities under two items."""
    outcomes = set().union(*distributions)
    return max(
        a.get(out, 0) / b[out] for out in outcomes for a in distributions for b in distributions
    )


def test_a_prefix_search_has_the_epsilon_of_one_message():
    search = PrefixSearch(epsilon=1.0, bits=2, first_bits=1, stride=1, width=2)
    assert search.lengths == (1, 2)

    def sent(item):
        def client(source):
            group = search.groups(1, source)
            messages = search.encode(np.array([item]), group, source)
            return int(group[0]), messages[int(group[0])], sum(map(len, messages))

        return enumerate_outputs(client)

    distributions: list[Any] = [sent(item) for item in range(4)]
    assert (
        ratio_of(distributions) == search.randomizer(0).ratio
    )  # exactly, the public parts included
    assert {count for distribution in distributions for _, _, count in distribution} == {1}

    def everywhere(item):
        """The mutant: each client sends a message about each length."""

        def client(source):
            parts = (search.encode(np.array([item]), np.array([g]), source)[g] for g in (0, 1))
            return [tuple(part) for part in parts]

        return enumerate_outputs(client)

    assert ratio_of([everywhere(item) for item in (0, 3)]) == search.randomizer(0).ratio ** 2


def test_a_prefix_search_rarely_returns_items_at_the_threshold():
    search = PrefixSearch(epsilon=3.0, bits=12, first_bits=8, stride=4, width=8)
    rounds, n = 120, 2000
    people = np.array([7, 300, 4000, 77, 77])  # each a fifth: independent draws have share 0.2
    wrong = naive = 0
    for trial in range(rounds):
        stream = source("null", trial)
        values = people[stream.below(5, n)]
        groups = search.groups(n, stream)
        messages = search.encode(values, groups, stream)
        named = set(search.find(messages, 0.2, 0.1).items.tolist())
        wrong += bool(named - {77})
        last = continuation_scores(messages[-1], np.array([7, 300, 4000]) >> 4, 4)
        gain = float(search.randomizer(1).gain)
        naive += bool((last / len(messages[-1]) / gain > 0.2).any())
    assert stats.binom.sf(wrong - 1, rounds, 0.1) > 1e-9
    assert stats.binom.sf(naive - 1, rounds, 0.1) < 1e-9  # The negative control.


def test_a_prefix_search_refuses_invalid_arguments():
    for wrong in ({"bits": 62}, {"bits": 0}, {"stride": 25}, {"width": 0}, {"epsilon": 0.0}):
        with pytest.raises(ParameterError):
            PrefixSearch(**{"epsilon": 1.0, "bits": 20, **wrong})
    search = PrefixSearch(1.0, 20)
    with pytest.raises(ParameterError, match="error"):
        search.find([np.array([1])] * 2, 0.1, 0.3)
    with pytest.raises(ParameterError, match="messages"):
        search.find([np.array([1])], 0.1)
    with pytest.raises(UnsupportedError, match="prefix_search"):
        FrequencyTally.zero(OneBitHadamard(1.0, 2**40))
