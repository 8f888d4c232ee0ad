"""`tn.refine`, `tn.Refinement` and `tn.limited_frequencies`: the commands' answers in memory."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

import turnout as tn
from turnout.cli.refine import refine as command
from turnout.core.errors import StorageError
from turnout.randomness import SimulationStreams
from turnout.refinement import KeyMismatchError

SHARES = [0.4, 0.3, 0.2, 0.1]
TOWNS = ["Bonn", "Köln", "Ulm", "Kiel"]
VALUES = np.random.default_rng(1).choice(4, 20_000, p=SHARES)
TRUTH = np.bincount(VALUES, minlength=4) / 20_000


def source(seed=1):
    return SimulationStreams(seed).source("test")


def refined(**given):
    given = {"categories": 4, "epsilons": (0.5, 1, 4), "source": source(), **given}
    return tn.refine(VALUES, **given)


def run(*words):
    result = CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def covers(found):
    low, high = found.estimate.interval(1 - 1e-9)
    return bool(np.all((low <= TRUTH) & (high >= TRUTH)))


def test_estimates_at_privacy_levels_with_larger_epsilon_have_less_error():
    found = refined()
    assert found.epsilons == (4.0, 1.0, 0.5)
    levels = [found.at(epsilon) for epsilon in found.epsilons]
    assert all(map(covers, levels))
    errors = [level.estimate.standard_errors.max() for level in levels]
    assert errors == sorted(errors)
    assert found.at() == levels[0]
    assert tn.Refinement(found.release).at() == levels[2]
    # Negative control: the noise of another key of the release is not the level's.
    key = found.keys[0]
    wrong = type(key)(**{**vars(key), "noise": bytes(len(key.noise))})
    assert not covers(tn.Refinement(found.release, (wrong,)).at())


def test_to_dict_equals_the_json_of_refine_decode(tmp_path):
    found = refined().write(tmp_path / "out")
    printed = json.loads(run("decode", tmp_path / "out", "--key", tmp_path / "out/key-4", "--json"))
    assert printed == found.at(4).to_dict() == json.loads(found.at(4).to_json())
    read = tn.Refinement.read(tmp_path / "out", tmp_path / "out" / "key-4")
    assert read.at() == found.at(4)
    assert read.at(0.5) == found.at(0.5)
    assert read != found
    assert found.paths is not None
    assert tn.Refinement.read(tmp_path / "out", *found.paths[1:]) == found
    found.at(4).write_csv(tmp_path / "rows.csv")
    run("decode", tmp_path / "out", "--key", tmp_path / "out/key-4", "--out", tmp_path / "same.csv")
    assert (tmp_path / "rows.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()


def test_refined_results_have_text_tables_and_pictures():
    found = refined()
    assert repr(found).endswith("ε = 4, 1, 0.5, replace-one, client; 2 keys)")
    limited = tn.limited_frequencies(VALUES, categories=4, epsilon=1, randomness=0.5)
    for answer in (found, found.at(), limited):
        assert "<table" in answer._repr_html_()
        assert answer.plot().svg().startswith("<?xml")
        assert json.loads(answer.to_json()) == answer.to_dict()
    assert "secret" not in found.to_json()
    assert not any(key.noise.hex() in found.to_json() for key in found.keys)


def test_only_the_key_for_infinite_epsilon_recovers_the_values():
    people = [TOWNS[value] for value in VALUES]
    found = tn.refine(people, categories=TOWNS, epsilons=(1, math.inf))
    assert found.recovered().tolist() == people
    assert found.categories == tuple(TOWNS)
    assert found.at().to_dict()["epsilon"] is None
    with pytest.raises(tn.ParameterError, match="the key of the level epsilon = inf"):
        refined().recovered()
    with pytest.raises(
        tn.ParameterError, match="epsilon = inf: expected the ε of a level with an available key"
    ):
        tn.Refinement(found.release).recovered()


def test_a_key_of_another_release_is_refused():
    first, second = refined(), refined(source=source(2))
    with pytest.raises(KeyMismatchError, match="belongs to release"):
        tn.Refinement(first.release, second.keys).at()
    assert tn.Refinement(first.release, first.keys).at() == first.at()


def test_frequencies_from_few_random_bits_equal_those_of_the_command(tmp_path):
    given = {"categories": 4, "epsilon": 2, "randomness": 0.3}
    found = tn.limited_frequencies(VALUES, **given)
    assert covers(found)
    assert found.randomness_bits <= 0.3 * (1 + 1e-12)
    assert found.share_asked < 1
    np.save(tmp_path / "values.npy", VALUES)
    words = ["limited", tmp_path / "values.npy", "--size", 4, "--epsilon", 2, "--randomness", 0.3]
    printed, record = json.loads(run(*words, "--json")), found.to_dict()
    assert printed.keys() == record.keys()
    for key in ("epsilon", "guarantee", "randomness_bits", "share_asked"):
        assert printed[key] == record[key]


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        ({"categories": 3}, tn.ParameterError, "from 0 to 2"),
        ({"categories": "Bonn"}, tn.ParameterError, "categories = 'Bonn'"),
        ({"categories": ["a", "a"]}, tn.ParameterError, "two different names"),
        ({"epsilons": (1, 1)}, tn.ParameterError, "different levels"),
        ({"epsilons": (1, -1)}, tn.ParameterError, "epsilons = -1"),
        ({"epsilons": (math.inf,)}, tn.ParameterError, "at least one finite level"),
        ({"mechanism": "none"}, tn.ParameterError, "mechanism = 'none'"),
        ({"column": "town"}, tn.ParameterError, "no named columns"),
    ],
)
def test_invalid_refinements_are_refused(given, kind, match):
    with pytest.raises(kind, match=match):
        refined(**given)


def test_decoding_a_privacy_level_without_its_key_is_refused(tmp_path):
    found = refined()
    with pytest.raises(
        tn.ParameterError, match="epsilon = 4: expected the ε of a level with an available key"
    ):
        tn.Refinement(found.release).at(4)
    with pytest.raises(tn.ParameterError, match="a level of this release"):
        found.at(3)
    found.write(tmp_path)
    with pytest.raises(StorageError, match="never overwritten"):
        found.write(tmp_path)
