"""A node's steps and the server's ledger, tested without Flower."""

import json
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

import turnout as tn
from turnout.core.errors import (
    BudgetExceededError,
    ParameterError,
    StorageError,
    UnsupportedError,
)
from turnout.integrations.release_ledger import (
    NodeTurns,
    ReleaseLedger,
    bounded_update,
    drawn_steps,
    lattice_of,
)
from turnout.randomness import OSRandomness
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, KSubset, Relation, Scheme
from turnout.schemes.codec import participation_to_dict

SCHEME = Scheme(GaussianNoise(1.0), CheckIn(5, 2), Relation.ZERO_OUT)
DELTA, DIMENSION, NODES = 1e-5, 3, 50


def terms(participation=SCHEME.participation, task="a", **others) -> dict:
    participation = json.loads(json.dumps(participation_to_dict(participation)))
    given = {
        "law": participation,
        "noise_multiplier": 1.0,
        "clip_norm": 2.0,
        "dimension": DIMENSION,
    }
    return {"task": task, **given, **others}


def ledger(folder, scheme=SCHEME, *, delta=DELTA, **others) -> ReleaseLedger:
    settings = {"clip_norm": 2.0, "dimension": DIMENSION, "nodes": NODES, "delta": delta}
    return ReleaseLedger(folder / "ledger.jsonl", scheme, **settings, **others)


def silent(deviation, size):
    return np.zeros(size, np.int64)


def test_a_node_answers_each_of_its_steps_only_once_despite_restarts(tmp_path):
    path = tmp_path / "turns.json"
    taken = [step for step in range(10) if NodeTurns(path).takes(terms(), step)]
    assert [step // 5 for step in taken] == [0, 1]
    assert not any(NodeTurns(path).takes(terms(), step) for step in range(10))
    assert any(NodeTurns(path).takes(terms(task="b"), step) for step in range(10))


def test_a_node_stores_its_drawn_steps_before_its_first_answer(tmp_path):
    path = tmp_path / "turns.json"
    NodeTurns(path).takes(terms(), 9)
    drawn = json.loads(path.read_text())["a"]["left"]
    NodeTurns(path).takes(terms(), 9)
    assert json.loads(path.read_text())["a"]["left"] == drawn
    assert path.stat().st_mode & 0o077 == 0


def test_the_steps_of_a_node_have_the_distribution_of_one_client():
    participation, source = KSubset(4, 2), OSRandomness()
    found = Counter(tuple(drawn_steps(participation, source)) for _ in range(3000))
    assert all(len(pair) == 2 for pair in found)
    assert chisquare(list(found.values())).pvalue > 1e-9
    skewed = [*list(found.values())[:-1], 2 * list(found.values())[-1]]
    assert chisquare(skewed).pvalue < 1e-9


def test_a_node_refuses_changed_terms_without_revealing_its_steps(tmp_path):
    path = tmp_path / "turns.json"
    turns = NodeTurns(path)
    turns.takes(terms(), 0)
    with pytest.raises(ParameterError, match="the terms of this task's first step") as refusal:
        turns.takes(terms(noise_multiplier=0.5), 1)
    assert "left" not in str(refusal.value)
    for wrong, step in (
        ({**terms(), "more": 1}, 0),
        (terms(EveryStep(3), task="c"), 0),
        ({**terms(), "law": {"is": "Nothing"}}, 0),
        ({**terms(), "clip_norm": -1.0}, 0),
        (terms(), 10),
        (terms(), -1),
    ):
        with pytest.raises(ParameterError):
            turns.takes(wrong, step)
    for damaged in ("{", "[1]", '{"a": {}}', '{"a": 3}'):
        path.write_text(damaged)
        with pytest.raises(StorageError, match="not a file of a node's steps"):
            turns.takes(terms(), 0)


def test_a_node_sends_the_clipped_difference_of_models_or_zero():
    lattice = lattice_of(terms())
    before = np.array([1.0, 0.0, 0.0], np.float32)
    short = bounded_update(before, before - np.array([0.5, 0.0, -0.25]), lattice)
    assert np.allclose(lattice.to_model(short), [0.5, 0.0, -0.25], atol=2e-3)
    long = bounded_update(before, before + 1e6, lattice)
    lattice.check(long)
    assert np.linalg.norm(lattice.to_model(long)) == pytest.approx(2.0, abs=0.01)
    for bad in (np.nan, np.inf):
        assert not bounded_update(before, np.array([bad, 0, 0]), lattice).any()


def test_a_release_is_the_noisy_sum_of_updates_divided_by_a_public_number(tmp_path):
    drawn = []

    def noise(deviation, size):
        drawn.append(deviation)
        return np.full(size, 7, np.int64)

    book = ledger(tmp_path, noise=noise)
    limit = book.lattice.norm_squared_limit
    good, bad = np.array([1, -2, 3], np.int32), np.array([int(limit**0.5) + 1, 0, 0], np.int32)
    strangers = [bad, good[:2], good.astype(np.int64)]
    direction = book.release([good, good, *strangers])
    step = book.lattice.step
    assert np.allclose(direction, (2 * good + 7) * step / (NODES / 5))
    assert drawn == [book.lattice.noise_deviation(1.0)]
    assert np.allclose(book.release([]), 7 * step / (NODES / 5))
    assert book.step == 2


def test_the_ledger_reports_the_epsilon_of_the_released_steps(tmp_path):
    book = ledger(tmp_path, noise=silent)
    assert book.epsilon() == 0.0
    for _ in range(10):
        book.release([])
    assert book.epsilon() == tn.price(SCHEME, delta=DELTA).epsilon.upper
    with pytest.raises(BudgetExceededError, match="steps"):
        book.release([])


def test_a_step_is_recorded_before_its_noise_is_drawn_and_never_released_again(tmp_path):
    def crash(deviation, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger(tmp_path, noise=crash).release([])
    again = ledger(tmp_path, noise=silent)
    assert again.step == 1
    again.release([])
    path = tmp_path / "ledger.jsonl"
    assert ledger(tmp_path).terms == again.terms
    whole = path.read_text()
    path.write_text(whole + '{"charged": 2, "bef')
    assert ledger(tmp_path, noise=silent).step == 2
    assert path.read_text() == whole
    lines = whole.splitlines(keepends=True)
    for changed in (lines[:1] + lines[2:], [lines[0].replace("50", "51"), *lines[1:]], ["3\n"]):
        path.write_text("".join(changed))
        with pytest.raises(StorageError, match=r"ledger|lines are missing"):
            ledger(tmp_path)


def test_a_ledger_refuses_a_second_process_and_another_task(tmp_path):
    first, second = ledger(tmp_path, noise=silent), ledger(tmp_path, noise=silent)
    first.release([])
    with pytest.raises(StorageError, match="another process writes this ledger"):
        second.release([])
    with pytest.raises(ParameterError, match="expected the ledger of"):
        ledger(tmp_path, delta=1e-6)


@pytest.mark.parametrize(
    "scheme",
    [
        Scheme(GaussianNoise(1.0), EveryStep(3), Relation.ZERO_OUT),
        Scheme(GaussianNoise(1.0), CheckIn(3), Relation.ZERO_OUT, unit="example"),
        Scheme(GaussianNoise(1.0), CheckIn(3), Relation.ZERO_OUT, release="one-client"),
    ],
)
def test_schemes_that_a_federation_cannot_run_are_refused(scheme, tmp_path):
    with pytest.raises(UnsupportedError):
        ledger(tmp_path, scheme)
    assert not list(tmp_path.iterdir())
