"""Private answers from few random bits: exact ratios, entropies, means and variances."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from limited_answers import PrintedAnswers, binary_entropy_inverse

from turnout.core.errors import ParameterError
from turnout.randomizers.interface import exponential_below
from turnout.randomness import SimulationStreams, Source
from turnout.refinement import LimitedAnswers, enough_randomness
from turnout.refinement.limited import binary_entropy

SEED = bytes(range(32))
SHARES = np.array([0.4, 0.3, 0.2, 0.1])
GRID = [(epsilon, bits) for epsilon in (0.3, 1.0, 3.0) for bits in (1e-3, 0.1, 0.25, 0.7, 0.99, 2)]


class Fixed(Source):
    """Random source that returns one number for every draw."""

    secure = False

    def __init__(self, number):
        self.number = number

    def below(self, n, size):
        assert n == 2**62
        return np.full(size, self.number, dtype=np.int64)


@pytest.mark.parametrize("kind", [LimitedAnswers, PrintedAnswers])
@pytest.mark.parametrize(("epsilon", "bits"), GRID)
def test_answers_from_limited_randomness_have_the_stated_epsilon_and_entropy(epsilon, bits, kind):
    answers = kind(4, epsilon, bits, SEED)
    distributions = [(answers.yes, 1 - answers.yes), (answers.no, 1 - answers.no)]
    ratios = [p / q for p, q in zip(*distributions, strict=True)]
    assert answers.ratio == max(*ratios, *(1 / ratio for ratio in ratios))
    assert answers.ratio <= exponential_below(epsilon)
    assert math.log(answers.ratio) == pytest.approx(epsilon, rel=1e-12)
    assert answers.entropy_bits <= bits + 1e-12
    if bits < enough_randomness(epsilon):
        assert answers.entropy_bits == pytest.approx(bits, rel=1e-9)
    else:
        assert answers.entropy_bits == pytest.approx(enough_randomness(epsilon))


@pytest.mark.parametrize("kind", [LimitedAnswers, PrintedAnswers])
def test_answers_change_exactly_at_their_probability_threshold(kind):
    answers = kind(4, 1.0, 0.5, SEED)
    values = np.arange(4000) % 4
    honest = answers.questions.truths(values, 0).astype(bool)
    asked = answers.asked(0, 4000)
    for probability, group in ((answers.yes, honest), (answers.no, ~honest)):
        threshold = probability * 2**62
        assert threshold.denominator == 1
        below = answers.encode(values, Fixed(int(threshold) - 1))
        at = answers.encode(values, Fixed(int(threshold)))
        assert np.all(below[group & asked] == 1)
        assert np.all(at[group & asked] == 0)


def test_default_and_published_mechanisms_coincide_for_unlimited_randomness():
    default, printed = (kind(4, 1.0, 1.0, SEED) for kind in (LimitedAnswers, PrintedAnswers))
    assert (default.yes, default.no) == (printed.yes, printed.no)
    assert default.share == 1
    assert float(default.yes) == pytest.approx(math.e / (math.e + 1), rel=1e-15)


@pytest.mark.parametrize("bits", [0.01, 0.3, 0.8, 1.0])
def test_the_published_limited_mechanism_is_unbiased_with_the_stated_variance(bits):
    answers = PrintedAnswers(4, 1.0, bits, SEED)
    inside = np.array(
        [[answers.questions.truths(np.array([v]), c)[0] for v in range(4)] for c in range(4)]
    )
    yes = float(answers.no) + float(answers.yes - answers.no) * inside @ SHARES
    mean, second = np.zeros(4), np.zeros(4)
    for code in range(16):
        said = np.array([code >> c & 1 for c in range(4)], dtype=np.uint8)
        p = np.prod(np.where(said, yes, 1 - yes))
        found = answers.frequencies(answers.totals(said))
        mean, second = mean + p * found, second + p * found**2
    assert mean == pytest.approx(SHARES, abs=1e-11)
    stated = answers.variance(SHARES, 4)
    assert stated == pytest.approx(second - mean**2, rel=1e-9)
    assert stated.sum() <= answers.error_bound(4)
    # Negative control: half the randomness gives a larger variance.
    assert PrintedAnswers(4, 1.0, bits / 2, SEED).variance(SHARES, 4)[0] > stated[0]


def test_the_default_limited_mechanism_is_unbiased_with_the_stated_variance():
    answers = LimitedAnswers(4, 1.0, 0.3, SEED)
    columns = answers.questions.columns(0, 4000)
    asked = answers.asked(0, 4000)
    mean, second = np.zeros(4), np.zeros(4)
    for column in range(1, 4):
        client = int(np.flatnonzero((columns == column) & asked)[0])
        for value, share in enumerate(SHARES):
            honest = answers.questions.truths(np.array([value]), client)[0]
            yes = float(answers.yes if honest else answers.no)
            for said, p in ((1, yes), (0, 1 - yes)):
                totals = answers.totals(np.array([said], dtype=np.uint8), client)
                found = answers.frequencies(totals)
                mean, second = mean + p * share / 3 * found, second + p * share / 3 * found**2
    assert mean == pytest.approx(SHARES, abs=1e-12)
    assert answers.variance(SHARES, 1) == pytest.approx(second - mean**2, rel=1e-9)


def test_the_public_random_bits_select_the_stated_share_of_clients():
    answers = LimitedAnswers(4, 1.0, 0.3, SEED)
    assert answers.share == pytest.approx(0.3 / enough_randomness(1.0))
    asked = answers.asked(0, 200_000)
    assert abs(asked.mean() - answers.share) < 7 * math.sqrt(0.25 / asked.size)
    assert np.array_equal(answers.asked(1234, 1000), asked[1234:2234])
    source = SimulationStreams(1).source("answers")
    said = answers.encode(np.zeros(2000, dtype=int), source)
    assert not said[~asked[:2000]].any()
    assert answers.totals(said).sum() == asked[:2000].sum()


@pytest.mark.parametrize("kind", [LimitedAnswers, PrintedAnswers])
def test_totals_of_blocks_of_limited_answers_add_up(kind):
    answers = kind(4, 1.0, 0.3, SEED)
    values = np.arange(3000) % 4
    source = SimulationStreams(1).source("blocks")
    first, second = answers.encode(values[:999], source), answers.encode(values[999:], source, 999)
    both = answers.totals(np.concatenate([first, second]))
    assert np.array_equal(answers.totals(first) + answers.totals(second, 999), both)


def test_asking_fewer_clients_gives_less_error_than_the_published_mechanism():
    uniform = np.full(1024, 1 / 1024)
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        for bits in np.geomspace(1e-4, 0.999, 12) * enough_randomness(epsilon):
            default = LimitedAnswers(1024, epsilon, float(bits), SEED)
            printed = PrintedAnswers(1024, epsilon, float(bits), SEED)
            error = default.variance(uniform, 1).sum() / default.share
            assert error < printed.variance(uniform, 1).sum()


def test_the_default_mechanism_violates_the_published_lower_bound_of_theorem_7_3_1():
    # Theorem 7.3.1 at k = 1024, ε = 1, p_R = 0.002: k e^ε/(16 p_R² (e^ε − 1)²) a client.
    p = 0.002
    printed = PrintedAnswers(1024, 1.0, binary_entropy(p), SEED)
    assert float(printed.yes) == pytest.approx(p, rel=1e-9)
    claimed = 1024 * math.e / (16 * p**2 * math.expm1(1) ** 2)
    assert claimed == pytest.approx(1.47e7, rel=0.01)
    found = printed.variance(np.full(1024, 1 / 1024), 1).sum()
    assert found == pytest.approx(5.1e6, rel=0.02) or found < 5.1e6
    assert found < claimed


@pytest.mark.parametrize("bits", [0, 1e-100, 1e-6, 0.1, 0.5, 0.9999, 1])
def test_the_inverse_binary_entropy_is_never_above_the_true_value(bits):
    p = binary_entropy_inverse(bits)
    if 0 < bits < 1:
        with mpmath.workdps(150):
            x = mpmath.mpf(p)
            entropy = -x * mpmath.log(x, 2) - (1 - x) * mpmath.log(1 - x, 2)
            assert bits * (1 - 1e-10) < entropy <= bits
    else:
        assert p == bits / 2


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: LimitedAnswers(4, 0.0, 1.0, SEED), "epsilon"),
        (lambda: LimitedAnswers(4, 1.0, 0.0, SEED), "randomness_bits"),
        (lambda: PrintedAnswers(4, 1.0, 1e-18, SEED), "randomness_bits"),
        (lambda: LimitedAnswers(1, 1.0, 1.0, SEED).questions, "size"),
        (lambda: binary_entropy_inverse(1.5), "from 0 to 1"),
        (lambda: binary_entropy_inverse(1e-299), "1e-297"),
        (
            lambda: PrintedAnswers(4, 1.0, 1.0, SEED).frequencies(
                np.array([[1, 1, 1, 0], [0, 0, 0, 0]])
            ),
            "at least 4",
        ),
    ],
)
def test_invalid_arguments_of_limited_mechanisms_are_refused(make, match):
    with pytest.raises(ParameterError, match=match):
        make()


def test_answer_probabilities_are_multiples_of_two_to_the_minus_62():
    for epsilon, bits in GRID:
        answers = PrintedAnswers(4, epsilon, bits, SEED)
        for p in (answers.yes, answers.no):
            assert (p * 2**62).denominator == 1
            assert isinstance(p, Fraction)
