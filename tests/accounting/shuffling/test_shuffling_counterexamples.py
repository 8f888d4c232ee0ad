"""False published claims about shuffles; the package's bounds hold where these fail.

Exact values are computed here from the distribution of a shuffle. docs/errata.md
and docs/shuffling.md name the claims.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import cast

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln
from scipy.stats import binom
from shuffle_optimum import theorem_3
from shuffle_truths import hockey_stick, response, shuffled

from turnout.accounting import epsilon_upper, price
from turnout.accounting.decomposition import decompose, published
from turnout.accounting.pricing import decomposition_upper
from turnout.accounting.privacy_curve import PrivacyCurve
from turnout.core.bounds import Bounds
from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.schemes import (
    ApproximateRandomizer,
    CheckIn,
    EveryStep,
    FixedSize,
    GaussianNoise,
    KaryResponse,
    NonAdaptiveRandomizer,
    PureRandomizer,
    Relation,
    ReleaseRule,
    Scheme,
    SelfSampling,
    SpeakingOrder,
    TrustModel,
)
from turnout.schemes.registry import Participation

Profile = Callable[[float], float]
"""δ at ε."""


def priced(
    randomizer, clients: int, delta: float, participation: Participation | None = None
) -> Bounds:
    """What we say."""
    return price(
        scheme(randomizer, clients, participation, SpeakingOrder.HIDDEN), delta, 1e-3
    ).epsilon


def scheme(
    randomizer,
    clients: int,
    participation: Participation | None = None,
    order: SpeakingOrder | str | None = None,
) -> Scheme:
    """Shuffled messages."""
    participation = EveryStep(1) if participation is None else participation
    given = {"trust": TrustModel.SHUFFLED, "population": clients, "order": order}
    return Scheme(randomizer, participation, Relation.REPLACE_ONE, **given)


def third_value(local_epsilon: float, clients: int, values: int) -> Profile:
    """The victim holds the first or second of k values, all others the third.

    By how many messages are the first, second, third and any other value; a multiset's likelihood
    is the sum over its messages of the chance that this one is the victim's.
    """
    e = math.exp(local_epsilon)
    grid = np.meshgrid(*[np.arange(clients + 1)] * 3, indexing="ij")
    rest = clients - grid[0] - grid[1] - grid[2]
    possible = (rest == 0) if values == 3 else (rest >= 0)
    one, two, three = (axis[possible] for axis in grid)
    rest = rest[possible]
    parts, share = (one, two, three, rest), 1 / (e + values - 1)
    masses = (share, share, e * share, (values - 3) * share if values > 3 else 1.0)
    log_distribution = gammaln(clients + 1) + sum(
        part * math.log(mass) - gammaln(part + 1) for part, mass in zip(parts, masses, strict=True)
    )
    distribution = np.exp(log_distribution) / clients
    first, second = e * one + two + three / e + rest, one + e * two + three / e + rest
    return lambda epsilon: float(
        (distribution * np.maximum(first - math.exp(epsilon) * second, 0.0)).sum()
    )


def binary(local_epsilon: float, clients: int, ones: int) -> Profile:
    """Binary response, the victim's bit among others of whom so many hold 1."""
    wrong = 1 / (1 + math.exp(local_epsilon))
    true = binom.pmf(np.arange(ones + 1), ones, 1 - wrong)
    false = binom.pmf(np.arange(clients - ones), clients - 1 - ones, wrong)
    others = np.convolve(true, false)
    zero, one = np.append(others, 0.0), np.append(0.0, others)
    p, q = (1 - wrong) * zero + wrong * one, wrong * zero + (1 - wrong) * one

    def delta(epsilon: float) -> float:
        k = math.exp(epsilon)
        return float(max(np.maximum(p - k * q, 0).sum(), np.maximum(q - k * p, 0).sum()))

    return delta


def root(profile: Profile, delta: float, highest: float) -> float:
    """ε at δ."""
    found = brentq(lambda epsilon: profile(epsilon) - delta, 0.0, highest, xtol=1e-12)
    return cast(float, found)


@pytest.mark.parametrize(("values", "clients"), [(3, 4), (4, 4), (6, 3)])
@pytest.mark.parametrize("local_epsilon", [0.5, 2.0])
def test_reference_sums_equal_enumerated_shuffles(values, clients, local_epsilon):
    distributions = response(local_epsilon, values)
    first, second = (
        shuffled([distribution, *[distributions[2]] * (clients - 1)])
        for distribution in distributions[:2]
    )
    two = response(local_epsilon, 2)
    ones = [two[1]] * (clients - 2)
    zero, one = (shuffled([distribution, two[0], *ones]) for distribution in two)
    for epsilon in (0.0, 0.1, 0.4, 1.2):
        k = math.exp(epsilon)
        assert third_value(local_epsilon, clients, values)(epsilon) == pytest.approx(
            hockey_stick(first, second, k), rel=1e-9, abs=1e-15
        )
        truth = max(hockey_stick(zero, one, k), hockey_stick(one, zero, k))
        assert binary(local_epsilon, clients, clients - 2)(epsilon) == pytest.approx(
            truth, rel=1e-9, abs=1e-15
        )


@pytest.mark.parametrize(
    "randomizer", [KaryResponse(4.0, 50), NonAdaptiveRandomizer(4.0), PureRandomizer(4.0)]
)
def test_fifty_ary_response_exceeds_the_variation_ratio_bound(randomizer):
    """ε₀ = 4, n = 100, δ = 1e-5: the variation-ratio code of 2024 returns 2.0327."""
    truth = root(third_value(4.0, 100, 50), 1e-5, 4.0)
    assert truth == pytest.approx(2.0942, abs=5e-5)
    found = priced(randomizer, 100, 1e-5)
    assert found.upper >= truth > 2.0327
    if isinstance(randomizer, KaryResponse):
        assert found.upper <= 1.1 * truth  # no guess either


@pytest.mark.parametrize("values", [3, 5, 10, 100])
def test_the_bound_for_kary_response_holds_if_other_clients_hold_a_third_value(values):
    profile = third_value(3.0, 60, values)
    for delta in (1e-2, 1e-6):
        truth = root(profile, delta, 3.0)
        assert priced(KaryResponse(3.0, values), 60, delta).upper >= truth
        assert priced(PureRandomizer(3.0), 60, delta).upper >= truth


def ternary(local_epsilon: float, clients: int) -> Profile:
    """As `third_value` of three values, from below: counts 12 deviations above their mean count."""
    e = math.exp(local_epsilon)
    mean = clients / (e + 2)
    counts = np.arange(min(clients, math.ceil(mean + 12 * math.sqrt(mean) + 30)) + 1.0)
    one, two = np.meshgrid(counts, counts, indexing="ij")
    possible = one + two <= clients
    one, two = one[possible], two[possible]
    three = clients - one - two
    log_distribution = (
        gammaln(clients + 1) - gammaln(one + 1) - gammaln(two + 1) - gammaln(three + 1)
    )
    distribution = (
        np.exp(log_distribution + local_epsilon * three - clients * math.log(e + 2)) / clients
    )
    first, second = e * one + two + three / e, one + e * two + three / e
    return lambda epsilon: float(
        (distribution * np.maximum(first - math.exp(epsilon) * second, 0)).sum()
    )


@pytest.mark.parametrize(("local_epsilon", "clients"), [(1.0, 2000), (2.0, 2000), (4.0, 9000)])
def test_above_epsilon0_ln_2_ternary_response_has_more_epsilon_than_binary_response(
    local_epsilon, clients
):
    """For many clients, with the other clients holding the third value."""
    delta = 1e-5
    third = root(ternary(local_epsilon, clients), delta, local_epsilon)
    splits = (0, clients // 4, clients // 2, clients - 1)
    two = max(root(binary(local_epsilon, clients, m), delta, local_epsilon) for m in splits)
    assert two < 0.97 * third
    own = priced(KaryResponse(local_epsilon), clients, delta)
    assert two <= own.upper < third  # a guarantee of binary response is one for it alone
    assert priced(KaryResponse(local_epsilon, 3), clients, delta).upper >= third
    for randomizer in (NonAdaptiveRandomizer(local_epsilon), PureRandomizer(local_epsilon)):
        found = priced(randomizer, clients, delta)
        assert found.upper >= third
        assert found.lower >= 0.999 * third  # so binary response is no lower bound to stop at


def test_below_epsilon0_ln_2_binary_response_has_more_epsilon_than_ternary_response():
    """A lower bound for any randomizer must therefore include both."""
    third = root(ternary(0.3, 1000), 1e-5, 0.3)
    two = max(root(binary(0.3, 1000, m), 1e-5, 0.3) for m in (0, 500, 999))
    assert two > third
    found = priced(NonAdaptiveRandomizer(0.3), 1000, 1e-5)
    assert found.upper >= two
    assert found.lower >= 0.999 * two


def test_clones_formula_inverted_beyond_its_range_underestimates_delta():
    """ε = 4 at n = 10⁴, δ = 1e-6 gives ε₀ = 9.72 instead of at most 3.76; the true δ is 0.55."""
    profile = binary(9.72, 10_000, 9_999)
    assert profile(4.0) == pytest.approx(0.55, abs=0.005)
    for randomizer in (PureRandomizer(9.72), NonAdaptiveRandomizer(9.72), KaryResponse(9.72)):
        assert priced(randomizer, 10_000, 0.5).upper > 4.0
        assert priced(randomizer, 10_000, 1e-6).upper >= root(profile, 1e-6, 9.72)


@pytest.mark.parametrize("epsilon", [0.1, 0.12, 0.2])
def test_the_published_formula_for_private_means_allows_too_large_an_epsilon0(epsilon):
    """ε₀ = ε√(n / ln(1/δ)), n = 1000, δ = 1e-6: δ of randomized response is at least 2.8e-6."""
    clients, delta = 1000, 1e-6
    local_epsilon = epsilon * math.sqrt(clients / math.log(1 / delta))
    profile = binary(local_epsilon, clients, clients - 1)
    assert profile(epsilon) > 1.8 * delta
    assert priced(KaryResponse(local_epsilon), clients, delta).upper > epsilon
    assert priced(KaryResponse(local_epsilon), clients, profile(epsilon) * 0.999).upper >= epsilon


def self_sampling(local_epsilon: float, clients: int, rate: float, ones: int) -> Profile:
    """Binary response; each client sends with chance q, and everybody sees how many do."""
    send = [[rate * value for value in row] + [1 - rate] for row in response(local_epsilon, 2)]
    others = [send[1]] * ones + [send[0]] * (clients - 1 - ones)
    first, second = (shuffled([distribution, *others]) for distribution in send)

    def delta(epsilon: float) -> float:
        k = math.exp(epsilon)
        return max(hockey_stick(first, second, k), hockey_stick(second, first, k))

    return delta


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_the_bound_covers_self_sampled_rounds_with_very_few_clients(rate):
    """ "About qn send" holds but for a tail that no constant hides: so few are sent with them."""
    clients, local_epsilon = 8, 1.5
    profiles = [self_sampling(local_epsilon, clients, rate, ones) for ones in (0, 3, 7)]
    below = 0
    for epsilon in (0.1, 0.5, 1.0, 1.3):
        truth = max(profile(epsilon) for profile in profiles)
        participation = SelfSampling(rate, 1)
        assert (
            priced(PureRandomizer(local_epsilon), clients, truth * 0.999, participation).upper
            >= epsilon
        )
        # A mutant: always as many as are expected, a uniform subset.
        expected = max(1, round(rate * clients))
        inner = math.log1p(math.expm1(epsilon) / rate)
        fixed = max(binary(local_epsilon, expected, m)(inner) for m in range(expected))
        below += rate * fixed < truth
    assert below > 0


@pytest.mark.parametrize("local_delta", [0.01, 0.1])
def test_shuffling_does_not_reduce_the_infinity_mass_of_approximate_randomizers(local_delta):
    """With chance δ₀ a message gives its sender away, however many others there are."""
    local_epsilon, clients = 1.0, 4
    large = (1 - local_delta) / (1 + math.exp(-local_epsilon))
    distributions = [
        [large, 1 - local_delta - large, local_delta, 0.0],
        [1 - local_delta - large, large, 0.0, local_delta],
    ]
    first, second = (
        shuffled([distribution, *[distributions[1]] * (clients - 1)])
        for distribution in distributions
    )
    randomizer = ApproximateRandomizer(local_epsilon, local_delta)
    for epsilon in (0.05, 0.3, 0.9):
        k = math.exp(epsilon)
        truth = max(hockey_stick(first, second, k), hockey_stick(second, first, k))
        assert truth > local_delta
        try:
            found = priced(randomizer, clients, truth * 0.999)
        except NumericalError:
            continue  # nothing is claimed
        assert found.upper >= epsilon
    with pytest.raises(UnsupportedError, match="expected more than"):
        priced(randomizer, clients, local_delta)


@pytest.mark.parametrize("clients", [1, 2, 5])
@pytest.mark.parametrize("k", [Fraction(1), Fraction(6, 5), Fraction(2)])
def test_a_known_first_sender_is_not_hidden_if_others_repeat_its_message(clients, k):
    """Binary response of the first client, which n − 1 clients repeat: enumeration of all views.

    Every randomizer of the round is private, those of the others 0-private, and a shuffler passes
    on n copies of the victim's answer. In a uniform order that nobody knows the first speaker is
    the victim once in n times only, and the bound holds.
    """
    e = Fraction(3)
    local = [{0: e / (e + 1), 1: 1 / (e + 1)}, {0: 1 / (e + 1), 1: e / (e + 1)}]

    def view(record: int, first: int) -> Counter[tuple[int, ...]]:
        """Distribution of the sorted messages if the given client sends first; others hold a 0."""
        records = [record, *[0] * (clients - 1)]
        return Counter({(bit,) * clients: chance for bit, chance in local[records[first]].items()})

    def gap(one: Counter, other: Counter) -> Fraction:
        return sum(
            (max(one[z] - k * other[z], Fraction(0)) for z in one | other), start=Fraction(0)
        )

    known = gap(view(0, 0), view(1, 0))
    assert known == max(e - k, Fraction(0)) / (e + 1)  # what the message is worth alone
    worlds = []
    for record in (0, 1):
        mixed: Counter[tuple[int, ...]] = Counter()
        for first in range(clients):
            for seen, chance in view(record, first).items():
                mixed[seen] += chance / clients
        worlds.append(mixed)
    hidden = max(gap(*worlds), gap(*worlds[::-1]))
    assert hidden <= theorem_3(clients, e, k)
    assert clients == 1 or known > theorem_3(clients, e, k)


def test_a_known_order_is_refused_for_adaptive_randomizers():
    """At (ε₀, n, δ) = (1, 1e5, 1e-6) the bounds are 0.0153 and 0.0124; the exact δ is larger."""
    asked = scheme(PureRandomizer(1.0), 10**5, order=SpeakingOrder.HIDDEN)
    said = ((published(asked), 0.015283, 0.45798), (decompose(asked), 0.01243, 0.45875))
    for parts, epsilon, true in said:
        assert parts is not None
        found = decomposition_upper(parts, 1e-6)
        assert found == pytest.approx(epsilon, rel=2e-4)
        assert (math.e - math.exp(found)) / (math.e + 1) == pytest.approx(true, abs=1e-5)
    for randomizer in (PureRandomizer(1.0), ApproximateRandomizer(1.0, 1e-14)):
        for participation in (EveryStep(1), FixedSize(10, 100, 1), SelfSampling(0.1, 1)):
            for order in (None, SpeakingOrder.KNOWN, "known"):
                asked = scheme(randomizer, 100, participation, order)
                for refused in (
                    lambda asked=asked: price(asked, 1e-6),
                    lambda asked=asked: epsilon_upper(asked, 1e-6),
                    lambda asked=asked: PrivacyCurve.of(asked),
                ):
                    with pytest.raises(UnsupportedError, match=r"declare order = 'hidden'"):
                        refused()


@pytest.mark.parametrize(
    "randomizer", [NonAdaptiveRandomizer(1.0), KaryResponse(1.0), GaussianNoise(4.0)]
)
def test_non_adaptive_randomizers_need_no_message_order(randomizer):
    """The multiset of messages then has one distribution in every order."""
    found = {
        epsilon_upper(scheme(randomizer, 100, None, order), 1e-4)
        for order in (None, SpeakingOrder.KNOWN, SpeakingOrder.HIDDEN)
    }
    assert len(found) == 1


def test_averaged_check_ins_have_a_hidden_message_order():
    """The order need not be declared, and a known order contradicts the protocol."""
    window = Scheme(
        PureRandomizer(1.0),
        CheckIn(4),
        Relation.REPLACE_ONE,
        ReleaseRule.AVERAGED,
        population=1000,
    )
    assert epsilon_upper(window, 1e-6) < 0.2
    with pytest.raises(UnsupportedError, match="each client; leave out population and order"):
        price(replace(window, order=SpeakingOrder.KNOWN), 1e-6)


@pytest.mark.parametrize("order", ["arrival", "HIDDEN", "", 1])
def test_a_message_order_other_than_hidden_or_known_is_refused(order):
    with pytest.raises(ParameterError, match=r"order = .*expected one of 'hidden', 'known'"):
        scheme(PureRandomizer(1.0), 10, None, order)
    assert scheme(PureRandomizer(1.0), 10, None, "hidden").order is SpeakingOrder.HIDDEN


@pytest.mark.parametrize(
    "participation", [EveryStep(3), FixedSize(50, 1000, 3), SelfSampling(0.1, 1)]
)
def test_a_published_bound_of_a_scheme_is_listed_only_if_turnout_has_a_smaller_one(
    participation,
):
    """For pure randomizers the published bound is 1.1 to 1.4 times that of turnout."""

    def in_print(asked: Scheme) -> float:
        parts = published(asked)
        assert parts is not None
        return decomposition_upper(parts, 1e-6)

    hidden = SpeakingOrder.HIDDEN
    asked = scheme(PureRandomizer(1.0), 1000, participation, hidden)
    assert 1.1 < in_print(asked) / epsilon_upper(asked, 1e-6) < 1.4
    for randomizer in (
        NonAdaptiveRandomizer(1.0),
        ApproximateRandomizer(1.0, 1e-12),
        GaussianNoise(4.0),
    ):
        assert published(scheme(randomizer, 1000, participation, hidden)) is None
    with pytest.raises(UnsupportedError, match="not declared"):
        published(scheme(PureRandomizer(1.0), 1000, participation))
    given = {"release": ReleaseRule.AVERAGED, "population": 1000}
    for randomizer in (PureRandomizer(1.0), KaryResponse(1.0)):
        window = Scheme(randomizer, CheckIn(4), Relation.REPLACE_ONE, **given)
        assert 1.1 < in_print(window) / epsilon_upper(window, 1e-6) < 1.4
        assert published(replace(window, population=None)) is None
