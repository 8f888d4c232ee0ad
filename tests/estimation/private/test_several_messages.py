"""Means from several shuffled messages: chosen by public numbers, with a proved bound on ε."""

import math
from collections import Counter
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest

from turnout.accounting import shuffled_price
from turnout.core.errors import ParameterError
from turnout.estimation.private.answers import PrivacyRequest
from turnout.estimation.private.estimates import mean
from turnout.estimation.private.shuffled import shuffled_mean
from turnout.estimation.private.shuffled_means import (
    l2_of_level,
    linf_of_level,
    predicted_error,
    several_messages,
    shuffled_epsilon,
)
from turnout.randomizers.vectors import LInfRandomizer
from turnout.randomness import SimulationStreams

ASK = PrivacyRequest(2.0, "shuffled", delta=1e-5)


def views(randomizer, records):
    """Distribution of the shufflers' outputs, one multiset a message number, by enumeration."""
    radices = randomizer.radices
    distribution = {tuple(() for _ in radices): 1.0}
    for record in records:
        own = randomizer.probabilities(np.array(record)).reshape(radices)
        grown = Counter()
        for view, chance in distribution.items():
            for words in product(*map(range, radices)):
                held = zip(view, words, strict=True)
                after = tuple(tuple(sorted((*seen, word))) for seen, word in held)
                grown[after] += chance * own[words]
        distribution = grown
    return distribution


def true_delta(randomizer, clients, epsilon):
    """Largest δ over all records of all clients, by enumeration of views."""
    records = list(product((-1.0, 0.3, 1.0), repeat=randomizer.dimension))
    found, k = 0.0, math.exp(epsilon)
    for others in combinations_with_replacement(records, clients - 1):
        seen = [views(randomizer, (*others, record)) for record in records]
        for one, other in permutations(seen, 2):
            found = max(found, sum(max(p - k * other.get(v, 0.0), 0.0) for v, p in one.items()))
    return found


@pytest.mark.parametrize(
    ("randomizer", "clients"),
    [
        (linf_of_level(1, 1, 2)(2.0), 2),
        (linf_of_level(1, 1, 2)(2.0), 4),
        (linf_of_level(1, 1, 3)(2.5), 3),
        (LInfRandomizer(2, 2.0, samples=2), 3),
    ],
    ids=["2 levels, n=2", "2 levels, n=4", "3 levels, n=3", "2 coordinates, n=3"],
)
def test_epsilon_of_several_messages_is_not_below_the_enumerated_epsilon(randomizer, clients):
    delta = 0.02
    price = shuffled_epsilon(randomizer, clients, delta)
    assert price < randomizer.epsilon0
    assert true_delta(randomizer, clients, price) <= delta * (1 + 1e-9)
    # A price that omits one of the messages is too low.
    messages = [priced for priced, count in randomizer.shuffled_as for _ in range(count)]
    smallest = min(messages, key=lambda message: message.epsilon0)
    forgotten = shuffled_price([(smallest, 1)], clients, delta)
    assert true_delta(randomizer, clients, forgotten) > delta


def test_the_mean_from_six_messages_has_a_tenth_of_the_error_from_one():
    several, cost = shuffled_mean("linf", 1, 1.0, ASK, 1000)
    one, alone = shuffled_mean("linf", 1, 1.0, ASK, 1000, mechanism="one-message")
    assert (cost.messages, cost.message_bits, alone.messages) == (6, 6, 1)
    assert f"{several.worst_squared_error / 1000:.1e}" == "5.0e-05"
    assert f"{one.worst_squared_error / 1000:.1e}" == "5.4e-04"
    assert "5e-05 from 6 messages, 0.00054 from one" in cost.reason
    assert len(several.pack(several.encode(np.zeros((8, 1)), source()))) == 8 * 6 / 8
    # The price is that of this randomizer's messages, within the budget.
    assert cost.epsilon == shuffled_price(several.shuffled_as, 1000, 1e-5) <= 2.0
    assert cost.local_epsilon == several.epsilon0 > cost.epsilon > 1.99
    assumed = " ".join(cost.assumptions)
    assert "one for each of a client's 6 messages" in assumed
    assert "all 1,000 clients follow the protocol" in assumed
    assert (cost.relation, cost.trust) == ("replace-one", "shuffled")


def source():
    return SimulationStreams(4).source("clients")


def test_several_messages_are_chosen_only_if_they_fit_the_bits_and_reduce_the_error():
    _, tight = shuffled_mean(
        "linf", 1, 1.0, PrivacyRequest(2.0, "shuffled", delta=1e-5, bits=1), 1000
    )
    assert (tight.messages, tight.message_bits) == (1, 1)
    with pytest.raises(ParameterError, match="two messages"):
        several_messages("linf", 1, 1.0, 1000, (2.0, 1e-5), bits=1)
    with pytest.raises(ParameterError, match="mechanism"):
        shuffled_mean("linf", 1, 1.0, ASK, 1000, mechanism="ten-messages")
    # Rotations are clipped, and more messages do not reduce that bias.
    found = several_messages("l2", 4, 1.0, 100, (1.0, 1e-4), bits=12)
    assert found.messages > 1
    assert found.randomizer.message_bits <= 12
    assert found.epsilon <= 1.0
    kashin = l2_of_level(64, 4)(2.0)
    assert predicted_error(kashin, 100) == kashin.mse_bound(100)  # Nothing is clipped.
    rotated = l2_of_level(300, 4, redundancy=1.0)(2.0)
    noise = rotated.worst_squared_error / 100
    assert noise < predicted_error(rotated, 100) < rotated.mse_bound(100)


def test_means_from_several_messages_are_unbiased_with_correct_errors(tmp_path):
    rows = np.repeat([-0.9, 0.8], [300, 700])[:, None]
    np.save(tmp_path / "rows.npy", rows)
    runs = [
        mean(tmp_path / "rows.npy", "linf", 1.0, ASK, SimulationStreams(4).source(str(run)))
        for run in range(12)
    ]
    values = np.array([found.value[0] for found in runs])
    error = runs[0].noise_errors[0] / math.sqrt(len(runs))
    assert abs(values.mean() - rows.mean()) < 6.5 * error
    assert abs(values.mean() - rows[:700].mean()) > 6.5 * error  # omitted rows are noticed
    assert values.std() < 1.6 * runs[0].noise_errors[0]
    # The population's error covers rows as spread as these.
    sampling = rows.std() / math.sqrt(1000)
    assert 0.9 * sampling < runs[0].sampling_errors[0] < 1.4 * sampling
    assert "at most" in runs[0].sampling_from
    with pytest.raises(ParameterError, match="only shuffled means"):
        mean(
            tmp_path / "rows.npy", "linf", 1.0, PrivacyRequest(1.0, "local"), source(),
            mechanism="several-messages",
        )  # fmt: skip
