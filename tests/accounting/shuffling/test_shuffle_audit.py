"""Shuffles of random size, ε₀ and δ against independently computed exact distributions.

A world is the law of all that is seen, as an array; two worlds differ in one client's record.
"""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest
from scipy.stats import binom, norm
from shuffle_worlds import (
    Worlds,
    by_coins,
    channel,
    composed,
    counts,
    shuffled,
    splits,
    subset,
    window,
    worst,
)

from turnout.accounting import price
from turnout.accounting.divergence.curves import Direction, Side
from turnout.accounting.pricing import epsilon_upper
from turnout.accounting.published.shuffling import blanket_2019_kary
from turnout.accounting.shuffling.messages import one_round
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    HadamardResponse,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Relation,
    ReleaseRule,
    SampledBitResponse,
    Scheme,
    SelfSampling,
    SpeakingOrder,
    TrustModel,
)

_ROUNDING = 1e-15  # of a sum of products, about


def scheme(randomizer, participation, clients: int | None = None) -> Scheme:
    """Shuffled messages."""
    replace, hidden = Relation.REPLACE_ONE, SpeakingOrder.HIDDEN
    given = {"trust": TrustModel.SHUFFLED, "population": clients, "order": hidden}
    return Scheme(randomizer, participation, replace, **given)


def is_sound(given: Scheme, delta: float, worlds: Worlds, *, known: bool = True) -> bool:
    """Whether the price lies above the truth, and beneath it if these are the worst worlds."""
    bounds, quick = price(given, delta).epsilon, epsilon_upper(given, delta)
    covered = worst(worlds, bounds.upper) <= delta * (1 + 1e-9) + _ROUNDING
    attained = not known or bounds.lower == 0 or reaches(worlds, bounds.lower, delta)
    return covered and attained and quick >= bounds.upper * (1 - 1e-12)


def reaches(worlds: Worlds, epsilon: float, delta: float) -> bool:
    """Whether so large an ε is really needed."""
    return worst(worlds, epsilon * (1 - 1e-12)) >= delta * (1 - 1e-9) - _ROUNDING


def seeds(few: int) -> range:
    """A few seeds, or as many times more as TURNOUT_AUDITS says (make audits)."""
    return range(few * int(os.environ.get("TURNOUT_AUDITS", "1")))


def drawn(rng: np.random.Generator, largest: float = 8.0) -> tuple[float, float]:
    """ε₀ and δ."""
    epsilon0 = math.exp(rng.uniform(math.log(0.01), math.log(largest)))
    return epsilon0, float(10 ** rng.uniform(-12, -0.3))


@pytest.mark.parametrize("seed", seeds(3))
def test_random_shuffles_of_bits_stay_below_the_bound(seed: int):
    rng = np.random.default_rng(seed)
    epsilon0, delta = drawn(rng)
    clients = int(rng.integers(1, (8, 60, 400)[seed % 3]))
    all_, others = range(clients), clients - 1
    some = all_ if clients <= 60 else [0, others // 2, others, *rng.integers(0, clients, 8)]
    worlds = splits(epsilon0, clients, some)
    for known in (KaryResponse(epsilon0), SampledBitResponse(epsilon0)):
        exact = clients <= 60
        assert is_sound(scheme(known, EveryStep(1), clients), delta, worlds, known=exact)
    for any_ in (PureRandomizer(epsilon0), NonAdaptiveRandomizer(epsilon0)):
        assert is_sound(scheme(any_, EveryStep(1), clients), delta, worlds, known=False)


@pytest.mark.parametrize("kind", ["3", "4", "hadamard", "bits"])
@pytest.mark.parametrize("seed", range(2))
def test_random_shuffles_of_several_randomizers_stay_below_the_bound(kind: str, seed: int):
    rng = np.random.default_rng(10 + seed)
    epsilon0, delta = drawn(rng)
    clients, rows = int(rng.integers(2, 40 if kind == "3" else 14)), channel(epsilon0, kind)
    two = (0, 3) if kind == "bits" else (0, 1)
    others = [[record] * (clients - 1) for record in range(len(rows))]
    others += [list(rng.integers(0, len(rows), clients - 1)) for _ in range(2)]
    worlds = [shuffled(rows, two, held) for held in others]
    named = {"hadamard": HadamardResponse(epsilon0), "bits": SampledBitResponse(epsilon0)}
    randomizer = named.get(kind) or KaryResponse(epsilon0, int(kind))
    assert is_sound(scheme(randomizer, EveryStep(1), clients), delta, worlds)
    for any_ in (PureRandomizer(epsilon0), NonAdaptiveRandomizer(epsilon0)):
        assert is_sound(scheme(any_, EveryStep(1), clients), delta, worlds, known=False)


@pytest.mark.parametrize("seed", seeds(2))
def test_curves_of_one_round_enclose_the_exact_delta_at_many_ratios(seed: int):
    rng = np.random.default_rng(20 + seed)
    epsilon0, delta = drawn(rng, 5.0)
    clients = int(rng.integers(2, 60))
    worlds = splits(epsilon0, clients, range(clients))
    epsilons = epsilon0 * np.append(0.0, np.geomspace(1e-3, 1.0, 9))
    ratios = np.exp(epsilons)
    truth = np.array([worst(worlds, epsilon) for epsilon in epsilons])
    round_ = one_round(KaryResponse(epsilon0), clients)
    for direction in Direction:
        for upper in (round_.upper, one_round(PureRandomizer(epsilon0), clients).upper):
            pair = upper.curves(Side.UPPER, delta, 0)
            wide = pair.remove if direction is Direction.REMOVE else pair.add
            for curve in (upper.curve(direction, Side.UPPER, delta, 0), *wide):
                assert np.all(curve.delta(ratios) >= truth * (1 - 1e-9) - _ROUNDING)
        assert round_.lower is not None
        lower = round_.lower.curve(direction, Side.LOWER, delta, 0).delta(ratios)
        assert np.all(lower <= truth * (1 + 1e-9) + _ROUNDING)


@pytest.mark.parametrize("seed", seeds(2))
def test_epsilon_of_two_and_three_rounds_is_bracketed(seed: int):
    rng = np.random.default_rng(30 + seed)
    epsilon0, delta = drawn(rng, 5.0)
    rounds = 2 + seed % 2
    clients = int(rng.integers(1, 60 if rounds == 3 else 200))
    identical_others, _, opposed = splits(epsilon0, clients + 2, [0, 1, clients + 1])
    worlds = [composed([identical_others] * rounds), composed([opposed] * rounds)]
    worlds.append(composed([identical_others, *[opposed] * (rounds - 1)]))
    participation = EveryStep(rounds)
    assert is_sound(scheme(KaryResponse(epsilon0), participation, clients + 2), delta, worlds)
    for any_ in (PureRandomizer(epsilon0), NonAdaptiveRandomizer(epsilon0)):
        assert is_sound(scheme(any_, participation, clients + 2), delta, worlds, known=False)


@pytest.mark.parametrize("seed", seeds(3))
def test_epsilon_of_sampled_rounds_is_bracketed(seed: int):
    rng = np.random.default_rng(40 + seed)
    epsilon0, delta = drawn(rng, 5.0)
    clients = int(rng.integers(1, 24))
    holds = sorted({0, clients // 2, clients - 1})
    size, rate = int(rng.integers(1, clients + 1)), (0.02, 0.999, rng.uniform())[seed % 3]
    cases = (
        (FixedSize(size, clients, 1), [subset(epsilon0, clients, size, h) for h in holds]),
        (SelfSampling(rate, 1), [by_coins(epsilon0, clients, rate, h) for h in holds]),
    )
    for participation, worlds in cases:
        for any_ in (
            KaryResponse(epsilon0),
            PureRandomizer(epsilon0),
            NonAdaptiveRandomizer(epsilon0),
        ):
            assert is_sound(scheme(any_, participation, clients), delta, worlds)


@pytest.mark.parametrize("seed", seeds(2))
def test_epsilon_of_two_sampled_rounds_is_bracketed(seed: int):
    rng = np.random.default_rng(50 + seed)
    epsilon0, delta = drawn(rng, 4.0)
    clients, rate = int(rng.integers(1, 12)), float(rng.uniform())
    ends = [by_coins(epsilon0, clients, rate, held) for held in (0, clients - 1)]
    worlds = [composed(two) for two in itertools.product(ends, ends)]
    for any_ in (KaryResponse(epsilon0), PureRandomizer(epsilon0)):
        assert is_sound(scheme(any_, SelfSampling(rate, 2), clients), delta, worlds)


@pytest.mark.parametrize("seed", seeds(3))
def test_randomizers_with_infinity_mass_stay_below_the_bound(seed: int):
    rng = np.random.default_rng(60 + seed)
    epsilon0, _ = drawn(rng, 4.0)
    delta0, clients = float(10 ** rng.uniform(-5, -1)), int(rng.integers(1, 12))
    delta = min(0.9, delta0 * rng.uniform(1.05, 20))
    e = math.exp(epsilon0)
    pure = np.array([[1.0, e, 0.0, 0.0], [e, 1.0, 0.0, 0.0]]) / (e + 1)
    leaks = np.array([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    rows = (1 - delta0) * pure + delta0 * leaks
    worlds = []
    for held in (0, 1):
        worlds.append(shuffled(rows, (0, 1), [held] * (clients - 1)))
        rest = [pure[held]] * (clients - 1)
        worlds.append((counts([*rest, rows[0]]), counts([*rest, rows[1]])))
    given = scheme(ApproximateRandomizer(epsilon0, delta0), EveryStep(1), clients)
    assert is_sound(given, delta, worlds, known=False)


@pytest.mark.parametrize("seed", seeds(4))
def test_random_approximate_randomizers_stay_below_the_bound(seed: int):
    rng = np.random.default_rng(70 + seed)
    rows = rng.dirichlet(np.full(4, (0.2, 1.0, 5.0)[seed % 3]), 3)
    rows = rows + rng.uniform() * (rows.mean(axis=0) - rows)
    epsilon0, clients = float(rng.uniform(0.1, 2)), int(rng.integers(2, 8))
    pairs = itertools.permutations(rows, 2)
    delta0 = max(float(np.maximum(a - math.exp(epsilon0) * b, 0).sum()) for a, b in pairs)
    delta0 = min(delta0, 0.5) * (1 + 1e-12) + 1e-9
    delta = min(0.95, delta0 * rng.uniform(1.05, 10))
    worlds = [shuffled(rows, (0, 1), [held] * (clients - 1)) for held in (0, 2)]
    given = scheme(ApproximateRandomizer(epsilon0, delta0), EveryStep(1), clients)
    assert is_sound(given, delta, worlds, known=False)


@pytest.mark.parametrize(("sigma", "clients"), [(0.5, 3), (1.0, 12), (3.0, 50)])
def test_gaussian_messages_stay_within_the_bounds_if_other_records_are_identical(
    sigma: float, clients: int
):
    rng, shift, draws = np.random.default_rng(80), 2 / sigma, 100_000
    noise = rng.standard_normal((clients, draws))
    without = np.exp(shift * noise - shift**2 / 2).mean(axis=0)
    noise[0] += shift
    with_ = np.exp(shift * noise - shift**2 / 2).mean(axis=0)
    for delta in (0.02, 0.2):
        bounds = price(scheme(GaussianNoise(sigma), EveryStep(1), clients), delta).epsilon
        for epsilon, side in ((bounds.upper, 1), (bounds.lower, -1)):
            if epsilon == 0:  # and as large a δ is more than is attained
                continue
            k = math.exp(epsilon)
            gains = np.maximum(1 - k / with_, 0), np.maximum(1 - k * without, 0)
            ends = [float(g.mean() - side * 5 * g.std() / math.sqrt(draws)) for g in gains]
            assert side * max(ends) <= side * delta


@pytest.mark.parametrize("relation", [Relation.REPLACE_ONE, Relation.ZERO_OUT])
@pytest.mark.parametrize("seed", seeds(3))
def test_averaged_check_ins_with_dependent_slots_stay_below_the_bound(
    relation: Relation, seed: int
):
    rng = np.random.default_rng(90 + seed)
    epsilon0, clients = drawn(rng, 5.0)[0], int(rng.integers(1, 5))
    delta, chance = float(10 ** rng.uniform(-5, -0.5)), (1.0, float(rng.uniform()))[seed % 2]
    participation = CheckIn(2, 1, chance)
    given = Scheme(
        PureRandomizer(epsilon0), participation, relation, ReleaseRule.AVERAGED, population=clients
    )
    upper, lower = price(given, delta).epsilon.upper, price(given, delta).epsilon.lower
    true = 1 / (1 + math.exp(-epsilon0))
    menu = list(itertools.product((true, 1 - true, 0.5), repeat=3))
    for other in range(3):
        rest = [other] * (clients - 1)
        for two in (([0, *rest], [1, *rest]), ([1, *rest], [0, *rest])):
            first = (1 - true, true, 0.5)
            assert window(two, menu, first, chance, math.exp(upper)) <= delta * (1 + 1e-9)
    if lower > 0:
        rest, first = [0] * (clients - 1), (1 - true, true, 0.5)
        pairs = ([1, *rest], [0, *rest]), ([0, *rest], [1, *rest])
        k = math.exp(lower * (1 - 1e-12))
        found = max(window(two, [first], first, chance, k) for two in pairs)
        assert found >= delta * (1 - 1e-9)


@pytest.mark.parametrize("sigma", [0.7, 3.0])
def test_zero_out_of_gaussian_check_ins_stays_below_the_bound(sigma: float):
    def gaussian(shift: float, epsilon: float) -> float:
        left, right = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
        return float(norm.cdf(left) - math.exp(epsilon) * norm.cdf(right))

    for clients in (1, 4, 400):
        given = Scheme(
            GaussianNoise(sigma),
            CheckIn(1, 1, 1.0),
            Relation.ZERO_OUT,
            ReleaseRule.AVERAGED,
            population=clients,
        )
        bounds = price(given, 1e-4).epsilon
        # All that one slot shows is the sum; alone she is seen with nothing but her own noise.
        assert gaussian(1 / (sigma * math.sqrt(clients)), bounds.upper) <= 1e-4 * (1 + 1e-9)
        assert bounds.lower == 0 or (
            gaussian(1 / (sigma * math.sqrt(clients)), bounds.lower) >= 1e-4 * (1 - 1e-6)
        )
        assert gaussian(1 / sigma, bounds.upper * (1 + 2e-3)) <= 1e-4 or clients > 1


@pytest.mark.parametrize("clients", [1, 2, 10**9])
@pytest.mark.parametrize("epsilon0", [1e-6, 50.0, 140.0, 300.0])
def test_extreme_parameters_give_ordered_bounds(epsilon0: float, clients: int):
    for delta in (0.999, 1e-15, 1e-100):
        for any_ in (PureRandomizer(epsilon0), NonAdaptiveRandomizer(epsilon0)):
            bounds = price(scheme(any_, EveryStep(1), clients), delta).epsilon
            assert 0 <= bounds.lower <= bounds.upper <= epsilon0
            if clients == 1:
                e = math.exp(epsilon0)
                needed = e - delta * (e + 1)
                assert math.exp(bounds.upper) >= needed * (1 - 1e-12)


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 1 - 1e-9])
@pytest.mark.parametrize("clients", [1, 2, 10**9])
def test_epsilon_at_extreme_sampling_rates_is_bracketed(rate: float, clients: int):
    for delta in (0.999, 1e-12):
        given = scheme(PureRandomizer(1e-6), SelfSampling(rate, 1), clients)
        bounds = price(given, delta).epsilon
        assert 0 <= bounds.lower <= bounds.upper <= 1e-6
        assert delta < 1e-6 or bounds.upper <= 1e-11


@pytest.mark.parametrize(
    ("epsilon0", "rate", "clients", "delta"),
    [(4.564320003490615, 0.33629827685441227, 2, 0.0102), (1.78, 0.404, 3, 5.697e-05)],
)
def test_averaged_check_ins_whose_curve_has_a_corner_stay_below_the_bound(
    epsilon0: float, rate: float, clients: int, delta: float
):
    participation, pure = CheckIn(2, 1, rate), PureRandomizer(epsilon0)
    given = Scheme(
        pure, participation, Relation.REPLACE_ONE, ReleaseRule.AVERAGED, population=clients
    )
    bounds = price(given, delta).epsilon
    worlds = [by_coins(epsilon0, clients, rate, held) for held in (0, clients - 1)]
    assert worst(worlds, bounds.upper) <= delta
    assert bounds.upper <= epsilon0
    assert bounds.lower >= 0.95 * bounds.upper


def test_the_infinity_mass_of_sampled_clients_scales_with_the_sampling_rate():
    epsilon0, delta0, rate, clients = 0.72, 1e-3, 0.02, 5
    given = scheme(ApproximateRandomizer(epsilon0, delta0), SelfSampling(rate, 1), clients)
    bounds = price(given, 8 * rate * delta0).epsilon
    e = math.exp(epsilon0)
    pure = np.array([[1.0, e, 0.0, 0.0], [e, 1.0, 0.0, 0.0]]) / (e + 1)
    hers = (1 - delta0) * pure + delta0 * np.eye(4)[2:]
    one, other = [], []
    for size in range(1, clients + 1):
        chance, share = binom.pmf(size, clients, rate), size / clients
        absent = counts([pure[0]] * size)
        for world, row in zip((one, other), hers, strict=True):
            present = counts([*[pure[0]] * (size - 1), row])
            world.append(chance * (share * present + (1 - share) * absent))
    worlds = [(np.concatenate(one), np.concatenate(other))]
    assert worst(worlds, bounds.upper) <= 8 * rate * delta0
    assert bounds.upper <= epsilon0 * (1 + 1e-9)


def test_extreme_schemes_use_the_closed_form_without_warnings():
    given = scheme(GaussianNoise(0.3), EveryStep(100), 1)
    found = price(given, 1e-100)
    assert "unamplified" in found.method
    # A client is replaced in each of 100 messages: μ = 2·√100/0.3.
    assert found.epsilon.upper < 20 / 0.3 * (20 / 0.6 + 22)


def test_the_closed_form_for_kary_response_holds_where_its_margin_is_smallest():
    # The proof's two tails are at most δ/2 each: 14·(25/54)²/3 and 14·(1 − e^{−1/2})²/2 exceed 1.
    assert 14 * (25 / 54) ** 2 / 3 >= 1
    assert 14 * (1 - math.exp(-0.5)) ** 2 / 2 >= 1
    rng, checked = np.random.default_rng(100), 0
    while checked < 25:
        epsilon0, clients = float(rng.uniform(0.05, 3)), int(rng.integers(30, 3000))
        delta = float(rng.uniform(0.3, 0.999))
        try:
            epsilon = blanket_2019_kary(epsilon0, clients, delta, 2)
        except UnsupportedError:
            continue
        checked += 1
        assert worst(splits(epsilon0, clients, [0, clients - 1]), epsilon) <= delta


@pytest.mark.parametrize("off", [1.01, 1 / 1.01])
def test_the_audit_detects_an_error_of_one_per_cent_in_epsilon0(off: float):
    given = scheme(KaryResponse(1.0), EveryStep(1), 30)
    assert is_sound(given, 1e-3, splits(1.0, 30, range(30)))
    assert not is_sound(given, 1e-3, splits(off, 30, range(30)))
    sampled = price(scheme(PureRandomizer(1.0), SelfSampling(0.4, 1), 12), 1e-3).epsilon
    assert not reaches([by_coins(0.9, 12, 0.4, 0)], sampled.lower, 1e-3)
    assert worst([by_coins(2.0, 12, 0.4, 0)], sampled.upper) > 1e-3
