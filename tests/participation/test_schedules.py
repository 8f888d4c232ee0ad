"""Properties of every schedule, block and run for all draws."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation.drawing import draw, draw_run
from turnout.participation.schedule import (
    Schedule,
    ScheduleBlock,
    blocks,
    grouped,
    joined_schedules,
)
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    EveryStep,
    FixedSize,
    KSubset,
    PoissonSampling,
    SelfSampling,
    SlidingWindow,
)

SIZES = st.integers(1, 9)
CHANCES = st.sampled_from([0.0, 0.01, 0.3, 1.0])


@st.composite
def fixed_sizes(draw):
    population = draw(SIZES)
    return FixedSize(draw(st.integers(1, population)), population, draw(SIZES))


@st.composite
def k_subsets(draw):
    window = draw(SIZES)
    return KSubset(window, draw(st.integers(1, window)), draw(SIZES))


@st.composite
def sliding_windows(draw):
    window = draw(SIZES)
    return SlidingWindow(window, window + draw(st.integers(0, 9)), draw(SIZES))


@st.composite
def availability(draw):
    shape = draw(SIZES), draw(SIZES)
    free = np.random.default_rng(draw(st.integers(0, 99))).random(shape) < draw(CHANCES)
    return AvailabilityCheckIn(free, draw(st.integers(1, shape[1])), draw(CHANCES))


LAWS = st.one_of(
    st.builds(EveryStep, SIZES),
    st.builds(PoissonSampling, CHANCES, SIZES),
    st.builds(SelfSampling, CHANCES, SIZES),
    st.builds(CheckIn, SIZES, SIZES, CHANCES),
    fixed_sizes(),
    k_subsets(),
    sliding_windows(),
    availability(),
)
SEEDS = st.integers(0, 1000).map(SimulationStreams)


def population_of(law, otherwise=17):
    return getattr(law, "population", otherwise)


@given(law=LAWS)
def test_the_blocks_of_a_schedule_cover_the_run_without_gaps(law):
    cut = blocks(law)
    assert [block.index for block in cut] == list(range(len(cut)))
    assert cut[0].first_step == 0
    for before, after in pairwise(cut):
        assert after.first_step == before.first_step + before.steps
    assert cut[-1].first_step + cut[-1].steps == law.steps
    assert all(block.steps > 0 for block in cut)
    assert cut[-1] == cut[len(cut) - 1]
    with pytest.raises(IndexError):
        cut[len(cut)]


@given(law=LAWS, streams=SEEDS)
def test_schedules_are_sorted_and_cover_their_blocks(law, streams):
    n = population_of(law)
    for block, schedule in zip(blocks(law), draw_run(law, n, streams), strict=True):
        assert (schedule.first_step, schedule.steps) == (block.first_step, block.steps)
        assert schedule.offsets[0] == 0
        assert schedule.offsets[-1] == schedule.participations == schedule.counts().sum()
        assert schedule.clients.dtype == np.int32
        for step in range(block.first_step, block.first_step + block.steps):
            clients = schedule.at(step)
            assert np.all(np.diff(clients) > 0)  # Ascending, nobody twice.
            assert np.all((clients >= 0) & (clients < n))
        times = Counter(schedule.clients.tolist()).values()
        most = law.picks if isinstance(law, KSubset) else 1
        assert max(times, default=0) <= most


@given(law=LAWS, streams=SEEDS)
def test_every_schedule_has_the_properties_of_its_participation(law, streams):
    n = population_of(law)
    run = joined_schedules(list(draw_run(law, n, streams)))
    assert run.steps == law.steps
    match law:
        case EveryStep():
            assert np.all(run.counts() == n)
        case FixedSize():
            assert np.all(run.counts() == law.size)
        case KSubset():
            pairs = set(zip(run.clients, run.slots() // law.window, strict=True))
            assert run.participations == n * law.picks * law.windows
            assert len(pairs) == n * law.windows
        case CheckIn(probability=1.0):
            assert run.participations == n * law.windows
        case AvailabilityCheckIn():
            assert np.all(law.available[run.clients, run.slots()])
            if law.probability == 1:
                assert run.participations == np.count_nonzero(law.window_sizes())
        case SlidingWindow():
            wakes = run.clients // law.clients_per_slot
            waited = run.slots() + law.window - 1 - wakes
            assert np.all((waited >= 0) & (waited < law.window))


@given(law=LAWS, streams=SEEDS, data=st.data())
def test_a_schedule_drawn_from_any_block_on_equals_the_rest_of_the_whole_schedule(
    law, streams, data
):
    n = population_of(law)
    first = data.draw(st.integers(0, len(blocks(law))))
    whole = list(draw_run(law, n, streams))[first:]
    resumed = list(draw_run(law, n, streams, first_block=first))
    assert len(whole) == len(resumed)
    for a, b in zip(whole, resumed, strict=True):
        assert a.clients.tolist() == b.clients.tolist()
        assert a.offsets.tolist() == b.offsets.tolist()


@given(
    steps=st.integers(1, 8),
    pairs=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 50)), max_size=30),
)
def test_grouping_by_step_keeps_the_order_of_clients(steps, pairs):
    pairs = [(slot % steps, client) for slot, client in pairs]
    slots = np.array([slot for slot, _ in pairs], dtype=np.int64)
    clients = np.array([client for _, client in pairs], dtype=np.int32)
    schedule = grouped(3, steps, slots, clients)
    for step in range(steps):
        assert schedule.at(3 + step).tolist() == [c for s, c in pairs if s == step]
    assert schedule.slots().tolist() == sorted((slots + 3).tolist())
    assert schedule.clients.dtype == np.int32


@pytest.mark.parametrize("slots", [[0, -1], [3, 0]])
def test_grouping_refuses_steps_outside_the_block(slots):
    with pytest.raises(ParameterError, match=r"slots = .*expected 0 to 2"):
        grouped(0, 3, np.array(slots), np.array([1, 2]))


def test_steps_beyond_16_bits_and_clients_beyond_32_bits_are_drawn():
    law = CheckIn(window=100_000)
    block = blocks(law)[0]
    schedule = draw(law, 1000, block, SimulationStreams(1).source())
    assert schedule.slots().max() > 65_536
    last = draw(law, 2**40, block, OSRandomness(), client=2**40 - 1)
    assert last.clients.tolist() == [2**40 - 1]
    assert last.clients.dtype == np.int64


def test_the_blocks_of_very_long_runs_are_computed_on_demand():
    cut = blocks(PoissonSampling(0.1, 10**12))
    assert len(cut) == 10**12
    assert cut[-1] == ScheduleBlock(10**12 - 1, 10**12 - 1, 1)


@pytest.mark.parametrize("step", [1, 5])
def test_a_step_outside_the_schedule_is_refused(step):
    schedule = Schedule(2, np.array([0, 1, 1, 2]), np.array([4, 5]))
    assert schedule.at(2).tolist() == [4]
    assert schedule.at(4).tolist() == [5]
    with pytest.raises(ParameterError, match=f"step = {step}: expected a step from 2 to 4"):
        schedule.at(step)


@pytest.mark.parametrize(
    ("offsets", "clients", "name"),
    [
        (np.array([1, 2]), np.array([1, 2]), "offsets"),
        (np.array([0, 1]), np.array([1, 2]), "offsets"),
        (np.array([0, 2, 1, 2]), np.array([1, 2]), "offsets"),
        (np.array([0.0, 2.0]), np.array([1, 2]), "offsets"),
        (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), "offsets"),
        (np.array([0, 2]), np.array([1.0, 2.0]), "clients"),
    ],
)
def test_arrays_that_are_no_schedule_are_refused(offsets, clients, name):
    with pytest.raises(ParameterError, match=name):
        Schedule(0, offsets, clients)


def test_joining_schedules_that_are_not_consecutive_is_refused():
    first = Schedule(0, np.array([0, 1]), np.array([4]))
    third = Schedule(2, np.array([0, 1]), np.array([5]))
    with pytest.raises(ParameterError, match="first_step = 2: expected 1"):
        joined_schedules([first, third])
    with pytest.raises(ParameterError, match="schedules"):
        joined_schedules([])


TRACE = np.ones((3, 4), dtype=np.bool_)


@pytest.mark.parametrize(
    ("law", "population", "message"),
    [
        (CheckIn(4), 0, "population = 0"),
        (CheckIn(4), 1.5, "population = 1.5"),
        (FixedSize(2, 5, 1), 6, "population = 6: expected 5, the number of clients of"),
        (SlidingWindow(2, 4, 3), 6, "expected 12, the number of clients of"),
        (AvailabilityCheckIn(TRACE, 2), 1, "expected 3, the number of clients of"),
    ],
)
def test_a_population_that_does_not_fit_the_participation_is_refused(law, population, message):
    with pytest.raises(ParameterError, match=message):
        draw(law, population, blocks(law)[0], OSRandomness())


@pytest.mark.parametrize(
    "block",
    [
        ScheduleBlock(0, 0, 3),
        ScheduleBlock(1, 0, 4),
        ScheduleBlock(2, 8, 4),
        ScheduleBlock(-1, 4, 4),
    ],
)
def test_drawing_a_block_of_another_participation_is_refused(block):
    with pytest.raises(ParameterError, match="one of the participation's 2 blocks"):
        draw(CheckIn(4, 2), 3, block, OSRandomness())


@pytest.mark.parametrize("client", [-1, 3, 0.5])
def test_drawing_steps_of_a_client_outside_the_population_is_refused(client):
    law = CheckIn(4)
    with pytest.raises(ParameterError, match="client = "):
        draw(law, 3, blocks(law)[0], OSRandomness(), client=client)


def test_participations_without_a_sampler_are_refused():
    law = FixedSize(2, 5, 1)
    with pytest.raises(UnsupportedError, match="a client cannot draw its own steps"):
        draw(law, 5, blocks(law)[0], OSRandomness(), client=0)
    with pytest.raises(UnsupportedError, match="no normal form is known for object"):
        draw(object(), 5, ScheduleBlock(0, 0, 1), OSRandomness())  # type: ignore[arg-type]
