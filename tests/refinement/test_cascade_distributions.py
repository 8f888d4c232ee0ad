"""Joint distribution of a public message and all its keys, by enumeration of all draws."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.randomizers.interface import exponential_below
from turnout.refinement import Cascade, Direct, MultiLevel, OneBit, Step
from turnout.testing import enumerate_outputs

EPSILONS = (2.0, 1.0, 0.5)
SEED = bytes(range(32))
DESIGNS = {
    "one-bit": (OneBit(3, SEED), EPSILONS, 4),
    "one-bit as printed": (OneBit(4, SEED, "as-printed"), (2.0, 1.0), 4),
    "k-ary": (Direct(3), (2.0, 1.0), 6),
    "k-ary, recoverable": (Direct(3), (math.inf, 2.0, 1.0), 6),
    "hadamard": (Direct(13, "hadamard", place_bits=4), (1.5,), 8),
    "hadamard, blocks": (Direct(5, "hadamard", place_bits=2), (2.0, 1.0), 5),
    "projective": (Direct(4, "projective", prime=2, dimension=2), (2.0, 1.0), 5),
    "spread": (Direct(5, "spread", heavy_count=2, draw=1), (2.0, 1.0), 5),
    "spread, recoverable": (Direct(5, "spread", heavy_count=2, draw=1), (math.inf, 1.0), 8),
}


def build(name, cls=MultiLevel):
    design, epsilons, bits = DESIGNS[name]
    return cls(design, epsilons, bits)


def distribution_of(levels, value):
    """Probability of each (public message, key of each level but the last)."""

    def run(source):
        messages, keys = levels.encode([value], source, first=1)
        return (int(messages[0]), *(int(key[0]) for key in keys))

    return enumerate_outputs(run)


def seen(levels, joint, level):
    """Distribution of the message at a level: the public message minus the level's key."""
    distribution = defaultdict(Fraction)
    for (message, *keys), probability in joint.items():
        key = ([*keys, 0])[level]
        distribution[int(levels.at_level(np.array([message]), np.array([key]))[0])] += probability
    return dict(distribution)


def view(joint, levels):
    """Joint distribution of the public message and the keys of some levels."""
    distribution = defaultdict(Fraction)
    for (message, *keys), probability in joint.items():
        distribution[message, *(keys[level] for level in levels)] += probability
    return dict(distribution)


def worst_ratio(distributions):
    """Largest probability ratio of an outcome between two values; None if it is infinite."""
    outcomes = set().union(*distributions)
    worst = Fraction(1)
    for one, other in itertools.permutations(distributions, 2):
        for outcome in outcomes:
            p, q = one.get(outcome, Fraction(0)), other.get(outcome, Fraction(0))
            if p and not q:
                return None
            if q:
                worst = max(worst, p / q)
    return worst


def entropy(distribution):
    return -sum(float(p) * math.log2(p) for p in distribution.values() if p)


@pytest.fixture(scope="module", params=DESIGNS)
def enumerated(request):
    levels = build(request.param)
    return levels, [distribution_of(levels, value) for value in range(levels.size)]


def test_public_message_and_key_have_the_distribution_of_their_privacy_level(enumerated):
    levels, joints = enumerated
    group = levels.design.group
    for value, joint in enumerate(joints):
        symbol = levels.design.symbols(np.array([value]), 1)
        for index, level in enumerate(levels.levels):
            recovered = math.isinf(levels.epsilons[index])
            heavy = np.zeros(1, dtype=np.int64) if recovered else levels.design.heavy
            expected = dict.fromkeys(range(group.order), level.light)
            expected.update({int(group.add(symbol, h)[0]): level.heavy for h in heavy[:, None]})
            assert seen(levels, joint, index) == {y: p for y, p in expected.items() if p}


def test_epsilon_of_every_privacy_level_is_attained_exactly(enumerated):
    levels, joints = enumerated
    for index, (level, epsilon) in enumerate(zip(levels.levels, levels.epsilons, strict=True)):
        found = worst_ratio([seen(levels, joint, index) for joint in joints])
        # An analyst sees the public message, and a key if it has one.
        keys = [index] if index < len(levels.epsilons) - 1 else []
        assert found == worst_ratio([view(joint, keys) for joint in joints]) == level.ratio
        if found is not None:
            assert found <= exponential_below(epsilon)
            assert level.epsilon == pytest.approx(math.log(found), rel=1e-14)


def test_all_keys_together_have_the_epsilon_of_the_level_with_the_largest_epsilon(enumerated):
    levels, joints = enumerated
    everything = list(range(len(levels.epsilons) - 1))
    assert worst_ratio([view(joint, everything) for joint in joints]) == levels.levels[0].ratio


def test_keys_without_the_public_message_are_independent_of_the_data(enumerated):
    _, joints = enumerated
    distributions = []
    for joint in joints:
        keys = defaultdict(Fraction)
        for (_, *held), probability in joint.items():
            keys[tuple(held)] += probability
        distributions.append(keys)
    assert all(distribution == distributions[0] for distribution in distributions)


def test_randomness_and_keys_of_a_cascade_have_the_stated_entropy(enumerated):
    levels, joints = enumerated
    cascade = levels.cascade
    # Noise and outcome determine each other, so the outcome's entropy is all randomness used.
    assert entropy(joints[0]) == pytest.approx(cascade.randomness_bits, abs=1e-12)
    for level in range(len(levels.epsilons) - 1):
        keys = defaultdict(Fraction)
        for (_, *held), probability in joints[0].items():
            keys[held[level]] += probability
        assert entropy(keys) == pytest.approx(cascade.key_bits(level), abs=1e-12)
    assert cascade.key_bits(len(levels.epsilons) - 1) == 0


class RoundedDown(Cascade):
    """Mutant: light weights rounded down, which favours utility and breaks ε."""

    def _first(self, growth):
        step = super()._first(growth)
        light = step.light - 1
        return Step(step.heavy + (self.order - 1), light, 1, self.order)


class SamePart(Cascade):
    """Mutant: every step adds the noise of its whole level (z_j in place of q_j)."""

    def _next(self, before, growth):
        return self._first(growth)


@pytest.mark.parametrize(("wrong", "level"), [(RoundedDown, 0), (SamePart, 1)])
def test_mutated_cascades_are_detected(wrong, level):
    right = Cascade(EPSILONS, bits=5)
    mutant = wrong(EPSILONS, bits=5)
    assert mutant.levels[level].ratio != right.levels[level].ratio
    covered = mutant.levels[level].ratio <= exponential_below(EPSILONS[level])
    # One mutant exceeds ε; the other adds too much noise.
    assert covered == (wrong is SamePart)
    assert mutant.levels[level].contrast != right.levels[level].contrast


class OwnStep(MultiLevel):
    """Mutant: the key of level j contains only step j + 1 in place of all later steps."""

    def encode(self, values, source=None, first=0):
        messages, keys = super().encode(values, source, first)
        below = np.concatenate([keys[1:], np.zeros_like(keys[:1])])
        return messages, self.at_level(keys.ravel(), below.ravel()).reshape(keys.shape)


def test_a_key_with_only_its_own_cascade_step_gives_a_wrong_distribution():
    levels = build("one-bit", OwnStep)
    joints = [distribution_of(levels, value) for value in range(3)]
    assert worst_ratio([seen(levels, joint, 0) for joint in joints]) != levels.levels[0].ratio
    assert worst_ratio([seen(levels, joint, 1) for joint in joints]) == levels.levels[1].ratio


def test_epsilon_of_separate_messages_adds_up_but_epsilon_of_pooled_keys_does_not():
    cascade = Cascade(EPSILONS, bits=5)
    distributions = [
        {
            outcome: math.prod(
                level.heavy if bit == truth else level.light
                for bit, level in zip(outcome, cascade.levels, strict=True)
            )
            for outcome in itertools.product((0, 1), repeat=3)
        }
        for truth in (0, 1)
    ]
    assert worst_ratio(distributions) == math.prod(level.ratio for level in cascade.levels)
    assert worst_ratio(distributions) > cascade.levels[0].ratio


@pytest.mark.parametrize(
    "epsilons", [(1.0,), (1.0, 0.5), (4.0, 1.0, 0.5), (8.0, 3.0, 0.1), (2.0, 1.9999, 1e-3)]
)
@pytest.mark.parametrize("order", [2, 5, 1024])
def test_attained_epsilon_of_each_level_is_close_to_the_request_and_never_above(epsilons, order):
    with mpmath.workprec(300):
        cascade = Cascade(epsilons, order)
        for level, epsilon in zip(cascade.levels, epsilons, strict=True):
            ratio = mpmath.mpf(level.ratio.numerator) / level.ratio.denominator
            assert ratio <= mpmath.exp(epsilon)
            assert mpmath.log(ratio) > epsilon - 1e-11


@pytest.mark.parametrize("heavy_count", [2, 6, 28])
def test_designs_with_several_heavy_elements_attain_their_epsilon_closely(heavy_count):
    cascade = Cascade((math.inf, 4.0, 1.0, 0.25), 64, heavy_count)
    for level, epsilon in zip(cascade.levels[1:], (4.0, 1.0, 0.25), strict=True):
        assert level.ratio <= exponential_below(epsilon)
        assert level.epsilon == pytest.approx(epsilon, abs=1e-12)
        assert level.heavy * heavy_count + level.light * (64 - heavy_count) == 1


def test_cascade_steps_equal_those_of_theorem_7_4_1():
    epsilons = (2.0, 1.0, 0.5)
    z = [1 / (math.exp(epsilon) + 1) for epsilon in epsilons]
    q = [z[0], *((z[j] - z[j - 1]) / (1 - 2 * z[j - 1]) for j in (1, 2))]
    cascade = Cascade(epsilons)
    assert [step.light / step.total for step in cascade.steps] == pytest.approx(q, rel=1e-14)
    h = [-p * math.log2(p) - (1 - p) * math.log2(1 - p) for p in q]
    assert cascade.randomness_bits == pytest.approx(sum(h), rel=1e-13)
    separate = sum(-p * math.log2(p) - (1 - p) * math.log2(1 - p) for p in z)
    messages_apart = math.fsum(level.entropy_bits(1, 2) for level in cascade.levels)
    assert messages_apart == pytest.approx(separate, rel=1e-13)
    assert cascade.randomness_bits < separate


@pytest.mark.parametrize(
    ("epsilons", "changes", "match"),
    [
        ((), {}, "at least one"),
        ((1.0, 1.0), {}, "largest first"),
        ((0.5, 1.0), {}, "largest first"),
        ((1.0, 0.0), {}, "above 0"),
        ((math.inf,), {}, "finite"),
        ((math.nan, 1.0), {}, "largest first"),
        ((1.0, math.nan), {}, "largest first"),
        ((31.0,), {}, "at most 30"),
        ((1.0,), {"order": 1}, "order"),
        ((1.0,), {"order": 4, "heavy_count": 4}, "heavy_count"),
        ((1.0,), {"bits": 63}, "62"),
        ((1.0,), {"bits": 1, "order": 5}, "order = 5"),
    ],
)
def test_invalid_privacy_levels_are_refused(epsilons, changes, match):
    with pytest.raises(ParameterError, match=match):
        Cascade(epsilons, **changes)


@pytest.mark.parametrize("epsilons", [(1e-12,), (1.0, math.nextafter(1.0, 0)), (1.0, 1e-12)])
def test_privacy_levels_too_close_for_integer_weights_are_refused(epsilons):
    with pytest.raises(UnsupportedError, match="cannot be distinguished"):
        Cascade(epsilons, bits=40)


def test_one_bit_messages_refuse_infinite_epsilon():
    with pytest.raises(ParameterError, match="as one bit does not determine"):
        MultiLevel(OneBit(4, SEED), (math.inf, 1.0))
