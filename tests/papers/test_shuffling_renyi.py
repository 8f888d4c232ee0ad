"""Rényi divergences of shuffled messages: never below exact distributions, and close to them."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants import mutation
from scipy.special import logsumexp
from scipy.stats import binom, multinomial
from shuffled_renyi import ratio_distributions, ratio_groups
from shuffled_renyi.divergence import (
    alike_renyi,
    blanket_renyi,
    blanket_renyi_formula,
)

from turnout.accounting.divergence.renyi import block_renyi
from turnout.accounting.shuffling.blanket import BlanketBlock, clones_2021
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    clones_pair,
    hadamard_pair,
    kary_pair,
    stronger_clones_pair,
    third_value_pair,
    trinomial_pair,
)
from turnout.core.errors import NumericalError, ParameterError

ORDERS = (1.001, 1.5, 2.0, 3.3, 8.0, 40.0, 300.0)
CLOSE = 3e-4


def summed(pair: BlanketPair, clients: int, orders: tuple[float, ...]) -> np.ndarray:
    """D_α of the pair by summing over all numbers of clones and of messages of kind h."""
    logs: list[list[np.ndarray]] = [[] for _ in orders]
    for clones in range(clients):
        heads = np.arange(clones + 2)
        weight = binom.logpmf(clones, clients - 1, 2 * pair.share)
        more, same = binom.logpmf(heads - 1, clones, 0.5), binom.logpmf(heads, clones, 0.5)
        high, low = math.log(pair.high), math.log(pair.low)
        p, q = np.logaddexp(high + more, low + same), np.logaddexp(low + more, high + same)
        for index, order in enumerate(orders):
            logs[index].append(weight + q + order * (p - q))
    totals = [logsumexp(np.concatenate(terms)) for terms in logs]
    return np.array(totals) / (np.array(orders) - 1)


@pytest.fixture(autouse=True)
def _afresh():
    """Laws are kept; what a test changes must not stay in them."""
    ratio_groups.ratio_distribution.cache_clear()
    yield
    ratio_groups.ratio_distribution.cache_clear()


def bound(pair: BlanketPair, clients: int, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    found = blanket_renyi(pair, clients, orders)
    assert found.remove == found.add
    assert found.left_out == 0.0
    return np.array(found.remove)


@pytest.mark.parametrize("make", [clones_pair, stronger_clones_pair])
@pytest.mark.parametrize("local_epsilon", [0.05, 0.7, 2.0, 6.0])
@pytest.mark.parametrize("clients", [1, 2, 7, 60])
def test_the_renyi_bound_of_few_clients_equals_the_sum_of_all_terms(
    make, local_epsilon: float, clients: int
) -> None:
    pair = make(local_epsilon)
    truth = summed(pair, clients, ORDERS[1:])  # sums near 1 say little at small orders
    found = bound(pair, clients, ORDERS[1:])
    assert np.all(found >= truth * (1 - 1e-12) - 1e-12)
    assert found == pytest.approx(truth, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("local_epsilon", [0.3, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("clients", [201, 700])
def test_the_renyi_bound_of_more_clients_is_slightly_above_the_sum(
    local_epsilon: float, clients: int
) -> None:
    pair = clones_pair(local_epsilon)
    truth = summed(pair, clients, ORDERS[1:])
    found = bound(pair, clients, ORDERS[1:])
    assert np.all(found >= truth)
    assert found == pytest.approx(truth, rel=CLOSE)


@given(
    st.floats(0.02, 7.0),
    st.integers(2, 400),
    st.floats(1.2, 400.0),
    st.sampled_from([0, 200]),
)
@settings(max_examples=25, deadline=None)
def test_the_renyi_bound_is_slightly_above_the_exact_divergence(
    epsilon: float, clients: int, order: float, few: int
) -> None:
    with mutation() as mutate:
        mutate(ratio_groups, "_FEW_CLIENTS", few)
        mutate(ratio_groups, "_POINTS", 20_000)
        ratio_groups.ratio_distribution.cache_clear()
        found = bound(clones_pair(epsilon), clients, (order,))
    truth = summed(clones_pair(epsilon), clients, (order,))
    assert found[0] >= truth[0] - 1e-11  # rounding of the oracle
    assert found[0] <= truth[0] * 1.02 + 1e-11  # the groups are coarse here


def test_the_renyi_bound_holds_if_small_numbers_of_clones_dominate_the_sum() -> None:
    # At this order most of the sum comes from events that no cumulative probability can hold.
    pair, order = clones_pair(4.0), 3000.0
    found, truth = bound(pair, 900, (order,)), summed(pair, 900, (order,))
    assert truth[0] * (order - 1) > 2000
    assert truth[0] <= found[0] <= truth[0] * (1 + 1e-3)


def test_the_renyi_bound_agrees_with_a_high_precision_value() -> None:
    clients, order = 30, mpmath.mpf("2.7")
    with mpmath.workdps(40):
        e = mpmath.exp(mpmath.mpf("1.3"))
        total = mpmath.mpf(0)
        for clones in range(clients):
            weight = mpmath.binomial(clients - 1, clones) * e**-clones
            weight *= (1 - 1 / e) ** (clients - 1 - clones) / mpmath.mpf(2) ** clones
            for heads in range(clones + 2):
                more = mpmath.binomial(clones, heads - 1) if heads else 0
                same = mpmath.binomial(clones, heads)
                p, q = (e * more + same) / (e + 1), (more + e * same) / (e + 1)
                total += weight * p**order * q ** (1 - order)
        truth = float(mpmath.log(total) / (order - 1))
    found = bound(clones_pair(1.3), clients, (2.7,))[0]
    assert truth <= found <= truth * (1 + 1e-9)


def messages(laws: list[dict[int, float]]) -> dict[tuple[int, ...], float]:
    """The exact distribution of the multiset of messages, one of each law."""
    total: Counter[tuple[int, ...]] = Counter({(): 1.0})
    for law in laws:
        grown: Counter[tuple[int, ...]] = Counter()
        for (seen, chance), (value, own) in itertools.product(total.items(), law.items()):
            grown[tuple(sorted((*seen, value)))] += chance * own
        total = grown
    return total


def divergence(one: dict, other: dict, order: float) -> float:
    logs = [order * math.log(p) + (1 - order) * math.log(other[x]) for x, p in one.items()]
    return float(logsumexp(logs)) / (order - 1)


@pytest.mark.parametrize("make", [clones_pair, stronger_clones_pair])
@pytest.mark.parametrize("values", [2, 3])
@pytest.mark.parametrize("local_epsilon", [0.4, 1.0, 2.5])
def test_shuffled_randomized_response_stays_below_the_renyi_bound(
    make, values: int, local_epsilon: float
) -> None:
    e, orders, clients = math.exp(local_epsilon), (1.5, 2.0, 6.0, 30.0), 5
    laws = [
        {x: (e if x == own else 1) / (e + values - 1) for x in range(values)}
        for own in range(values)
    ]
    found = bound(make(local_epsilon), clients, orders)
    for others in itertools.combinations_with_replacement(range(values), clients - 1):
        rest = [laws[own] for own in others]
        first, second = messages([laws[0], *rest]), messages([laws[1], *rest])
        for order, most in zip(orders, found, strict=True):
            assert divergence(first, second, order) <= most
            assert divergence(second, first, order) <= most


@pytest.mark.parametrize("local_epsilon", [0.4, 1.0, 4.0])
@pytest.mark.parametrize("clients", [1, 2, 9])
def test_the_divergence_with_identical_others_equals_its_enumeration(
    local_epsilon: float, clients: int
) -> None:
    e, orders = math.exp(local_epsilon), (1.5, 2.0, 6.0, 30.0)
    zero, one = ({x: (e if x == own else 1) / (e + 1) for x in (0, 1)} for own in (0, 1))
    zeros = [zero] * (clients - 1)
    with_one, without = messages([one, *zeros]), messages([zero, *zeros])
    truth = [divergence(with_one, without, order) for order in orders]
    back = [divergence(without, with_one, order) for order in orders]
    found = alike_renyi(local_epsilon, clients, orders)
    for lower, exact in zip(found, (truth, back), strict=True):
        assert np.all(lower <= exact)
        assert lower == pytest.approx(exact, rel=1e-9)


def test_the_divergence_with_identical_others_equals_theorem_5_3_3() -> None:
    local_epsilon, n = 1.2, 40
    e, p = math.exp(local_epsilon), 1 / (1 + math.exp(local_epsilon))
    counts = np.arange(n + 1)
    for order in (2, 3, 7):
        total = 1 + math.comb(order, 2) * (e - 1) ** 2 / (n * e)
        for i in range(3, order + 1):
            moment = binom.pmf(counts, n, p) @ (counts - n * p) ** i
            total += math.comb(order, i) * ((e**2 - 1) / (n * e)) ** i * moment
        found = alike_renyi(local_epsilon, n, (float(order),))[0][0]
        assert found == pytest.approx(math.log(total) / (order - 1), rel=1e-9)


@pytest.mark.parametrize(("local_epsilon", "clients"), [(0.5, 10**6), (2.0, 10**4), (50.0, 10**6)])
def test_the_divergence_with_identical_others_is_slightly_below_the_renyi_bound(
    local_epsilon: float, clients: int
) -> None:
    orders = (1.01, 2.0, 30.0, 1000.0)
    lower = np.maximum(*alike_renyi(local_epsilon, clients, orders))
    assert np.all(lower <= bound(clones_pair(local_epsilon), clients, orders))
    assert np.all(lower[1:] >= lower[:-1])
    if local_epsilon == 0.5:
        near = (math.exp(0.5) - 1) ** 2 / (clients * math.exp(0.5))  # of the simplified (5.10)
        assert lower[1] == pytest.approx(near, rel=CLOSE)


@pytest.mark.parametrize(("local_epsilon", "clients"), [(0.5, 10**6), (4.0, 10**5), (8.0, 10**6)])
def test_the_renyi_bound_grows_with_order_and_epsilon0_and_falls_with_clients(
    local_epsilon: float, clients: int
) -> None:
    found = bound(clones_pair(local_epsilon), clients)
    assert np.all(np.diff(found) > 0)
    assert np.all(found <= local_epsilon * (1 + 1e-12))
    assert np.all(found < bound(clones_pair(1.1 * local_epsilon), clients))
    assert np.all(found <= bound(clones_pair(local_epsilon), clients // 2))


def test_the_renyi_bound_at_large_orders_equals_the_local_epsilon() -> None:
    assert bound(clones_pair(2.0), 50, (1e7,))[0] == pytest.approx(2.0, rel=1e-4)
    assert bound(clones_pair(700.0), 50, (2.0,))[0] == pytest.approx(600.0)


def test_the_renyi_bound_is_at_most_and_close_to_the_bound_from_hockey_sticks() -> None:
    orders = (1.5, 2.0, 10.0)
    by_prices = block_renyi(BlanketBlock(clones_pair(1.0), 300), orders, 1e-8).remove
    found = bound(clones_pair(1.0), 300, orders)
    assert np.all(found <= np.array(by_prices) * (1 + CLOSE))
    assert found == pytest.approx(by_prices, rel=5e-3)


@pytest.mark.parametrize(
    ("local_epsilon", "clients", "delta", "rounds"),
    [(0.5, 10**4, 1e-6, 1), (1.0, 10**5, 1e-6, 1), (0.5, 10**6, 1e-8, 1000)],
)
def test_epsilon_of_the_composed_renyi_bound_is_slightly_above_the_composed_epsilon(
    local_epsilon: float, clients: int, delta: float, rounds: int
) -> None:
    curve = blanket_renyi_formula(clones_pair(local_epsilon), clients)
    found = curve.composed(rounds).epsilon(delta)
    exact = clones_2021(local_epsilon, clients, delta, rounds)
    assert exact <= found <= 1.2 * exact


NEUTRALS = {
    "trinomial": trinomial_pair(1.0, 0.1),
    "few neutrals": trinomial_pair(1.0, 0.268),
    "cell": BlanketPair(0.1 * math.exp(2), 0.1, 0.05, 0.9 * math.exp(-2) - 0.1),
    "k-ary": kary_pair(1.0, 5),
    "k-ary, large": kary_pair(4.0, 5),
    "hadamard": hadamard_pair(1.5),
    "third value": third_value_pair(1.0),
}


def counted(pair: BlanketPair, clients: int, orders: tuple[float, ...]) -> np.ndarray:
    """D_α of any pair by summing over how many messages there are of each kind."""
    shares = [pair.share, pair.share, pair.neutral_share]
    shares.append(max(1 - sum(shares), 1e-300))
    kinds = np.array(list(itertools.product(range(clients + 1), repeat=3)))
    kinds = np.column_stack([kinds, clients - kinds.sum(axis=1)])
    kinds = kinds[kinds[:, 3] >= 0]

    def others(hers: int) -> np.ndarray:
        rest = kinds - np.eye(4, dtype=int)[hers]
        return multinomial.logpmf(rest, clients - 1, np.array(shares) / sum(shares))

    logs = np.column_stack([others(hers) for hers in range(3)])
    high, low, neutral = pair.high, pair.low, pair.neutral
    p, q = (
        logsumexp(logs, axis=1, b=[high, low, neutral]),
        logsumexp(logs, axis=1, b=[low, high, neutral]),
    )
    seen = p > -np.inf
    p, q = p[seen], q[seen]
    return np.array([logsumexp(q + order * (p - q)) / (order - 1) for order in orders])


@pytest.mark.parametrize("pair", NEUTRALS.values(), ids=NEUTRALS)
@pytest.mark.parametrize("few", [0, 40])
@pytest.mark.parametrize("clients", [1, 2, 13])
def test_the_renyi_bound_with_neutral_messages_agrees_with_enumeration(
    mutate, pair: BlanketPair, few: int, clients: int
) -> None:
    mutate(ratio_groups, "_FEW_WITH_NEUTRALS", few)
    truth, found = counted(pair, clients, ORDERS[1:]), bound(pair, clients, ORDERS[1:])
    assert np.all(found >= truth * (1 - 1e-12) - 1e-13)
    assert found == pytest.approx(truth, rel=1e-9 if few else 3e-2, abs=1e-11)


def test_the_renyi_bound_with_neutral_messages_of_many_clients_is_bounded() -> None:
    # Without neutral messages, and with so few that they hardly count.
    plain, orders = stronger_clones_pair(1.0), (2.0, 30.0, 400.0)
    nearly = trinomial_pair(1.0, plain.low * (1 - 1e-4))
    with_few = bound(nearly, 20_000, orders)
    assert with_few == pytest.approx(bound(plain, 20_000, orders), rel=1e-2)
    # All but v₃ of a victim's message is worth something: no more than without neutral ones.
    pair = trinomial_pair(1.0, 0.1)
    shown = BlanketPair(math.e / (1 + math.e), 1 / (1 + math.e), pair.share)
    apart = (1 - pair.neutral) * np.expm1(bound(shown, 20_000, orders[:1]))
    assert np.expm1(bound(pair, 20_000, orders[:1])) < apart


def test_shuffles_of_k_ary_response_stay_below_the_bound_of_their_blanket_pair() -> None:
    local_epsilon, orders, clients, values = 1.3, (1.5, 6.0, 30.0), 5, 3
    e = math.exp(local_epsilon)
    laws = [
        {x: (e if x == own else 1) / (e + values - 1) for x in range(values)}
        for own in range(values)
    ]
    found = bound(kary_pair(local_epsilon, values), clients, orders)
    for others in itertools.combinations_with_replacement(range(values), clients - 1):
        rest = [laws[own] for own in others]
        first, second = messages([laws[0], *rest]), messages([laws[1], *rest])
        for order, most in zip(orders, found, strict=True):
            assert divergence(first, second, order) <= most
    third = bound(third_value_pair(local_epsilon), clients, orders)
    rest = [laws[2]] * (clients - 1)
    exact = [divergence(messages([laws[0], *rest]), messages([laws[1], *rest]), a) for a in orders]
    assert third == pytest.approx(exact, rel=1e-9)


def test_a_renyi_bound_with_too_many_neutral_messages_is_refused(mutate) -> None:
    mutate(ratio_groups, "_MOST_WALKS", 50)
    with pytest.raises(NumericalError, match="too many walks"):
        blanket_renyi(kary_pair(6.0, 20), 10**5, (2.0,))


@pytest.mark.parametrize("orders", [(), (1.0,), (3.0, 2.0), (math.inf,)])
def test_renyi_orders_that_do_not_increase_above_one_are_refused(orders: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError, match="orders"):
        blanket_renyi(clones_pair(1.0), 10, orders)
    with pytest.raises(ParameterError, match="orders"):
        alike_renyi(1.0, 10, orders)


def test_log_binomials_agree_with_high_precision() -> None:
    for trials, chance in ((10**6, 0.3), (37, 0.01), (10**5, 0.999)):
        mean, width = trials * chance, math.sqrt(trials * chance * (1 - chance))
        around = np.unique(np.clip(np.round(mean + width * np.linspace(-9, 9, 40)), 0, trials))
        found = ratio_distributions.log_binomial_masses(trials, chance, around)
        assert found == pytest.approx(binom.logpmf(around, trials, chance), abs=2e-8)
        for count in (int(0.9 * mean), int(0.99 * mean)):
            truth = binom.logcdf(count, trials, chance)
            assert ratio_distributions.log_below(trials, chance, count) >= truth


class TestMutants:
    """Each of these was a way to be wrong that the tests above would notice."""

    def missed(self, clients: int = 700, order: float = 40.0, epsilon: float = 1.0) -> bool:
        pair = clones_pair(epsilon)
        ratio_groups.ratio_distribution.cache_clear()
        return bool(bound(pair, clients, (order,))[0] < summed(pair, clients, (order,))[0])

    def test_a_group_of_counts_evaluated_at_its_wrong_end_is_detected(self, mutate) -> None:
        plain = ratio_groups._groups

        def shifted(trials: int, chance: float, lowest: float, count: int):
            first, masses, low = plain(trials, chance, lowest, count)
            return np.append(first[1:], trials), masses, low

        mutate(ratio_groups, "_MOST_GROUPS", 64)
        assert not self.missed()
        mutate(ratio_groups, "_groups", shifted)
        assert self.missed()

    def test_omitting_small_clone_counts_without_a_bound_is_detected(self, mutate) -> None:
        plain = ratio_groups._groups

        def cut(trials: int, chance: float, lowest: float, count: int):
            first, masses, low = plain(trials, chance, lowest, count)
            return first[first > 20], masses[first > 20], low

        assert not self.missed(900, 3000.0, 4.0)
        mutate(ratio_groups, "_groups", cut)
        assert self.missed(900, 3000.0, 4.0)

    def test_truncating_a_random_walk_without_a_bound_on_the_rest_is_detected(self, mutate) -> None:
        plain = ratio_distributions.walk_distribution

        def short(steps: int, reach: float):
            return plain(steps, 2 * math.sqrt(steps))

        mutate(ratio_distributions, "walk_distribution", short)
        assert not self.missed()  # what lies beyond is moved outwards
        mutate(ratio_distributions, "log_beyond", lambda steps, d: np.full(d.size, -np.inf))
        assert self.missed()

    def test_a_client_message_counted_twice_is_detected(self, mutate) -> None:
        plain = ratio_distributions.RatioDistribution.add

        def larger(self, steps: int, reach: float, parts) -> None:
            plain(self, steps + 1, reach, [(weight, drift + 1) for weight, drift in parts])

        mutate(ratio_distributions.RatioDistribution, "add", larger)
        assert self.missed()
        assert self.missed(clients=7)

    def test_a_random_walk_that_omits_the_message_of_the_client_is_detected(self, mutate) -> None:
        pair, plain = NEUTRALS["trinomial"], ratio_distributions.RatioDistribution.add

        def shorter(self, steps: int, reach: float, parts) -> None:
            plain(self, steps - 1, reach, parts)

        mutate(ratio_distributions.RatioDistribution, "add", shorter)
        assert bound(pair, 13, (2.0,))[0] < counted(pair, 13, (2.0,))[0]
