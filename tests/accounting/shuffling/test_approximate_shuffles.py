"""Shuffled (ε₀, δ₀)-messages, adaptive ones too, against enumeration; Gaussian messages."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import shuffle_truths as truths

from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, PairCurve, Side
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.shuffling import approximate as approximate
from turnout.accounting.shuffling.approximate import (
    ApproximateMessagesBlock,
    ApproximatePrice,
    GaussianMessagesBlock,
    InfinityMassBlock,
    shuffled_gaussian,
)
from turnout.accounting.shuffling.binary_response import BinaryResponseBlock
from turnout.accounting.shuffling.blanket import BlanketCurve
from turnout.accounting.shuffling.blanket_pairs import clones_pair, worst_pair
from turnout.accounting.shuffling.sampled_rounds import SubsampledBlock
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError

K_NEAR = np.array(math.exp(0.004))
RATIOS = np.exp([0.0, 0.05, 0.2, 0.6, 1.0, 1.6])


def with_infinity_mass(local_epsilon: float, local_delta: float) -> list[list[float]]:
    """Binary response that tells the truth with chance δ₀: values 2 and 3 give it away."""
    large = (1 - local_delta) / (1 + math.exp(-local_epsilon))
    small = 1 - local_delta - large
    return [[large, small, local_delta, 0.0], [small, large, 0.0, local_delta]]


def curves(block):
    """Curves sharp at various δ's, and the one to be composed."""
    singles = [block.curve(Direction.REMOVE, Side.UPPER, d, 0) for d in (0.3, 0.05, 0.015)]
    return [
        *singles,
        *block.curves(Side.UPPER, 1e-6, 0).add,
        block.wide(0),
    ]


def deltas(law_pairs) -> np.ndarray:
    """The largest δ(K) over both directions of some pairs of laws."""
    return np.array(
        [
            max(
                max(truths.hockey_stick(a, b, k), truths.hockey_stick(b, a, k))
                for a, b in law_pairs
            )
            for k in RATIOS
        ]
    )


@pytest.mark.parametrize("local_epsilon", [0.5, 1.5])
@pytest.mark.parametrize("clients", [1, 2, 4])
@pytest.mark.parametrize("local_delta", [1e-4, 0.01])
def test_shuffled_responses_with_infinity_mass_stay_below_the_bound(
    local_epsilon, clients, local_delta
):
    distributions = with_infinity_mass(local_epsilon, local_delta)
    truth = deltas(list(truths.neighbours(distributions, clients)))
    for curve in curves(ApproximateMessagesBlock(local_epsilon, local_delta, clients)):
        assert (curve.delta(RATIOS) >= truth * (1 - 1e-12)).all()
    # Where ε is larger than ε₀ only leaks are left, which the pure bound does not know.
    k = math.exp(1.01 * local_epsilon)
    pure = float(ApproximatePrice.of(local_epsilon, 1e-300, clients, 64).at(np.array(k)))
    assert (
        pure
        < 1e-12
        < max(truths.hockey_stick(a, b, k) for a, b in truths.neighbours(distributions, clients))
    )


def adaptive(records, local_epsilon: float, local_delta: float) -> dict[tuple[int, ...], float]:
    """The ordered messages if who speaks is drawn at random and the randomizer sees the past.

    After an odd message the values change places, and ε₀ is spent by halves after a leak.
    """
    total: dict[tuple[int, ...], float] = {}
    orders = list(itertools.permutations(records))
    for order in orders:
        for messages in itertools.product(range(4), repeat=len(order)):
            chance = 1.0 / len(orders)
            for i, (record, message) in enumerate(zip(order, messages, strict=True)):
                past = messages[:i]
                half = 0.5 if any(m > 1 for m in past) else 1.0
                distribution = with_infinity_mass(half * local_epsilon, local_delta)
                chance *= distribution[(record + sum(past)) % 2][message]
            total[messages] = total.get(messages, 0.0) + chance
    return total


@pytest.mark.parametrize("local_epsilon", [0.7, 2.0])
def test_the_bound_holds_for_approximate_randomizers_chosen_by_earlier_messages(local_epsilon):
    for others in ((0, 0), (0, 1), (1, 1)):
        pair = [adaptive((own, *others), local_epsilon, 0.02) for own in (0, 1)]
        for curve in curves(ApproximateMessagesBlock(local_epsilon, 0.02, 3)):
            assert (curve.delta(RATIOS) >= deltas([pair])).all()


@pytest.mark.parametrize(
    ("way", "pair_of", "distributions"), [(0, worst_pair, 2), (1, clones_pair, 1)]
)
def test_the_bound_for_approximate_messages_equals_its_formula(way, pair_of, distributions):
    """The sum of δ₀, δ of the pair at ε₀' and (K − 1 + 2D)τ; half of τ would be detected."""
    local_epsilon, delta0, clients = 1.1, 1e-3, 5
    price = ApproximatePrice.of(local_epsilon, delta0, clients, 64, (way,))
    pair = pair_of(local_epsilon - math.log1p(-delta0))
    tau = distributions * (clients - 1) * delta0 / math.exp(local_epsilon)
    for k in (1.0, 1.05, 1.3):
        fewer = truths.pair_delta(pair, clients - 1, k) + (1 + k) * tau
        shuffled = truths.pair_delta(pair, clients, k) + (k - 1 + 2 * fewer) * tau
        expected = delta0 + (1 - delta0) * shuffled
        assert float(price.at(np.array(k))) == pytest.approx(expected, rel=1e-5)
        assert float(price.at(np.array(k))) >= expected * (1 - 1e-12)
        both = ApproximatePrice.of(local_epsilon, delta0, clients, 64)
        assert float(both.at(np.array(k))) <= float(price.at(np.array(k)))
    alone = delta0 + (1 - delta0) * (math.e - 2.5) / (math.e + 1)
    many = ApproximatePrice.of(1.0, delta0, 10**5, 64, (way,))
    assert float(many.at(np.array(2.5))) == pytest.approx(alone)
    assert float(price.at(np.array(math.exp(1.2)))) == pytest.approx(delta0)


def test_each_of_two_dominating_pairs_has_the_smaller_epsilon_in_some_setting():
    """The worst pair is better for tiny δ₀, the clones pair for δ₀ that dominates."""
    for delta0, better in ((1e-12, 0), (1e-5, 1)):
        prices = [
            float(ApproximatePrice.of(0.1, delta0, 10**4, 64, (w,)).at(K_NEAR)) for w in (0, 1)
        ]
        both = float(ApproximatePrice.of(0.1, delta0, 10**4, 64).at(K_NEAR))
        assert both == prices[better] < prices[1 - better]


def missing(p, q, other, local_epsilon: float, delta0: float) -> float:
    """How far another's law is from one that is at least max(p, q)/e^{ε₀'}."""
    blanket = (1 - delta0) * np.maximum(p, q) / math.exp(local_epsilon)
    return float(np.maximum(blanket - other, 0.0).sum())


def test_other_clients_miss_at_most_2_delta0_over_exp_epsilon0_of_the_blanket():
    """The step of the proof for τ, where it is attained and for random distributions."""
    local_epsilon, delta0 = 1.0, 1e-3
    e = math.exp(local_epsilon)
    # p and q within e of each other; the other law never sends the first two messages.
    p = np.array([delta0, delta0 / e, 0.5 - delta0, 0.5 - delta0 / e])
    q = np.array([delta0 / e, delta0, 0.5 - delta0 / e, 0.5 - delta0])
    other = np.array([0.0, 0.0, 0.5, 0.5])
    found = missing(p, q, other, local_epsilon, delta0)
    assert delta0 / e < found <= 2 * delta0 / e
    assert found == pytest.approx(2 * delta0 / e, rel=2e-3)
    rng = np.random.default_rng(7)
    for _ in range(200):
        p, q, other = rng.dirichlet(np.full(6, 3.0), 3)
        excess = [
            np.maximum(a - e * b, 0.0).sum() for a, b in itertools.permutations((p, q, other), 2)
        ]
        delta0 = max(*excess, 1e-9)
        # Her laws without what leaks (the same mass from both, of which there may be more).
        kept_p, kept_q = np.minimum(p, e * q), np.minimum(q, e * p)
        if abs(kept_p.sum() - kept_q.sum()) > 1e-12:
            delta0 = max(delta0, 1 - min(kept_p.sum(), kept_q.sum()))
            kept_p, kept_q = (x / x.sum() * (1 - delta0) for x in (kept_p, kept_q))
        blanket = np.maximum(kept_p, kept_q) / e
        assert np.maximum(blanket - other, 0.0).sum() <= 2 * delta0 / e + 1e-12


def test_a_randomizer_attains_the_lower_bound_from_the_infinity_mass():
    """A client with infinity mass among clients without it has the δ of InfinityMassBlock."""
    local_epsilon, delta0, clients = 1.2, 0.02, 4
    pure = [[*distribution, 0.0, 0.0] for distribution in truths.response(local_epsilon, 2)]
    victims = with_infinity_mass(local_epsilon, delta0)
    pairs = [
        [truths.shuffled([victim, *[pure[other]] * (clients - 1)]) for victim in victims]
        for other in (0, 1)
    ]
    truth = deltas(pairs)
    block = InfinityMassBlock(BinaryResponseBlock(local_epsilon, clients), delta0)
    lower = block.curve(Direction.REMOVE, Side.LOWER, 0.05, 0).delta(RATIOS)
    assert (lower <= truth).all()
    np.testing.assert_allclose(lower, truth, rtol=1e-9)
    pair = block.curves(Side.LOWER, 1e-3, 0)
    assert pair.floors[0] == pytest.approx(delta0)
    assert (pair.remove[0].delta(RATIOS) <= truth).all()
    # The promise that makes it one of the randomizers in question.
    for a, b in itertools.permutations([*victims, *pure], 2):
        excess = np.maximum(np.array(a) - math.exp(local_epsilon) * np.array(b), 0.0).sum()
        assert excess <= delta0 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("local_epsilon", "delta0", "clients"), [(1.0, 1e-12, 1000), (3.0, 1e-13, 10**5)]
)
def test_bounds_on_approximate_shuffles_are_in_order(local_epsilon, delta0, clients):
    upper = ApproximateMessagesBlock(local_epsilon, delta0, clients)
    lower = InfinityMassBlock(BinaryResponseBlock(local_epsilon, clients), delta0)
    for rounds, delta in ((1, 1e-6), (20, 1e-5)):
        above = run_epsilon([(upper, rounds)], Direction.REMOVE, Side.UPPER, delta, 0)
        below = run_epsilon([(lower, rounds)], Direction.REMOVE, Side.LOWER, delta, 0)
        assert 0.5 * above < below <= above < 1.05 * rounds * local_epsilon


def test_a_negligible_infinity_mass_changes_no_epsilon():
    block = ApproximateMessagesBlock(1.0, 1e-100, 10**4)
    pure = run_epsilon([(block, 1)], Direction.ADD, Side.UPPER, 1e-6, 0)
    assert pure == pytest.approx(_pure(1.0, 10**4, 1e-6, 1), rel=1e-3)
    many = run_epsilon([(block, 50)], Direction.ADD, Side.UPPER, 1e-6, 1)
    assert many == pytest.approx(_pure(1.0, 10**4, 1e-6, 50), rel=5e-3)


def _pure(local_epsilon: float, clients: int, delta: float, rounds: int) -> float:
    from turnout.accounting.shuffling.blanket import BlanketBlock

    block = BlanketBlock(worst_pair(local_epsilon), clients)
    return run_epsilon([(block, rounds)], Direction.REMOVE, Side.UPPER, delta, 1)


def test_delta_below_delta0_is_refused():
    block = ApproximateMessagesBlock(1.0, 1e-4, 100)
    assert block.curves(Side.UPPER, 1e-9, 0).floors[0] == pytest.approx(1e-4, rel=1e-9)
    with pytest.raises(NumericalError):
        run_epsilon([(block, 1)], Direction.REMOVE, Side.UPPER, 0.99e-4, 0)
    # Just above, it is a message alone that can be had.
    assert run_epsilon([(block, 1)], Direction.REMOVE, Side.UPPER, 1.01e-4, 0) <= 1.0
    sampled = SubsampledBlock(block, 0.1)
    assert sampled.curves(Side.UPPER, 1e-9, 0).floors[0] == pytest.approx(1e-5, rel=1e-9)


def test_two_rounds_with_infinity_mass_are_bracketed():
    """Composed: above the exact distribution of two rounds of three clients."""
    local_epsilon, delta0 = 1.0, 0.004
    zero, one = with_infinity_mass(local_epsilon, delta0)
    first, second = truths.shuffled([zero, one, zero]), truths.shuffled([one, one, zero])

    def twice(distribution):
        return {
            (*a, *b): p * q for (a, p), (b, q) in itertools.product(distribution.items(), repeat=2)
        }

    block = ApproximateMessagesBlock(local_epsilon, delta0, 3)
    for delta in (0.2, 0.05, 0.015):
        epsilon = run_epsilon([(block, 2)], Direction.REMOVE, Side.UPPER, delta, 0)
        for a, b in ((first, second), (second, first)):
            assert truths.hockey_stick(twice(a), twice(b), math.exp(epsilon)) <= delta


@pytest.mark.parametrize(("noise", "clients", "delta"), [(2.0, 10**5, 1e-6), (6.0, 10**4, 1e-9)])
def test_epsilon_of_gaussian_messages_is_the_smallest_over_all_local_epsilons(
    noise, clients, delta
):
    """At the returned ε, the least δ over a grid of ε₀, recomputed here, is close to δ."""
    epsilon = shuffled_gaussian(noise, clients, delta)
    k = np.array(math.exp(epsilon))
    totals = []
    for local_epsilon in np.linspace(1.0, 8.0, 141):
        message = PairCurve(GaussianPair(noise / 2), Direction.REMOVE, Side.UPPER)
        delta0 = float(message.delta(np.array(math.exp(local_epsilon))))
        tau = 2 * (clients - 1) * delta0 * math.exp(-local_epsilon)
        pair = worst_pair(local_epsilon - math.log1p(-delta0))
        pure, fewer = (
            float(BlanketCurve(pair, n, Side.UPPER, 64).delta(k)) for n in (clients, clients - 1)
        )
        price = k - 1 + 2 * (fewer + (1 + k) * tau)
        totals.append(delta0 + (1 - delta0) * (pure + price * tau))
    assert 0.8 * delta <= min(totals) <= 1.05 * delta


def test_gaussian_messages_have_a_smaller_epsilon_if_other_records_are_identical():
    """One record among identical ones is random allocation, whose exact ε is a lower bound."""
    for noise, clients, delta in ((4.0, 1000, 1e-5), (2.0, 50, 1e-3), (1.0, 4, 0.01)):
        bound = shuffled_gaussian(noise, clients, delta)
        identical_others = [(AllocationBlock(GaussianPair(noise / 2), clients), 1)]
        attained = max(run_epsilon(identical_others, d, Side.LOWER, delta, 0) for d in Direction)
        assert attained <= bound
        assert bound <= 15 * attained


def test_a_few_gaussian_messages_have_the_epsilon_of_a_single_message():
    alone = PairCurve(GaussianPair(0.5), Direction.REMOVE, Side.UPPER)
    epsilon = shuffled_gaussian(1.0, 50, 1e-6)
    assert float(alone.delta(np.array(math.exp(epsilon)))) == pytest.approx(1e-6, rel=1e-6)
    block = GaussianMessagesBlock(1.0, 50)
    assert run_epsilon([(block, 1)], Direction.ADD, Side.UPPER, 1e-6, 0) <= epsilon * 1.002


def test_the_local_epsilon_is_used_if_no_shuffled_bound_is_certified(monkeypatch):
    alone = shuffled_gaussian(8.0, 1, 1e-6, 3)
    known = approximate.run_epsilon

    def refuses(run, *rest):
        if isinstance(run[0][0], GaussianMessagesBlock):
            raise NumericalError("no digits left")
        return known(run, *rest)

    monkeypatch.setattr(approximate, "run_epsilon", refuses)
    assert shuffled_gaussian(8.0, 10**5, 1e-6, 3) == alone
    with pytest.raises(NumericalError):
        shuffled_gaussian(0.01, 5, 1e-6, 3)


def test_more_clients_more_noise_or_fewer_rounds_lower_epsilon():
    base = shuffled_gaussian(3.0, 10_000, 1e-6)
    assert shuffled_gaussian(3.0, 40_000, 1e-6) < base
    assert shuffled_gaussian(4.0, 10_000, 1e-6) < base
    assert shuffled_gaussian(3.0, 10_000, 1e-5) < base
    assert shuffled_gaussian(3.0, 10_000, 1e-6, 2) > base
    assert shuffled_gaussian(3.0, 10_000, 1e-6, 2) < 2 * base


@pytest.mark.parametrize(
    ("noise", "clients", "rounds", "delta", "before", "now"),
    [
        (2.0, 10**5, 1, 1e-6, 0.4335, 0.3785),
        (4.0, 10**4, 1, 1e-6, 0.2404, 0.2159),
        (4.0, 10**4, 5, 1e-6, 0.4441, 0.3792),
        (4.0, 10**5, 100, 1e-6, 0.6934, 0.5571),
        (50.0, 10**4, 1, 1e-6, 0.0078, 0.00635),
    ],
)
def test_the_bound_is_sharper_than_an_earlier_bound_with_more_total_variation(
    noise, clients, rounds, delta, before, now
):
    """`before`: with (1 + K)τ in place of (K − 1 + 2D)τ."""
    found = shuffled_gaussian(noise, clients, delta, rounds)
    assert found == pytest.approx(now, rel=1e-3)
    assert found < 0.93 * before


def test_lower_bounds_for_approximate_messages_are_refused():
    for block in (ApproximateMessagesBlock(1.0, 1e-6, 10), GaussianMessagesBlock(1.0, 10)):
        with pytest.raises(UnsupportedError, match="no lower bound is known"):
            block.curve(Direction.ADD, Side.LOWER, 1e-3, 0)
        with pytest.raises(UnsupportedError, match="no lower bound is known"):
            block.curves(Side.LOWER, 1e-3, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ApproximateMessagesBlock(0.0, 1e-6, 10),
        lambda: ApproximateMessagesBlock(1.0, 0.0, 10),
        lambda: ApproximateMessagesBlock(1.0, 1e-6, 0),
        lambda: GaussianMessagesBlock(0.0, 10),
        lambda: InfinityMassBlock(BinaryResponseBlock(1.0, 3), 1.5),
        lambda: shuffled_gaussian(math.nan, 10, 1e-6),
        lambda: shuffled_gaussian(1.0, 0, 1e-6),
        lambda: shuffled_gaussian(1.0, 10, 1.0),
        lambda: shuffled_gaussian(1.0, 10, 1e-6, 0),
    ],
)
def test_parameters_of_approximate_shuffles_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError):
        wrong()
