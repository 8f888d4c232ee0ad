"""Bounds of the thesis on shuffles of sampled clients: printed numbers, and never too small."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

from turnout.accounting.published import shuffled_training
from turnout.core.errors import ParameterError, UnsupportedError

Law = dict[tuple[int, ...], float]


def divergence(one: np.ndarray, other: np.ndarray, order: float) -> float:
    logs = order * np.log(one) + (1 - order) * np.log(other)
    return float(logsumexp(logs)) / (order - 1)


def zeros_and_one(epsilon0: float, messages: int, chance: float) -> tuple[np.ndarray, np.ndarray]:
    """How many ones come when all send a zero but, with some chance, one who sends a one."""
    p = 1 / (math.exp(epsilon0) + 1)
    counts = np.arange(messages + 1)
    zero = binom.pmf(counts, messages, p)
    share = counts / messages
    ratio = share * math.exp(epsilon0) + (1 - share) * math.exp(-epsilon0)
    return zero * (1 + chance * (ratio - 1)), zero


def responses(epsilon0: float, records: tuple[int, ...]) -> Law:
    """The law of how many ones binary response sends for some records."""
    p = 1 / (math.exp(epsilon0) + 1)
    total: Law = {(0,): 1.0}
    for record in records:
        grown: Counter[tuple[int, ...]] = Counter()
        one = 1 - p if record else p
        for (count,), chance in total.items():
            grown[(count + 1,)] += chance * one
            grown[(count,)] += chance * (1 - one)
        total = grown
    return total


def one_round(epsilon0: float, data: list[tuple[int, ...]], k: int, s: int) -> Law:
    """What is seen of k random clients' s random records each."""
    total: Counter[tuple[int, ...]] = Counter()
    choices = [
        tuple(itertools.chain(*drawn))
        for clients in itertools.combinations(data, k)
        for drawn in itertools.product(*(itertools.combinations(own, s) for own in clients))
    ]
    for records in choices:
        for event, chance in responses(epsilon0, records).items():
            total[event] += chance / len(choices)
    return total


def delta(one: Law, other: Law, epsilon: float) -> float:
    return max(
        sum(max(p - math.exp(epsilon) * y.get(event, 0.0), 0.0) for event, p in x.items())
        for x, y in ((one, other), (other, one))
    )


def exact_shuffle(epsilon0: float, messages: int, delta_: float) -> float:
    """ε of shuffled binary response, by bisection on brute force: the tightest bound there is."""
    low, high = 0.0, epsilon0
    for _ in range(50):
        middle = (low + high) / 2
        worst = max(
            delta(responses(epsilon0, (0, *others)), responses(epsilon0, (1, *others)), middle)
            for others in ((1,) * ones + (0,) * (messages - 1 - ones) for ones in range(messages))
        )
        low, high = (low, middle) if worst <= delta_ else (middle, high)
    return high


@pytest.mark.parametrize(
    ("setting", "rounds", "delta_", "printed"),
    [
        ((1.5, 60_000, 10_000), 1200, 1e-5, "3.086"),
        ((2.0, 60_000, 10_000), 480, 1e-5, "4.275"),
        ((2.0, 10**6, 1000), 10**5, 1e-8, "1.040"),
    ],
)
def test_the_published_table_of_theorem_5_4_1_is_reproduced(setting, rounds, delta_, printed):
    found = shuffled_training.theorem_5_4_1(*setting).composed(rounds).epsilon(delta_)
    assert f"{found:.3f}" == printed


@pytest.mark.parametrize("epsilon0", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("clients", "k"), [(10, 10), (50, 10), (1000, 200)])
def test_theorem_5_4_1_is_above_the_divergence_of_binary_response_and_theorem_5_4_2_equals_it(
    epsilon0, clients, k
):
    one, zero = zeros_and_one(epsilon0, k, k / clients)
    for order in (2, 3, 8, 32):
        attained, back = divergence(one, zero, order), divergence(zero, one, order)
        upper = shuffled_training.theorem_5_4_1(epsilon0, clients, k).divergence(order)
        assert upper >= max(attained, back)
        lower = shuffled_training.theorem_5_4_2(epsilon0, clients, k).divergence(order)
        assert lower == pytest.approx(attained, rel=1e-6, abs=1e-12)
        assert lower <= attained + 1e-12


def test_theorem_5_4_1_equals_the_printed_sum():
    epsilon0, clients, k, order = 1.0, 5000, 600, 9
    e, gamma = math.e, k / clients
    hidden = math.floor((k - 1) / (2 * e)) + 1
    total = 1 + 4 * math.comb(order, 2) * gamma**2 * (e - 1) ** 2 / (hidden * e)
    for j in range(3, order + 1):
        ratio = 2 * (e**2 - 1) ** 2 / (hidden * e**2)
        total += math.comb(order, j) * gamma**j * j * math.gamma(j / 2) * ratio ** (j / 2)
    x = gamma * (e**2 - 1) / e
    total += ((1 + x) ** order - 1 - order * x) * math.exp(-(k - 1) / (8 * e))
    found = shuffled_training.theorem_5_4_1(epsilon0, clients, k).divergence(order)
    assert found == pytest.approx(math.log(total) / (order - 1), rel=1e-8)
    assert found >= math.log(total) / (order - 1)


@pytest.mark.parametrize("epsilon0", [0.5, 2.0])
def test_lemma_4_3_1_is_above_brute_force(epsilon0):
    for n, k, m, s in ((3, 2, 1, 1), (3, 2, 2, 1), (3, 1, 3, 2), (2, 1, 2, 2)):
        for bound in (shuffled_training.clones_2021, exact_shuffle):
            found = shuffled_training.lemma_4_3_1(
                epsilon0, n, k, 0.01, records=m, samples=s, bound=bound
            )
            assert found <= epsilon0 + 1e-12
            for rest in itertools.product((0, 1), repeat=m - 1 + m * (n - 1)):
                others = [rest[m - 1 + m * i : m - 1 + m * (i + 1)] for i in range(n - 1)]
                distributions = [
                    one_round(epsilon0, [(own, *rest[: m - 1]), *others], k, s) for own in (0, 1)
                ]
                assert delta(*distributions, found) <= 0.01 * (1 + 1e-9)


def test_sampling_clients_with_several_records_gives_no_amplification():
    """Remark C.1.1: with q = ks/(nm) in place of s/m the lemma would fail for s > 1."""
    epsilon0, delta_ = 2.0, 0.05
    ours = shuffled_training.lemma_4_3_1(
        epsilon0, 2, 1, delta_, records=2, samples=2, bound=exact_shuffle
    )
    wrong = shuffled_training.amplified(exact_shuffle(epsilon0, 2, delta_ / 0.5), 0.5)
    distributions = [one_round(epsilon0, [(own, 0), (1, 1)], 1, 2) for own in (0, 1)]
    assert delta(*distributions, wrong) > delta_ * 1.2
    assert delta(*distributions, ours) <= delta_


def test_lemma_4_3_1_holds_for_very_few_clients():
    assert shuffled_training.lemma_4_3_1(1.0, 10**6, 1, 1e-5) == 0.0


def test_amplification_by_sampled_clients_equals_its_formula():
    assert shuffled_training.amplified(0.5, 0.1) == pytest.approx(math.log1p(0.1 * math.expm1(0.5)))
    assert shuffled_training.amplified(5.0, 0.1) == pytest.approx(math.log1p(0.1 * math.expm1(5.0)))
    assert shuffled_training.amplified(900.0, 0.1) == pytest.approx(900 + math.log(0.1))
    assert shuffled_training.amplified(3.0, 1.0) == pytest.approx(3.0)
    assert shuffled_training.amplified(3.0, 0.0) == shuffled_training.amplified(0.3, 0.0) == 0.0


def self_sampling(epsilon0: float, clients: int, probability: float, epsilon: float) -> float:
    """δ of binary response by clients who toss coins, all others holding a zero."""
    found = [0.0, 0.0]
    for k in range(1, clients + 1):
        one, zero = zeros_and_one(epsilon0, k, k / clients)
        for i, (x, y) in enumerate(((one, zero), (zero, one))):
            price = np.maximum(x - math.exp(epsilon) * y, 0.0).sum()
            found[i] += binom.pmf(k, clients, probability) * float(price)
    return max(found)


@pytest.mark.parametrize(("epsilon0", "probability"), [(0.5, 0.3), (1.0, 1.0), (2.0, 0.9)])
def test_lemma_4_4_1_is_above_epsilon_of_binary_response(epsilon0, probability):
    point = shuffled_training.lemma_4_4_1(epsilon0, 100, probability, 1e-3)
    assert self_sampling(epsilon0, 100, probability, point.epsilon) <= point.delta


def test_lemma_4_4_1_as_printed_fails_for_every_constant():
    """The proof puts e^{−c'qn} for more than the chance of unlucky counts, and it is less."""
    for epsilon0, clients, probability in ((1.0, 1000, 0.02), (2.0, 10**4, 0.01)):
        expected = clients * probability
        few = binom.cdf(math.ceil(expected / 2) - 1, clients, probability)
        many = binom.sf(math.floor(1.5 * expected), clients, probability)
        printed = shuffled_training.lemma_4_4_1_as_printed(
            epsilon0, clients, probability, 1e-12, constant=0.5
        )
        assert few + many > 10 * printed.delta
        if expected > 12 * (epsilon0 + math.log(2)):
            assert (
                few + many
                < shuffled_training.lemma_4_4_1(epsilon0, clients, probability, 1e-12).delta
            )
        else:
            # However small c' is: 2e^{ε₀}e^{−qn/12} is no smaller than 1.
            with pytest.raises(UnsupportedError, match="proves nothing"):
                shuffled_training.lemma_4_4_1(epsilon0, clients, probability, 1e-12)


@pytest.mark.parametrize(
    "function", [shuffled_training.theorem_5_4_1, shuffled_training.theorem_5_4_2]
)
def test_invalid_arguments_are_refused_by_name(function):
    for given in ((0.0, 10, 5), (1.0, 10, 11), (1.0, 10, 0), (301.0, 10, 5), (math.inf, 10, 5)):
        with pytest.raises(ParameterError):
            function(*given)
    with pytest.raises(ParameterError, match="samples"):
        shuffled_training.lemma_4_3_1(1.0, 10, 5, 1e-3, records=2, samples=3)
