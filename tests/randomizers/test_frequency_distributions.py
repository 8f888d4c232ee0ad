"""Frequency randomizers: exact ε₀, mean, variance, message bytes, and mutants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hadamard_blocks import printed_response

from turnout.core.errors import ParameterError
from turnout.randomizers import (
    FrequencyRandomizer,
    HadamardRandomizer,
    KaryRandomizedResponse,
    LocalHashing,
    OneBitHadamard,
    SubsetSelection,
    UnaryEncoding,
)
from turnout.randomizers.indexed import IndexedRandomizer
from turnout.randomizers.interface import exponential_below, level_above, root_below
from turnout.randomizers.subset import BitmapRandomizer
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.testing import assert_frequencies, assert_rejects, enumerate_outputs

SMALL = [
    KaryRandomizedResponse(1.0, 2),
    KaryRandomizedResponse(0.3, 5),
    HadamardRandomizer(1.0, 3),
    HadamardRandomizer(0.7, 6, blocks=2),
    HadamardRandomizer(3.0, 5),
    printed_response(2.5, 6),
    OneBitHadamard(1.0, 2),
    OneBitHadamard(2.0, 5),
    OneBitHadamard(2.0, 5, public=True),
    LocalHashing(1.0, 5),
    LocalHashing(0.5, 4, cells=2),
    LocalHashing(2.0, 3, cells=5, public=True),
    UnaryEncoding(1.0, 4),
    UnaryEncoding(1.0, 4, form="symmetric"),
    SubsetSelection(1.0, 5),
    SubsetSelection(0.1, 5, size=2),
    SubsetSelection(0.1, 4, size=3),
]
EPSILONS = [1e-9, 1e-3, 0.1, 1.0, math.log(3), 4.0, 10.0, 30.0]


def names(randomizer: object) -> str:
    return str(randomizer).replace("Randomizer", "")


def largest_ratio(distributions: list[list[Fraction]]) -> Fraction | float:
    """Largest ratio over messages and pairs of items; infinite if an item excludes a message."""
    ratios: list[Fraction | float] = []
    for column in zip(*distributions, strict=True):
        if max(column):
            ratios.append(max(column) / min(column) if min(column) else math.inf)
    return max(ratios)


def distributions_of(randomizer: FrequencyRandomizer) -> list[list[Fraction]]:
    return [list(randomizer.probabilities(item)) for item in range(randomizer.items)]


@pytest.mark.parametrize("randomizer", SMALL, ids=names)
def test_the_likelihood_ratio_of_a_message_equals_its_enumerated_value(randomizer):
    distributions = distributions_of(randomizer)
    assert all(sum(distribution) == 1 for distribution in distributions)
    assert largest_ratio(distributions) == randomizer.ratio


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    "make",
    [
        KaryRandomizedResponse,
        HadamardRandomizer,
        printed_response,
        OneBitHadamard,
        LocalHashing,
        UnaryEncoding,
        lambda epsilon, items: UnaryEncoding(epsilon, items, form="symmetric"),
        SubsetSelection,
    ],
)
def test_epsilon0_of_frequency_randomizers_is_at_most_epsilon_and_close(make, epsilon):
    for items in (2, 10, 1000):
        randomizer = make(epsilon, items)
        # Compare with the logarithm of the exact ratio, by Python's decimal arithmetic.
        ratio = Decimal(randomizer.ratio.numerator) / Decimal(randomizer.ratio.denominator)
        assert Decimal(randomizer.epsilon0) >= ratio.ln() * (1 - Decimal(10) ** -25)
        assert randomizer.epsilon0 <= epsilon
        # The loss of a probability of about 1/(k·e^ε) that is rounded to a multiple of 2⁻⁶².
        slack = 8 * items * 2.0**-62 * math.exp(epsilon) / min(1.0, epsilon)
        assert randomizer.epsilon0 >= epsilon * (1 - slack - 2e-16)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_rounded_exponential_is_never_above_the_true_value(epsilon):
    e = exponential_below(epsilon)
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(80):
        truth = mpmath.exp(mpmath.mpf(epsilon))
        assert mpmath.mpf(e.numerator) / e.denominator <= truth
        assert mpmath.mpf(e.numerator) / e.denominator >= truth * (1 - mpmath.mpf(10) ** -54)
        root = root_below(e)
        assert root**2 <= e < (root + Fraction(1, 2**127)) ** 2
        log = mpmath.log(mpmath.mpf(e.numerator) / e.denominator)
        assert mpmath.mpf(level_above(e)) >= log
        assert mpmath.mpf(math.nextafter(level_above(e), 0)) < log


@dataclass(frozen=True)
class WrongBitProbability(UnaryEncoding):
    """Mutant: RAPPOR with e^ε/(e^ε + 1) for each bit, as printed in Table 7.1 of the thesis."""

    @property
    def other(self) -> Fraction:
        return 1 / (1 + exponential_below(self.epsilon))

    @property
    def own(self) -> Fraction:
        return 1 - self.other


@dataclass(frozen=True)
class RoundedBlanket(KaryRandomizedResponse):
    """Mutant: the blanket probability rounded down to a multiple of 1/64, which breaks ε."""

    @property
    def blanket(self) -> Fraction:
        exact = self.items / (self.items + exponential_below(self.epsilon) - 1)
        return Fraction(int(exact * 64), 64)


@dataclass(frozen=True)
class WrongSetProbability(SubsetSelection):
    """Mutant: the number of items k where the formula has k − ω."""

    @property
    def own(self) -> Fraction:
        weight = self._size * exponential_below(self.epsilon)
        return weight / (weight + self.items)


@pytest.mark.parametrize(
    "mutant",
    [WrongBitProbability(1.0, 4), RoundedBlanket(1.0, 5), WrongSetProbability(1.0, 5, size=2)],
    ids=names,
)
def test_a_wrong_probability_changes_the_enumerated_epsilon0(mutant):
    assert largest_ratio(distributions_of(mutant)) != exponential_below(1.0)
    level = level_above(Fraction(largest_ratio(distributions_of(mutant))))
    assert abs(level - 1.0) > 1e-3


@pytest.mark.parametrize("randomizer", SMALL, ids=names)
def test_frequency_estimates_have_the_enumerated_mean_and_variance(randomizer):
    distributions = distributions_of(randomizer)
    gain, offset = randomizer.gain, randomizer.offset
    for held, distribution in enumerate(distributions):
        truth = np.eye(randomizer.items)[held]
        variances = []
        for item in range(randomizer.items):
            points = [(p, randomizer.score(number, item)) for number, p in enumerate(distribution)]
            mean = sum(p * score for p, score in points)
            assert mean == offset + gain * (held == item)
            variances.append(float((sum(p * s**2 for p, s in points) - mean**2) / gain**2))
        assert randomizer.variance(truth, 1) == pytest.approx(variances, rel=1e-12)
        assert sum(variances) <= randomizer.mse_bound(1) * (1 + 1e-12)


@pytest.mark.parametrize("randomizer", SMALL, ids=names)
def test_the_bound_on_the_mean_squared_error_is_attained(randomizer):
    worst = max(
        float(randomizer.variance(np.eye(randomizer.items)[item], 7).sum())
        for item in range(randomizer.items)
    )
    assert worst == pytest.approx(randomizer.mse_bound(7), rel=1e-12)


def number_of(message: np.ndarray) -> int:
    """Number of a message, given as a code or as a bitmap."""
    if message.ndim == 0:
        return int(message)
    return sum(int(word) << (64 * place) for place, word in enumerate(message))


ENUMERABLE = [r for r in SMALL if not isinstance(r, SubsetSelection)]


@pytest.mark.parametrize("randomizer", ENUMERABLE, ids=names)
def test_encoded_items_follow_the_enumerated_probabilities(randomizer):
    for item in range(randomizer.items):

        def client(source, item=item):
            values = np.array([item])
            if isinstance(randomizer, IndexedRandomizer):
                questions = randomizer.draw_questions(1, source)
                return number_of(randomizer.encode(values, source, questions)[0])
            return number_of(randomizer.encode(values, source)[0])

        found = enumerate_outputs(client)
        distribution = {number: p for number, p in enumerate(randomizer.probabilities(item)) if p}
        assert found == distribution


@pytest.mark.parametrize("randomizer", [r for r in SMALL if r not in ENUMERABLE], ids=names)
@pytest.mark.parametrize("source", [OSRandomness(), SimulationStreams(5).source("sets")])
def test_drawn_subsets_follow_the_enumerated_probabilities(randomizer, source):
    n = 60_000
    for item in (0, randomizer.items - 1):
        messages = randomizer.encode(np.full(n, item), source)
        distribution = np.array([float(p) for p in randomizer.probabilities(item)])
        counts = np.bincount(messages[:, 0].astype(np.int64), minlength=len(distribution))
        assert_frequencies(counts, distribution)
        other = np.array([float(p) for p in randomizer.probabilities(1)])
        if randomizer.epsilon >= 1:
            assert_rejects(
                lambda counts, other=other: assert_frequencies(counts, other),
                {"another item": counts},
            )


@pytest.mark.parametrize("items", [63, 64, 65, 200])
def test_drawn_subsets_have_their_size_and_equally_frequent_items(items):
    randomizer = SubsetSelection(1.0, items)
    n, item = 20_000, items - 1
    rows = randomizer.encode(np.full(n, item), SimulationStreams(6).source("rows"))
    assert set(np.bitwise_count(rows).sum(axis=1).tolist()) == {randomizer.size}
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little", count=items)
    expected = [float(randomizer.other)] * (items - 1) + [float(randomizer.own)]
    for column, share in enumerate(expected):
        count = int(bits[:, column].sum())
        assert_frequencies([count, n - count], [share, 1 - share], 1e-9 / items)


LARGE = [
    KaryRandomizedResponse(1.0, 1000),
    HadamardRandomizer(1.0, 1000),
    HadamardRandomizer(3.0, 1000),
    OneBitHadamard(1.0, 1000),
    OneBitHadamard(1.0, 1000, public=True),
    LocalHashing(1.0, 1000),
    LocalHashing(1.0, 1000, cells=2, public=True),
    UnaryEncoding(1.0, 1000),
    UnaryEncoding(1.0, 77, form="symmetric"),
    SubsetSelection(1.0, 130),
]


@pytest.mark.parametrize("randomizer", [*SMALL, *LARGE], ids=names)
@pytest.mark.parametrize("n", [0, 1, 37])
def test_unpacking_inverts_packing_of_frequency_messages(randomizer, n):
    source = SimulationStreams(n).source("bytes")
    values = source.below(randomizer.items, n)
    public = {}
    if isinstance(randomizer, IndexedRandomizer):
        public["questions"] = randomizer.draw_questions(n, source)
    messages = randomizer.encode(values, source, **public)
    data = randomizer.pack(messages)
    assert len(data) == -(-n * randomizer.message_bits // 8)
    assert np.array_equal(randomizer.unpack(data, n, **public), messages)
    with pytest.raises(ParameterError):
        randomizer.unpack(data + b"\0", n, **public)


def test_bytes_that_encode_no_frequency_message_are_refused():
    with pytest.raises(ParameterError, match="codes below 5"):
        KaryRandomizedResponse(1.0, 5).unpack(b"\x07", 1)
    with pytest.raises(ParameterError, match="padding"):
        KaryRandomizedResponse(1.0, 5).unpack(b"\x08", 1)
    with pytest.raises(ParameterError, match="padding"):
        UnaryEncoding(1.0, 5).unpack(b"\x20", 1)
    public = OneBitHadamard(1.0, 5, public=True)
    with pytest.raises(ParameterError, match="public question"):
        public.unpack(b"\x01", 1)
    with pytest.raises(ParameterError, match="from 0 to 7"):
        public.unpack(b"\x01", 1, np.array([8]))
    with pytest.raises(ParameterError, match="public question"):
        public.encode(np.array([0]), OSRandomness())


@pytest.mark.parametrize("randomizer", SMALL, ids=names)
def test_values_outside_the_items_of_a_frequency_randomizer_are_refused(randomizer):
    source = SimulationStreams(1).source("values")
    for wrong in ([randomizer.items], [-1], [0.5], [[0]]):
        with pytest.raises(ParameterError, match="values"):
            randomizer.encode(np.array(wrong), source)


@pytest.mark.parametrize("make", [KaryRandomizedResponse, UnaryEncoding, SubsetSelection])
def test_frequency_randomizer_parameters_outside_their_domain_are_refused(make):
    for epsilon in (0.0, -1.0, math.nan, math.inf, 30.1):
        with pytest.raises(ParameterError, match="epsilon"):
            make(epsilon, 5)
    for items in (0, 1, 2.5):
        with pytest.raises(ParameterError, match="items"):
            make(1.0, items)


def test_invalid_parameters_of_individual_randomizers_are_refused():
    with pytest.raises(ParameterError, match="prime"):
        LocalHashing(1.0, 5, cells=4)
    with pytest.raises(ParameterError, match="size"):
        SubsetSelection(1.0, 5, size=5)
    with pytest.raises(ParameterError, match="form"):
        UnaryEncoding(1.0, 5, form="other")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="messages"):
        KaryRandomizedResponse(1.0, 2**26 + 1)


def test_default_randomizer_parameters_have_less_error_than_published_ones():
    ours, printed = HadamardRandomizer(1.0, 1000), printed_response(1.0, 1000)
    assert (ours.blocks, printed.blocks) == (1, 2)
    assert ours.mse_bound(1) < 0.86 * printed.mse_bound(1)
    for epsilon in (0.5, 1.0, 2.0, 3.0, 5.0):
        optimum = min(
            LocalHashing(epsilon, 50, cells=g).mse_bound(1) for g in (2, 3, 5, 7, 11, 13, 17, 19)
        )
        assert LocalHashing(epsilon, 50).mse_bound(1) <= optimum * (1 + 1e-12)
        uniform = np.full(100, 0.01)
        chosen = HadamardRandomizer(epsilon, 100).variance(uniform, 1).mean()
        others = [
            HadamardRandomizer(epsilon, 100, blocks=b).variance(uniform, 1).mean()
            for b in (1, 2, 4, 7, 15, 34, 100)
        ]
        assert chosen <= min(others) * 1.02


def test_the_message_lengths_of_randomizers_are_as_documented():
    found = {names(r): r.message_bits for r in LARGE}
    assert list(found.values()) == [10, 10, 10, 11, 1, 13, 1, 1000, 77, 130]
    assert HadamardRandomizer(3.0, 1000).reply_count <= 1024 * 2
    assert isinstance(SubsetSelection(1.0, 130), BitmapRandomizer)
