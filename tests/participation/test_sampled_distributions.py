"""At larger sizes, draws have the stated distribution, and wrong distributions are detected."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from turnout.participation import drawing
from turnout.participation.drawing import draw, draw_run
from turnout.participation.schedule import blocks, joined_schedules
from turnout.participation.traces import availability_participation
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.schemes import (
    CheckIn,
    FixedSize,
    KSubset,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)
from turnout.testing import assert_binomial, assert_frequencies, assert_rejects

STREAMS = SimulationStreams(2024)
SOURCES = [OSRandomness(), STREAMS.source("tests")]
by_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)


def slot_of_each(schedule, population):
    """The slot of each client within the schedule; one past the last for those who stay away."""
    slots = np.full(population, schedule.steps)
    slots[schedule.clients] = schedule.slots() - schedule.first_step
    return slots


@by_source
def test_drawn_check_ins_have_the_stated_distribution(source):
    n, m, p = 50_000, 30, 0.6
    law = CheckIn(m, 1, p)
    probabilities = np.append(np.full(m, p / m), 1 - p)

    def keeps_law(slots):
        assert_frequencies(np.bincount(slots, minlength=m + 1), probabilities)

    schedule = draw(law, n, blocks(law)[0], source)
    keeps_law(slot_of_each(schedule, n))
    coins, uniform = source.bernoulli(p, n), source.below(m, n)
    rate, shorter = source.bernoulli(1.5 * p, n), source.below(m - 1, n)
    assert_rejects(
        keeps_law,
        {
            "1.5 times the rate": np.where(rate, uniform, m),
            "last slot never drawn": np.where(coins, shorter, m),
            "first slot never drawn": np.where(coins, 1 + shorter, m),
            "nobody abstains": uniform,
            "rounded, so that the edges get half": np.where(
                coins, np.rint(source.below(10**6, n) / 10**6 * (m - 1)).astype(int), m
            ),
        },
    )


def test_drawn_check_ins_of_rare_clients_have_the_stated_distribution():
    n, m, p = 200_000, 20, 0.02
    law = CheckIn(m, 1, p)
    schedule = draw(law, n, blocks(law)[0], SOURCES[1])
    counts = np.append(schedule.counts(), n - schedule.participations)
    assert_frequencies(counts, np.append(np.full(m, p / m), 1 - p))
    halves = np.bincount(schedule.clients * 10 // n, minlength=10)
    assert_frequencies(halves, np.full(10, 0.1))


def test_steps_drawn_in_two_windows_are_independent():
    n, m = 50_000, 6
    law = CheckIn(m, 2)
    first, second = (slot_of_each(s, n) for s in draw_run(law, n, STREAMS))

    def keeps_law(pair):
        cells = np.bincount(pair[0] * m + pair[1], minlength=m * m)
        assert_frequencies(cells, np.full(m * m, 1 / m**2))

    keeps_law((first, second))
    assert_rejects(
        keeps_law,
        {
            "drawn once and kept": (first, first),
            "kept and moved on by one": (first, (first + 1) % m),
            "kept by who drew slot 0": (first, np.where(first == 0, 0, second)),
        },
    )


def test_steps_of_neighbouring_clients_are_independent():
    n, m = 60_000, 5
    law = CheckIn(m)
    slots = slot_of_each(draw(law, n, blocks(law)[0], SOURCES[1]), n)
    pairs = np.bincount(slots[::2] * m + slots[1::2], minlength=m * m)
    assert_frequencies(pairs, np.full(m * m, 1 / m**2))
    in_turn = np.arange(n) % m  # Uniform for each client, but dealt out.
    wrong = np.bincount(in_turn[::2] * m + in_turn[1::2], minlength=m * m)
    assert_rejects(
        lambda cells: assert_frequencies(cells, np.full(m * m, 1 / m**2)), {"dealt out": wrong}
    )


@by_source
@pytest.mark.parametrize(("window", "picks"), [(6, 2), (5, 3), (6, 4)])
def test_drawn_k_subsets_have_the_stated_distribution(source, window, picks, mutate):
    mutate(drawing, "_CELLS", 2**12)  # Many chunks, the last one shorter.
    n = 40_000
    law = KSubset(window, picks)
    patterns = {sum(2**s for s in c): i for i, c in enumerate(combinations(range(window), picks))}

    def keeps_law(codes):
        cells = [patterns.get(code, -1) for code in codes.tolist()]
        counts = np.bincount(np.array(cells) + 1, minlength=len(patterns) + 1)
        assert_frequencies(counts, np.append(0, np.full(len(patterns), 1 / len(patterns))))

    schedule = draw(law, n, blocks(law)[0], source)
    keeps_law(np.bincount(schedule.clients, 2.0 ** schedule.slots(), n).astype(int))

    repeats = source.below(window, n * picks).reshape(n, picks)
    kept = np.zeros((n, window), dtype=int)
    np.put_along_axis(kept, repeats, 1, axis=1)
    consecutive = (repeats[:, :1] + np.arange(picks)) % window
    assert_rejects(
        keeps_law,
        {
            "with replacement": kept @ 2 ** np.arange(window),
            "a run of neighbours": (2**consecutive).sum(axis=1),
        },
    )


@pytest.mark.parametrize("law", [PoissonSampling(0.02, 40), SelfSampling(0.3, 40)])
def test_poisson_and_self_sampling_draws_have_the_stated_distribution(law):
    n = 5000
    schedule = joined_schedules(list(draw_run(law, n, STREAMS)))
    trials = n * law.steps

    def keeps_rate(participations):
        assert_binomial(participations, trials, law.rate)

    keeps_rate(schedule.participations)
    wrong = PoissonSampling(1.5 * law.rate, law.steps)
    more = joined_schedules(list(draw_run(wrong, n, STREAMS)))
    assert_rejects(keeps_rate, {"1.5 times the rate": more.participations})

    def varies_as_coins_do(counts):
        spread = np.sum((counts - n * law.rate) ** 2) / (n * law.rate * (1 - law.rate))
        low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], law.steps)
        assert low < spread < high

    varies_as_coins_do(schedule.counts())
    constant = np.full(law.steps, round(n * law.rate))
    assert_rejects(varies_as_coins_do, {"a fixed size": constant})
    by_client = np.bincount(schedule.clients * 50 // n, minlength=50)
    assert_frequencies(by_client, np.full(50, 1 / 50))


@by_source
def test_fixed_size_draws_have_the_stated_distribution(source):
    law = FixedSize(2, 5, 3000)
    pairs = {pair: i for i, pair in enumerate(combinations(range(5), 2))}
    cells = np.zeros(len(pairs), dtype=int)
    for block in blocks(law):
        cells[pairs[tuple(draw(law, 5, block, source).clients.tolist())]] += 1

    def keeps_law(counts):
        assert_frequencies(counts, np.full(len(pairs), 1 / len(pairs)))

    keeps_law(cells)
    starts = source.below(5, 3000)
    neighbours = np.sort(np.stack([starts, (starts + 1) % 5], axis=1), axis=1)
    wrong = np.bincount([pairs[tuple(pair)] for pair in neighbours.tolist()], minlength=10)
    assert_rejects(keeps_law, {"each equally often, but in pairs": wrong})


@by_source
def test_sliding_window_draws_have_the_stated_distribution(source):
    law = SlidingWindow(window=10, slots=200, clients_per_slot=200)
    n, m, cps = law.population, law.window, law.clients_per_slot

    def keeps_law(slots):
        """Of clients whose whole window is served, each slot of it is equally likely."""
        wakes = np.arange(n) // cps
        inside = (wakes >= m - 1) & (wakes + m <= law.slots)
        waited = slots[inside] + m - 1 - wakes[inside]
        assert waited.min() >= 0
        assert waited.max() < m
        assert_frequencies(np.bincount(waited, minlength=m), np.full(m, 1 / m))
        early = (wakes < m - 1) & (slots < law.steps)
        served = (np.arange(1, m) / m * cps).sum()
        assert_binomial(int(early.sum()), (m - 1) * cps, served / ((m - 1) * cps), 1e-9)

    schedule = draw(law, n, blocks(law)[0], source)
    keeps_law(slot_of_each(schedule, n))

    def served(slots):
        steps = slots - (m - 1)
        return np.where((steps >= 0) & (steps < law.steps), steps, law.steps)

    wakes = np.arange(n) // cps
    assert_rejects(
        keeps_law,
        {
            "starts a slot late": served(wakes + 1 + source.below(m, n)),
            "one slot short": served(wakes + source.below(m - 1, n)),
            "one window for all": source.below(law.steps, n),
            "served in the warm-up": np.maximum(served(wakes + source.below(m, n)), 0)
            * (wakes >= m - 1),
        },
    )


@by_source
def test_draws_under_an_availability_trace_have_the_stated_distribution(source):
    n, steps, window = 20_000, 24, 8
    generator = np.random.default_rng(5)
    one = generator.choice([1.0, 0.0, np.nan], size=steps, p=[0.5, 0.3, 0.2])
    one[:window] = [1, np.nan, 0, 1, 1, np.nan, 1, 0]
    trace = np.tile(one, (n, 1))
    law = availability_participation(trace, window)
    free = np.flatnonzero(one[:window] == 1)
    probabilities = np.append(np.where(one[:window] == 1, 1 / len(free), 0), 0)

    def keeps_law(slots):
        assert_frequencies(np.bincount(slots, minlength=window + 1), probabilities)

    keeps_law(slot_of_each(draw(law, n, blocks(law)[0], source), n))
    known_or_not = np.flatnonzero(one[:window] != 0)
    slot = source.below(window, n)
    assert_rejects(
        keeps_law,
        {
            "NaN taken as available": known_or_not[source.below(len(known_or_not), n)],
            "drawn from the whole window, absent when unavailable": np.where(
                np.isin(slot, free), slot, window
            ),
            "drawn from the whole window, then the next free slot": free[
                np.searchsorted(free, slot) % len(free)
            ],
            "last free slot never drawn": free[source.below(len(free) - 1, n)],
        },
    )


def test_devices_and_simulations_draw_steps_with_the_same_distribution():
    law, trials = CheckIn(4, 1, 0.5), 4000
    source = OSRandomness()
    block = blocks(law)[0]
    drawn = [slot_of_each(draw(law, 1, block, source), 1)[0] for _ in range(trials)]
    assert_frequencies(np.bincount(drawn, minlength=5), [0.125] * 4 + [0.5])
