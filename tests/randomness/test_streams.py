"""Simulation streams are a function of only seed and name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError
from turnout.randomness import SimulationStreams

GOLDEN = (4402491349343933477, 126553097325706737)
NAMES = st.lists(st.text(max_size=3) | st.integers(-5, 5), max_size=3)


def head(streams, *name):
    return tuple(streams.generator(*name).integers(2**62, size=2).tolist())


@given(seed=st.integers(0, 2**70), name=NAMES)
def test_equal_names_give_equal_simulation_streams(seed, name):
    assert head(SimulationStreams(seed), *name) == head(SimulationStreams(seed), *name)


@given(first=NAMES, second=NAMES)
def test_different_names_give_different_simulation_streams(first, second):
    streams = SimulationStreams(3)
    assert (first == second) == (head(streams, *first) == head(streams, *second))


@pytest.mark.parametrize(
    ("first", "second"),
    [(("a", "b"), ("ab",)), ((1,), ("1",)), ((12,), (1, 2)), (("",), ()), (("s", 1), ("s1",))],
)
def test_similar_stream_names_give_different_streams(first, second):
    streams = SimulationStreams(3)
    assert head(streams, *first) != head(streams, *second)


def test_seed_and_stream_name_are_not_interchangeable():
    assert head(SimulationStreams(1), 2) != head(SimulationStreams(2), 1)
    assert head(SimulationStreams(1)) != head(SimulationStreams(2))


def test_drawing_from_one_simulation_stream_does_not_change_another():
    streams = SimulationStreams(3)
    before = head(streams, "noise", 2)
    streams.generator("noise", 1).random(1000)
    assert head(streams, "noise", 2) == before


def test_the_random_source_of_a_name_draws_from_the_generator_of_that_name():
    streams = SimulationStreams(3)
    drawn = streams.source("participation", 0).below(1000, 5)
    expected = streams.generator("participation", 0).integers(1000, size=5)
    assert drawn.tolist() == expected.tolist()


def test_numpy_integers_are_accepted_as_seeds_and_stream_names():
    seed, part = np.array([3, 4])
    assert head(SimulationStreams(seed), part) == head(SimulationStreams(3), 4)


def test_simulation_streams_give_the_values_of_earlier_versions():
    # Golden: a resumed run must draw what the interrupted one would have drawn.
    assert head(SimulationStreams(7), "noise", 3) == GOLDEN


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_invalid_simulation_seeds_are_refused(seed):
    with pytest.raises(ParameterError, match="seed"):
        SimulationStreams(seed)


@pytest.mark.parametrize("part", [1.5, True, None, b"noise"])
def test_invalid_stream_names_are_refused(part):
    with pytest.raises(ParameterError, match="strings and whole numbers"):
        SimulationStreams(1).generator("noise", part)
