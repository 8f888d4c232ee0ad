"""Published and prototyped values for shuffles, which turnout reproduces to three digits.

Provenance: closed forms and Rényi bounds as their papers state them (docs/references.bib), the
numeric ones from an independent prototype that summed binomial tails one number of clones after
the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from turnout.accounting import price
from turnout.accounting.published.check_ins import theorem_5_1
from turnout.accounting.published.comparison import SHUFFLE_METHODS, ShuffleSetting
from turnout.accounting.published.results import PrivacyPoint
from turnout.accounting.published.shuffled_training import kov_theorem_3_3, theorem_5_4_1
from turnout.accounting.published.shuffling import clones_2021_closed_form, efm19_corollary_9
from turnout.accounting.published.shuffling_rdp import theorem_5_3_1, theorem_5_3_2
from turnout.accounting.shuffling import clones_2021
from turnout.core.bounds import Bounds
from turnout.core.errors import UnsupportedError
from turnout.schemes import (
    EveryStep,
    FixedSize,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Relation,
    Scheme,
    SpeakingOrder,
    TrustModel,
)
from turnout.schemes.registry import Participation

POINTS = ((0.5, 10**4, 1e-6), (1.0, 10**5, 1e-6), (2.0, 10**6, 1e-8), (4.0, 10**6, 1e-8))
ONCE, TOLERANCE = EveryStep(1), 2e-4
LONG = (0.5, 10**6, 1e-8, 1000)
SAMPLED = (
    (1.5, 60_000, 10_000, 1200, 1e-5),
    (2.0, 60_000, 10_000, 480, 1e-5),
    (2.0, 10**6, 1000, 10**5, 1e-8),
)
KNOWN = ("non-adaptive", "attained", "binary RR", "Hadamard")
QUOTES = {method.name: method.quote for method in SHUFFLE_METHODS}


def priced(
    randomizer,
    clients: int,
    delta: float,
    participation: Participation = ONCE,
    tolerance: float = TOLERANCE,
) -> float:
    return bracket(randomizer, clients, delta, participation, tolerance).upper


def bracket(
    randomizer, clients: int, delta: float, participation: Participation, tolerance: float
) -> Bounds:
    given = {"trust": TrustModel.SHUFFLED, "population": clients}
    scheme = Scheme(
        randomizer, participation, Relation.REPLACE_ONE, **given, order=SpeakingOrder.HIDDEN
    )
    return price(scheme, delta, tolerance).epsilon


def named(name: str) -> Callable[[float, int, float], float]:
    return lambda e0, n, delta: (
        QUOTES[name](ShuffleSetting(e0, n, delta, tolerance=TOLERANCE)).epsilon
    )


def known(randomizer: type) -> Callable[[float, int, float], float]:
    return lambda e0, n, delta: priced(randomizer(e0), n, delta)


def by_order(theorem: Callable) -> Callable[[float, int, float], float]:
    return lambda e0, n, delta: theorem(e0, n).epsilon(delta)


def to_three_digits(printed: float):
    """Equal to within half a unit of the third digit, and the print's own rounding."""
    return pytest.approx(printed, abs=0.505 * 10.0 ** (math.floor(math.log10(printed)) - 2))


SINGLE: dict[str, tuple[Callable[[float, int, float], float], tuple[float | None, ...]]] = {
    "EFM19 Corollary 9": (efm19_corollary_9, (0.2230, None, None, None)),
    "check-ins 5.1": (theorem_5_1, (0.0723, 0.1283, 0.7871, 365)),
    "thesis 5.3.1": (by_order(theorem_5_3_1), (0.0409, 0.0374, 0.0729, 0.9892)),
    "thesis 5.3.2": (by_order(theorem_5_3_2), (0.0641, 0.0693, 0.1744, None)),
    "clones, form": (clones_2021_closed_form, (0.0939, 0.0726, 0.0712, 0.2264)),
    "clones, numeric": (clones_2021, (0.02040, 0.01528, 0.01756, 0.06420)),
    "adaptive": (known(PureRandomizer), (0.01812, 0.01243, 0.01304, 0.04507)),
    "non-adaptive": (known(NonAdaptiveRandomizer), (0.01812, 0.01243, 0.01304, 0.04507)),
    "binary response": (known(KaryResponse), (0.01618, 0.01014, 0.00971, 0.03199)),
    "compared: non-adaptive": (named("non-adaptive"), (0.01812, 0.01243, 0.01304, 0.04507)),
    "compared: binary RR": (named("binary RR"), (0.01618, 0.01014, 0.00971, 0.03199)),
    "compared: EFM19": (named("EFM19"), (0.2230, None, None, None)),
    "compared: check-ins": (named("check-ins"), (0.0723, 0.1283, 0.7871, 365)),
    "compared: RDP 5.3.1": (named("RDP 5.3.1"), (0.0409, 0.0374, 0.0729, 0.9892)),
    "compared: clones": (named("clones"), (0.02040, 0.01528, 0.01756, 0.06420)),
    "compared: clones form": (named("clones form"), (0.0939, 0.0726, 0.0712, 0.2264)),
}


@pytest.mark.parametrize(
    ("name", "point", "epsilon"),
    [
        (name, point, epsilon)
        for name, (_, row) in SINGLE.items()
        for point, epsilon in zip(POINTS, row, strict=True)
        if epsilon is not None
    ],
)
def test_each_bound_of_one_round_equals_its_published_value(name, point, epsilon):
    assert SINGLE[name][0](*point) == to_three_digits(epsilon)


@pytest.mark.parametrize(
    ("point", "rounds", "clones", "default"),
    [
        ((1.0, 10**4, 1e-6), 1, 0.05301, 0.04321),
        ((2.0, 10**5, 1e-6), 1, 0.04503, 0.03319),
        ((4.0, 10**6, 1e-8), 1, 0.06421, 0.04508),
        ((1.0, 10**4, 1e-6), 1000, 2.16545, 1.75921),
        ((2.0, 10**5, 1e-6), 1000, 1.83418, 1.34812),
        ((4.0, 10**6, 1e-8), 1000, 2.42161, 1.68856),
    ],
)
def test_price_and_the_clones_bound_equal_their_reference_values(point, rounds, clones, default):
    e0, n, delta = point
    for randomizer in (PureRandomizer, NonAdaptiveRandomizer):
        found = priced(randomizer(e0), n, delta, EveryStep(rounds), 1e-3)
        assert found == pytest.approx(default, rel=1e-3)
    assert clones_2021(e0, n, delta, rounds) == pytest.approx(clones, rel=1e-3)


def test_the_second_renyi_bound_can_exceed_the_local_epsilon():
    assert theorem_5_3_2(4.0, 10**6).epsilon(1e-8) > 4.0


def composed_clones(e0: float, n: int, delta: float, rounds: int) -> float:
    """Clones with Theorem 3.3 of Kairouz, Oh and Viswanath, half of δ each."""
    tilde = delta / 2 / rounds
    point = PrivacyPoint(clones_2021(e0, n, tilde), tilde)
    return kov_theorem_3_3(point, rounds, delta / 2).epsilon


def middle(randomizer: type) -> Callable[[float, int, float, int], float]:
    """The middle of a bracket that is narrower than three digits."""

    def found(e0: float, n: int, delta: float, rounds: int) -> float:
        bounds = bracket(randomizer(e0), n, delta, EveryStep(rounds), 3e-3)
        assert bounds.relative_width < 5e-3
        return (bounds.lower + bounds.upper) / 2

    return found


@pytest.mark.parametrize(
    ("bound", "epsilon"),
    [
        (lambda e0, n, d, rounds: theorem_5_3_1(e0, n).composed(rounds).epsilon(d), 0.1702),
        (clones_2021, 0.0910),
        (composed_clones, 0.5446),
        (middle(KaryResponse), 0.0724),
    ],
)
def test_epsilon_of_a_thousand_rounds_equals_the_published_value(bound, epsilon):
    assert bound(*LONG) == to_three_digits(epsilon)


@pytest.mark.parametrize(
    ("point", "thesis", "clones"),
    [(SAMPLED[0], 3.086, 0.556), (SAMPLED[1], 4.275, 0.543), (SAMPLED[2], 1.040, 0.208)],
)
def test_epsilon_of_sampled_rounds_equals_the_published_value(point, thesis, clones):
    e0, n, k, rounds, delta = point
    assert theorem_5_4_1(e0, n, k).composed(rounds).epsilon(delta) == to_three_digits(thesis)
    setting = ShuffleSetting(e0, n, delta, rounds, k, TOLERANCE)
    assert QUOTES["clones"](setting).epsilon == to_three_digits(clones)
    assert QUOTES["RDP 5.4.1"](setting).epsilon == to_three_digits(thesis)
    by_default = priced(PureRandomizer(e0), n, delta, FixedSize(k, n, rounds), 1e-2)
    assert by_default < 0.77 * QUOTES["clones"](setting).epsilon


def test_price_returns_the_smallest_of_all_upper_bounds():
    """In settings in which most bounds apply; never below an attained value."""
    for setting in (
        ShuffleSetting(0.4, 20_000, 1e-6),
        ShuffleSetting(0.4, 20_000, 1e-6, rounds=20),
        ShuffleSetting(0.4, 20_000, 1e-6, rounds=20, sampled=5000),
    ):
        adaptive, fixed = QUOTES["adaptive"](setting), QUOTES["non-adaptive"](setting)
        assert QUOTES["attained"](setting).epsilon <= fixed.epsilon <= adaptive.epsilon * (1 + 1e-3)
        for name, quote in QUOTES.items():
            if name not in KNOWN:
                default = fixed if name == "blanket" else adaptive
                assert said(quote, setting) >= default.epsilon * (1 - 1e-3), name


def said(quote: Callable, setting: ShuffleSetting) -> float:
    """ε, infinite where the method says nothing."""
    try:
        return quote(setting).epsilon
    except UnsupportedError:
        return math.inf
