"""Shuffles of some of the clients, against enumeration of who takes part."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import shuffle_truths as truths

from turnout.accounting.divergence.blocks import Block
from turnout.accounting.divergence.composition import run_epsilon
from turnout.accounting.divergence.curves import Direction, Side, diluted
from turnout.accounting.divergence.pairs import PurePair
from turnout.accounting.participation.check_ins import AllocationBlock
from turnout.accounting.shuffling import sampled_mixtures
from turnout.accounting.shuffling.blanket import BlanketBlock
from turnout.accounting.shuffling.blanket_pairs import (
    BlanketPair,
    clones_pair,
    kary_pair,
    worst_pair,
)
from turnout.accounting.shuffling.sampled_mixtures import Mixture, RoundGroup, groups
from turnout.accounting.shuffling.sampled_rounds import SelfSamplingBlock, SubsampledBlock
from turnout.core.errors import ParameterError, UnsupportedError

RATIOS = np.exp([0.0, 0.02, 0.1, 0.3, 0.8])
DELTAS = (0.2, 0.05, 0.01, 1e-3)


@dataclass(frozen=True)
class Messages:
    """Blocks of any number of messages with one blanket pair."""

    pair: BlanketPair

    def __call__(self, messages: int) -> Block:
        return BlanketBlock(self.pair, messages)


@dataclass(frozen=True)
class IdenticalOthersMessages:
    """One record's binary response among others that all hold the other record."""

    local_epsilon: float

    def __call__(self, messages: int) -> Block:
        return AllocationBlock(PurePair(self.local_epsilon), messages)


def subsampled(messages, size: int) -> truths.Law:
    """The view of a uniform subset of the clients."""
    subsets = list(itertools.combinations(messages, size))
    total: truths.Law = {}
    for subset in subsets:
        for counts, chance in truths.shuffled(subset).items():
            total[counts] = total.get(counts, 0.0) + chance / len(subsets)
    return total


def self_sampling(messages, rate: float) -> truths.Law:
    """The view where each client tosses her own coin; silence is one more value."""
    return truths.shuffled(
        [[*(rate * p for p in distribution), 1.0 - rate] for distribution in messages]
    )


def neighbours(distributions, clients: int):
    for records in itertools.combinations_with_replacement(range(len(distributions)), clients - 1):
        others = [distributions[record] for record in records]
        yield [distributions[0], *others], [distributions[1], *others]


def worst(law_of, distributions, clients: int) -> np.ndarray:
    """The largest δ over both directions and all records of the others, at each K."""
    found = np.zeros(RATIOS.size)
    for first, second in neighbours(distributions, clients):
        one, other = law_of(first), law_of(second)
        for a, b in ((one, other), (other, one)):
            found = np.maximum(found, [truths.hockey_stick(a, b, k) for k in RATIOS])
    return found


def above(block: Block, truth: np.ndarray) -> bool:
    """That curves sharp at various δ's, and those to be composed, lie above."""
    curves = [
        block.curve(direction, Side.UPPER, delta, 0) for direction in Direction for delta in DELTAS
    ]
    pair = block.curves(Side.UPPER, 1e-6, 0)
    curves += [*pair.remove, *pair.add]
    return all((curve.delta(RATIOS) >= truth * (1 - 1e-9) - 1e-15).all() for curve in curves)


PAIRS = {"clones": clones_pair, "worst": worst_pair}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("values", "clients", "size"), [(2, 5, 2), (2, 4, 4), (3, 4, 2), (3, 4, 1)]
)
@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
def test_a_shuffle_of_a_sampled_subset_stays_below_the_proved_bound(
    name, values, clients, size, local_epsilon
):
    distributions = truths.response(local_epsilon, values)
    truth = worst(lambda messages: subsampled(messages, size), distributions, clients)
    block = SubsampledBlock(BlanketBlock(PAIRS[name](local_epsilon), size), size / clients)
    assert above(block, truth)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("values", "clients", "rate"), [(2, 5, 0.3), (2, 4, 0.9), (3, 4, 0.5)])
@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
def test_a_shuffle_of_self_sampled_clients_stays_below_the_proved_bound(
    name, values, clients, rate, local_epsilon
):
    distributions = truths.response(local_epsilon, values)
    truth = worst(lambda messages: self_sampling(messages, rate), distributions, clients)
    assert above(SelfSamplingBlock(Messages(PAIRS[name](local_epsilon)), clients, rate), truth)


def identical_others(local_epsilon: float, clients: int):
    zero, one = truths.response(local_epsilon, 2)
    return [zero, *[one] * (clients - 1)], [one] * clients


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("local_epsilon", [0.4, 1.5])
@pytest.mark.parametrize(("clients", "size"), [(5, 2), (4, 3), (3, 3)])
def test_the_curve_of_a_subset_is_exact_if_other_records_are_identical(
    direction, local_epsilon, clients, size
):
    one, other = (
        subsampled(distributions, size)
        for distributions in identical_others(local_epsilon, clients)
    )
    if direction is Direction.ADD:
        one, other = other, one
    truth = np.array([truths.hockey_stick(one, other, k) for k in RATIOS])
    block = SubsampledBlock(
        IdenticalOthersMessages(local_epsilon)(size), size / clients, identical_others=True
    )
    for side in Side:
        found = block.curve(direction, side, 0.05, 0).delta(RATIOS)
        np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-12)
        assert ((found - truth) * (1 if side is Side.UPPER else -1) >= -1e-15).all()


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("clients", "rate"), [(5, 0.3), (4, 0.8), (3, 1.0)])
def test_the_curve_of_self_sampling_is_nearly_exact_if_other_records_are_identical(
    direction, clients, rate
):
    one, other = (
        self_sampling(distributions, rate) for distributions in identical_others(1.2, clients)
    )
    if direction is Direction.ADD:
        one, other = other, one
    block = SelfSamplingBlock(IdenticalOthersMessages(1.2), clients, rate, identical_others=True)
    for epsilon in (0.05, 0.2):
        truth = truths.hockey_stick(one, other, math.exp(epsilon))
        upper, lower = (
            run_epsilon([(block, 1)], direction, s, truth, 0) for s in (Side.UPPER, Side.LOWER)
        )
        assert lower <= epsilon * (1 + 1e-9) <= upper * (1 + 2e-9)
        assert upper - lower <= 0.01 * epsilon
    pair = block.curves(Side.LOWER, 1e-3, 0)
    curve = (pair.remove if direction is Direction.REMOVE else pair.add)[0]
    truth = np.array([truths.hockey_stick(one, other, k) for k in RATIOS])
    assert (curve.delta(RATIOS) <= truth * (1 + 1e-12) + 1e-16).all()


@pytest.mark.parametrize("rate", [0.3, 0.9])
def test_two_rounds_of_self_sampling_are_bracketed(rate):
    """Composed bounds enclose the exact δ with identical records of other clients."""
    distributions = [self_sampling(messages, rate) for messages in identical_others(1.0, 3)]

    def twice(distribution):
        return {
            (a, b): p * q for (a, p), (b, q) in itertools.product(distribution.items(), repeat=2)
        }

    one, other = map(twice, distributions)
    upper = [(SelfSamplingBlock(Messages(worst_pair(1.0)), 3, rate), 2)]
    lower = [(SelfSamplingBlock(IdenticalOthersMessages(1.0), 3, rate, identical_others=True), 2)]
    for delta in (0.1, 0.01):
        epsilon = run_epsilon(upper, Direction.REMOVE, Side.UPPER, delta, 0)
        assert truths.hockey_stick(one, other, math.exp(epsilon)) <= delta
        assert truths.hockey_stick(other, one, math.exp(epsilon)) <= delta
        found = run_epsilon(lower, Direction.REMOVE, Side.LOWER, delta, 0)
        assert truths.hockey_stick(one, other, math.exp(found)) >= delta
        assert found <= epsilon


def binomial_mixture(pair: BlanketPair, clients: int, rate: float, k: float) -> float:
    """Every number of messages by itself."""
    total = 0.0
    for messages in range(1, clients + 1):
        share = messages / clients
        chance = math.comb(clients, messages) * rate**messages * (1 - rate) ** (clients - messages)
        total += chance * share * truths.pair_delta(pair, messages, 1 + (k - 1) / share)
    return total


@pytest.mark.parametrize("rate", [0.2, 0.7])
@pytest.mark.parametrize("make", [clones_pair, worst_pair, lambda e: kary_pair(e, 4)])
def test_the_mixture_agrees_with_the_sum_over_participant_counts(make, rate):
    pair, clients = make(1.3), 7
    block = SelfSamplingBlock(Messages(pair), clients, rate)
    mixture = Mixture.of(block.sample, Direction.REMOVE, Side.UPPER, 1e-9, 0)
    for k in (1.0, 1.1, 1.5):
        truth = binomial_mixture(pair, clients, rate, k)
        found = float(mixture.delta(np.array(k)))
        assert truth * (1 - 1e-9) <= found <= truth * 1.01


@pytest.mark.parametrize("rate", [1e-3, 0.02, 0.6])
def test_groups_partition_the_participant_counts_and_keep_their_mean(rate):
    from scipy.stats import binom

    n = 40_000
    for side in Side:
        found = groups(n, rate, side, 0)
        assert found[0].first == 1
        assert found[-1].last == n
        assert all(a.last + 1 == b.first for a, b in itertools.pairwise(found))
        sign = 1 if side is Side.UPPER else -1
        for group in found:
            numbers = np.arange(group.first, group.last + 1)
            masses = binom.pmf(numbers, n, rate)
            assert sign * (group.chance - masses.sum()) >= -1e-16
            total = group.chance * group.mean
            assert sign * (total - (masses * numbers).sum()) >= -1e-12
        assert sum(g.chance * g.mean for g in found) == pytest.approx(n * rate, rel=1e-5)


def test_bounds_from_finer_groups_are_sharper():
    block = SelfSamplingBlock(Messages(clones_pair(1.0)), 20_000, 0.1)
    coarse, fine, finest = (
        run_epsilon([(block, 1)], Direction.REMOVE, Side.UPPER, 1e-6, level) for level in range(3)
    )
    assert finest <= fine <= coarse <= 1.01 * finest
    # A sample of exactly the mean number is about the same, and a little less.
    fixed = SubsampledBlock(BlanketBlock(clones_pair(1.0), 2000), 0.1)
    exact = run_epsilon([(fixed, 1)], Direction.REMOVE, Side.UPPER, 1e-6, 2)
    assert exact <= finest <= 1.01 * exact


@pytest.mark.parametrize(
    ("local_epsilon", "clients", "size", "rounds", "delta", "epsilon"),
    [
        (1.5, 60_000, 10_000, 1200, 1e-5, 0.556),
        (2.0, 60_000, 10_000, 480, 1e-5, 0.543),
        (2.0, 10**6, 1000, 10**5, 1e-8, 0.208),
    ],
)
def test_epsilon_of_composed_sampled_rounds_equals_known_values(
    local_epsilon, clients, size, rounds, delta, epsilon
):
    block = SubsampledBlock(BlanketBlock(clones_pair(local_epsilon), size), size / clients)
    found = run_epsilon([(block, rounds)], Direction.REMOVE, Side.UPPER, delta, 2)
    assert found == pytest.approx(epsilon, abs=5e-4)
    own = SelfSamplingBlock(Messages(clones_pair(local_epsilon)), clients, size / clients)
    mixed = run_epsilon([(own, rounds)], Direction.REMOVE, Side.UPPER, delta, 0)
    assert found <= mixed <= 1.015 * found


def test_sampling_rate_one_equals_a_shuffle_of_all_clients():
    base = Messages(worst_pair(1.0))
    own = SelfSamplingBlock(base, 300, 1.0)
    for count in (1, 5):
        alone, mixed = (
            run_epsilon([(block, count)], Direction.REMOVE, Side.UPPER, 1e-4, 1)
            for block in (base(300), own)
        )
        assert mixed == pytest.approx(alone, rel=5e-3)


def test_rounds_of_few_sampled_messages_have_at_most_the_sum_of_local_epsilons():
    """For counts far below the mean the loss rises up to ε₀, and the polygon must include it."""
    own = SelfSamplingBlock(Messages(worst_pair(2.0)), 10, 0.3)
    epsilon = run_epsilon([(own, 3)], Direction.REMOVE, Side.UPPER, 1e-6, 0)
    assert 2.0 < epsilon < 6.0
    one = run_epsilon([(own, 1)], Direction.REMOVE, Side.UPPER, 1e-6, 0)
    truth = binomial_mixture(worst_pair(2.0), 10, 0.3, math.exp(one))
    assert 0.9e-6 <= truth <= 1e-6 * (1 + 1e-9)


def test_bounds_that_apply_the_sampling_rate_twice_are_detected():
    """Mutants: γ squared before the curve, or in its argument."""
    distributions = truths.response(1.0, 2)
    truth = worst(lambda messages: subsampled(messages, 2), distributions, 5)
    base = BlanketBlock(clones_pair(1.0), 2).curve(Direction.REMOVE, Side.UPPER, 0.02, 0)
    right = diluted(base, Direction.REMOVE, 0.4).delta(RATIOS)
    assert (right >= truth).all()
    assert not (0.4 * right >= truth).all()
    assert not (diluted(base, Direction.REMOVE, 0.4**2).delta(RATIOS) / 0.4 >= truth).all()


def test_groups_bounded_by_the_wrong_count_are_detected(monkeypatch):
    """A mutant: the lower and upper counts N₁ and N₂ of a group are swapped."""
    pair, clients, rate = clones_pair(1.3), 7, 0.5
    block = SelfSamplingBlock(Messages(pair), clients, rate)
    whole = [RoundGroup(1, 3, 0.0, 0.0), RoundGroup(4, 7, 0.0, 0.0)]
    masses = [math.comb(clients, m) * rate**clients for m in range(clients + 1)]

    def cut(side: Side, *, swapped: bool):
        found = []
        for group in whole:
            numbers = range(group.first, group.last + 1)
            chance = sum(masses[m] for m in numbers)
            mean = sum(m * masses[m] for m in numbers) / chance
            first, last = (group.last, group.first) if swapped else (group.first, group.last)
            found.append(RoundGroup(first, last, chance, mean))
        return found

    values = {}
    for swapped in (False, True):
        monkeypatch.setattr(
            sampled_mixtures, "groups", lambda *_, s=swapped: cut(Side.UPPER, swapped=s)
        )
        mixture = Mixture.of(block.sample, Direction.REMOVE, Side.UPPER, 1e-9, 0)
        values[swapped] = mixture.delta(RATIOS)
    truth = np.array([binomial_mixture(pair, clients, rate, float(k)) for k in RATIOS])
    assert (values[False] >= truth).all()
    assert not (values[True] >= truth).all()


def test_lower_bounds_without_identical_other_records_are_refused():
    for block in (
        SubsampledBlock(BlanketBlock(clones_pair(1.0), 5), 0.5),
        SelfSamplingBlock(Messages(clones_pair(1.0)), 10, 0.5),
    ):
        with pytest.raises(UnsupportedError, match="identical records of all other clients"):
            block.curve(Direction.REMOVE, Side.LOWER, 1e-3, 0)
        with pytest.raises(UnsupportedError, match="identical records of all other clients"):
            block.curves(Side.LOWER, 1e-3, 0)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_sampling_rates_out_of_range_are_refused(rate):
    with pytest.raises(ParameterError):
        SubsampledBlock(BlanketBlock(clones_pair(1.0), 5), rate)
    with pytest.raises(ParameterError):
        SelfSamplingBlock(Messages(clones_pair(1.0)), 10, rate)
