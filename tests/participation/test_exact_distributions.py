"""The enumerated distribution of every sampler equals its specification, in fractions."""

from collections import defaultdict
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from turnout.participation.drawing import draw
from turnout.participation.schedule import blocks
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)
from turnout.testing import enumerate_outputs

TRACE = np.array(
    [[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=np.bool_
)


def steps_of_each(schedule, population):
    """For each client the steps in which she takes part."""
    steps = [[] for _ in range(population)]
    for client, step in zip(schedule.clients, schedule.slots(), strict=True):
        steps[client].append(int(step))
    return tuple(tuple(sorted(own)) for own in steps)


def uniform(outcomes, weight=Fraction(1)):
    outcomes = list(outcomes)
    return {outcome: weight / len(outcomes) for outcome in outcomes}


def sets(steps, picks=1):
    return combinations(sorted(steps), picks)


def coin(probability, came):
    """Abstains, or does what ``came`` says."""
    p = Fraction(probability)
    law = defaultdict(Fraction, {(): 1 - p})
    for steps, weight in came.items():
        law[steps] += p * weight
    return {steps: weight for steps, weight in law.items() if weight}


def of_one_client(law, block, client):
    """The spec, read by hand: steps in which one client takes part → probability."""
    window = range(block.first_step, block.first_step + block.steps)
    match law:
        case EveryStep():
            return {tuple(window): Fraction(1)}
        case PoissonSampling() | SelfSampling():
            return coin(law.rate, {tuple(window): Fraction(1)})
        case CheckIn():
            return coin(law.probability, uniform(sets(window)))
        case KSubset():
            return uniform(sets(window, law.picks))
        case FixedAssignment():
            kept = [tuple(window[slot :: law.window]) for slot in range(law.window)]
            return coin(law.probability, uniform(kept))
        case AvailabilityCheckIn():
            own = [step for step in window if law.available[client, step]]
            return coin(law.probability, uniform(sets(own))) if own else {(): Fraction(1)}
        case SlidingWindow():
            wakes = client // law.clients_per_slot
            spec = defaultdict(Fraction)
            for slot in range(wakes, wakes + law.window):
                served = law.window - 1 <= slot < law.slots
                spec[(slot - law.window + 1,) if served else ()] += Fraction(1, law.window)
            return dict(spec)
    raise AssertionError(law)


def of_everybody(law, population, block):
    """Independent clients, except under `FixedSize`."""
    if isinstance(law, FixedSize):
        subsets = combinations(range(population), law.size)
        came = [tuple((block.first_step,) * (c in s) for c in range(population)) for s in subsets]
        return uniform(came)
    own = [of_one_client(law, block, client).items() for client in range(population)]
    spec = defaultdict(Fraction)
    for choice in product(*own):
        weight = Fraction(1)
        for _, probability in choice:
            weight *= probability
        spec[tuple(steps for steps, _ in choice)] += weight
    return dict(spec)


LAWS = [
    (EveryStep(2), 3),
    (PoissonSampling(0.25, 2), 3),
    (PoissonSampling(1 / 32, 2), 4),
    (PoissonSampling(0.0, 1), 2),
    (PoissonSampling(1.0, 1), 2),
    (SelfSampling(0.25, 2), 3),
    (SelfSampling(1 / 32, 1), 3),
    (FixedSize(2, 4, 2), 4),
    (FixedSize(3, 3, 1), 3),
    (CheckIn(4, 2), 3),
    (CheckIn(3, 2, 0.5), 3),
    (CheckIn(2, 1, 1 / 32), 4),
    (CheckIn(1, 2, 0.5), 2),
    (CheckIn(2, 1, 1 - 2**-10), 2),
    (CheckIn(3, 1, 0.0), 2),
    (SlidingWindow(3, 5), 5),
    (SlidingWindow(2, 3, 2), 6),
    (SlidingWindow(1, 3, 1), 3),
    (SlidingWindow(3, 3, 1), 3),
    (KSubset(4, 1, 2), 2),
    (KSubset(4, 2, 2), 2),
    (KSubset(5, 2), 2),
    (KSubset(4, 3), 2),
    (KSubset(3, 3), 2),
    (FixedAssignment(3, 2), 2),
    (FixedAssignment(2, 3, 0.5), 3),
    (FixedAssignment(4, 1), 2),
    (AvailabilityCheckIn(TRACE, 3), 4),
    (AvailabilityCheckIn(TRACE, 2, 0.5), 4),
    (AvailabilityCheckIn(TRACE, 5, 1 / 32), 4),
]


@pytest.mark.parametrize(("law", "population"), LAWS, ids=str)
def test_every_window_of_a_participation_has_its_stated_distribution(law, population):
    for block in blocks(law):
        enumerated = enumerate_outputs(
            lambda source, block=block: steps_of_each(
                draw(law, population, block, source), population
            )
        )
        assert enumerated == of_everybody(law, population, block)


@pytest.mark.parametrize(
    ("law", "population"),
    [case for case in LAWS if not isinstance(case[0], FixedSize)],
    ids=str,
)
def test_a_device_draws_its_steps_with_the_distribution_of_the_simulation(law, population):
    for block in blocks(law):
        for client in range(population):
            enumerated = enumerate_outputs(
                lambda source, block=block, client=client: steps_of_each(
                    draw(law, population, block, source, client=client), population
                )[client]
            )
            assert enumerated == of_one_client(law, block, client)


def test_each_window_is_drawn_independently():
    law = CheckIn(window=3, windows=2)
    first, second = blocks(law)

    def both(source):
        return tuple(
            steps_of_each(draw(law, 1, block, source), 1)[0][0] for block in (first, second)
        )

    def drawn_once_and_kept(source):
        step = steps_of_each(draw(law, 1, first, source), 1)[0][0]
        return step, step + law.window

    spec = uniform(product(range(3), range(3, 6)))
    assert enumerate_outputs(both) == spec
    assert enumerate_outputs(drawn_once_and_kept) != spec


def test_participations_of_clients_are_dependent_in_steps_of_fixed_size():
    law = FixedSize(2, 4, 1)
    poisson = of_everybody(PoissonSampling(0.5, 1), 4, blocks(law)[0])
    enumerated = enumerate_outputs(
        lambda source: steps_of_each(draw(law, 4, blocks(law)[0], source), 4)
    )
    assert enumerated != poisson


WRONG_SLOTS = {
    "one slot too few": lambda source: int(source.below(3, 1)[0]),
    "one slot too many, folded": lambda source: int(source.below(5, 1)[0]) % 4,
    "off by one": lambda source: 1 + int(source.below(4, 1)[0]),
}


@pytest.mark.parametrize("wrong", WRONG_SLOTS.values(), ids=WRONG_SLOTS)
def test_mutants_of_window_sampling_have_another_distribution(wrong):
    law = CheckIn(window=4)
    spec = of_everybody(law, 1, blocks(law)[0])
    assert enumerate_outputs(lambda source: ((wrong(source),),)) != spec


def with_repeats(source):
    return tuple(sorted(set(source.below(4, 2).tolist())))


def shifted_repeats(source):
    first, second = source.below(4, 2).tolist()
    return tuple(sorted({first, second if second != first else (first + 1) % 4}))


@pytest.mark.parametrize("wrong", [with_repeats, shifted_repeats])
def test_mutants_of_k_subset_sampling_have_another_distribution(wrong):
    law = KSubset(window=4, picks=2)
    assert enumerate_outputs(wrong) != of_one_client(law, blocks(law)[0], 0)


def test_drawing_a_step_before_checking_availability_has_another_distribution():
    law = AvailabilityCheckIn(TRACE[:1], 5)

    def next_free_slot(source):
        slot = int(source.below(5, 1)[0])
        while not TRACE[0, slot]:
            slot = (slot + 1) % 5
        return (slot,)

    assert enumerate_outputs(next_free_slot) != of_one_client(law, blocks(law)[0], 0)


def test_sliding_windows_without_warm_up_have_another_distribution():
    law = SlidingWindow(2, 3)
    block = blocks(law)[0]

    def no_warm_up(source):
        slots = np.arange(3) + source.below(2, 3)
        return tuple((int(slot),) if slot < block.steps else () for slot in slots)

    assert enumerate_outputs(no_warm_up) != of_everybody(law, 3, block)
