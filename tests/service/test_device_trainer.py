"""A device computes the same update as the simulation computes for the same client."""

import json

import numpy as np
import pytest
from fake_coordinator import charter_of

from turnout import data as datasets
from turnout.core.errors import ParameterError, StorageError
from turnout.plans import Plan
from turnout.protocol.lattice import Lattice
from turnout.runs.building import build_algorithm
from turnout.runs.workload import gather
from turnout.schemes import CheckIn
from turnout.service.contract.computation import Computation
from turnout.service.device.trainer import (
    checked_records,
    npz_records,
    trainer_on,
    trainer_on_dealt,
    trainer_on_file,
)

PLAN = """
[data]
name = "digits"
clients = 40
dealing = "by-label"
[model]
name = "logistic"
features = "standardized"
[participation]
law = "check-in"
window = 3
[privacy]
relation = "add-remove"
delta = 1e-5
noise_multiplier = 1.0
clip_norm = 0.5
[client]
steps = 2
learning_rate = 0.1
[optimizer]
learning_rate = 1.0
"""
DIMENSION = 650
PARAMETERS = np.random.default_rng(3).standard_normal(DIMENSION).astype(np.float32) / 10


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    plan = Plan.from_toml(PLAN)
    return build_algorithm(gather(plan, tmp_path_factory.mktemp("plan")))


COMPUTATION = Computation("logistic-1", "standardized-1", (8, 8), 10, 2, 0.1)


def charter(plan=PLAN, dimension=DIMENSION, population=40):
    return charter_of(
        CheckIn(3),
        dimension=dimension,
        population=population,
        plan=plan,
        computation=COMPUTATION,
    )


def records(simulated, client):
    simulated = simulated.task
    holdings = simulated._holdings
    mine = holdings.records[holdings.offsets[client] : holdings.offsets[client + 1]]
    data = datasets.digits().train
    return data.inputs[mine], data.labels[mine]


@pytest.mark.parametrize("client", [0, 7, 39])
def test_updates_of_a_fleet_and_of_a_device_equal_the_simulation(simulated, client):
    expected = simulated.clipped_sum(PARAMETERS, np.array([client])).total
    dealt = trainer_on_dealt("digits")(charter())
    assert np.array_equal(dealt.update(PARAMETERS, client), expected)
    alone = trainer_on(records(simulated, client), client)(charter())
    assert np.array_equal(alone.update(PARAMETERS, client), expected)
    assert np.linalg.norm(expected) > 0.1


def test_computed_updates_are_valid_on_the_lattice(simulated):
    lattice = Lattice.for_noise(1.0, 0.5, DIMENSION)
    trainer = trainer_on_dealt()(charter())
    for client in range(10):
        for scale in (1, 100):
            update = lattice.quantise(trainer.update(scale * PARAMETERS, client))
            lattice.check(lattice.decode(lattice.encode(update)))


def test_all_devices_of_one_process_share_one_trainer():
    trainer_of = trainer_on_dealt()
    assert trainer_of(charter()) is trainer_of(charter())


def test_a_device_refuses_to_compute_the_update_of_another_client(simulated):
    trainer = trainer_on(records(simulated, 3), 3)(charter())
    with pytest.raises(ParameterError, match="the client with these records"):
        trainer.update(PARAMETERS, 4)


def test_records_that_contradict_the_charter_are_refused(simulated):
    inputs, labels = records(simulated, 3)
    cases = [
        ((inputs[:, :7], labels), charter(), "records for a model of 650 parameters, not"),
        ((inputs.reshape(-1, 4, 16), labels), charter(), r"a record, \(8, 8\)"),
        ((inputs, labels + 10), charter(), "classes 0 to 9"),
        ((inputs, labels - 20), charter(), "classes 0 to 9"),
        ((inputs.astype(np.int64), labels), charter(), "an array of uint8 or of floats"),
        ((inputs, labels), charter(PLAN.replace("0.5", "0.25")), "the charter's, 0.5"),
        ((inputs, labels), charter("no plan"), "TOML"),
    ]
    for split, terms, why in cases:
        with pytest.raises(ParameterError, match=why):
            trainer_on(split, 3)(terms)


def test_a_device_fleet_with_another_data_set_or_size_is_refused():
    with pytest.raises(ParameterError, match="as in the task's plan"):
        trainer_on_dealt("mnist")(charter())
    with pytest.raises(ParameterError, match="at most the 1437 records"):
        trainer_on_dealt()(charter(population=1438))


def test_records_in_an_npz_file_are_read_unchanged(tmp_path):
    path = tmp_path / "mine.npz"
    inputs, labels = np.ones((3, 8, 8), np.uint8), np.array([1, 2, 3], np.int32)
    np.savez(path, inputs=inputs, labels=labels)
    own, classes = npz_records(path)
    assert np.array_equal(own, inputs)
    assert classes.tolist() == [1, 2, 3]


def test_a_records_file_that_is_missing_damaged_or_malformed_is_refused(tmp_path):
    path = tmp_path / "mine.npz"
    with pytest.raises(ParameterError, match="that exists"):
        npz_records(path)
    with pytest.raises(StorageError, match="cannot be read"):
        npz_records(tmp_path)
    good = np.ones((2, 8, 8), np.float32)
    for arrays in (
        {"inputs": good},
        {"inputs": good, "labels": np.array([1])},
        {"inputs": good, "labels": np.ones((2, 1, 1))},
        {"inputs": good[:0], "labels": np.array([], dtype=np.int64)},
        {"inputs": good, "labels": np.array([None, None])},
        {"inputs": np.array(1.0), "labels": np.array([1, 2])},
    ):
        np.savez(path, **arrays)
        with pytest.raises(ParameterError):
            npz_records(path)
    for content in (b"", b"nothing", path.read_bytes()[:-30]):
        path.write_bytes(content)
        with pytest.raises(ParameterError, match="inputs and labels"):
            npz_records(path)


@pytest.mark.parametrize(
    ("said", "instead", "name"),
    [
        ('relation = "add-remove"', 'relation = "zero-out"', "privacy.relation"),
        ("delta = 1e-5", "delta = 1e-6", "privacy.delta"),
        ("delta = 1e-5", "delta = 1e-5\nepsilon = 2.9", "privacy.epsilon"),
        ("noise_multiplier = 1.0", "noise_multiplier = 2.0", "privacy.noise_multiplier"),
        ("clip_norm = 0.5", "clip_norm = 1.0", "clip_norm"),
        ("window = 3", "window = 3\nprobability = 0.5", "participation"),
        ('name = "logistic"', 'name = "tanh-cnn-13k"', "model.name"),
        ('features = "standardized"', "", "model.features"),
        ("steps = 2", "steps = 3", "client.steps"),
        ("learning_rate = 0.1", "learning_rate = 0.2", "client.learning_rate"),
        ("[client]", '[protocol]\nrelease = "one-client"\n[client]', "protocol.release"),
    ],
)
def test_a_charter_that_contradicts_its_plan_is_refused(said, instead, name):
    assert said in PLAN
    with pytest.raises(ParameterError) as refused:
        trainer_on_dealt()(charter(PLAN.replace(said, instead)))
    assert refused.value.name == name
    assert refused.value.expected.startswith("the charter's, ")
    assert "<" not in str(refused.value)  # names as in a plan, not members of classes


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("loss", "named_by_a_stranger:loss"),
        ("metrics", ["accuracy", "named_by_a_stranger:metric"]),
        ("module", "named_by_a_stranger:Net"),
        ("features", "hog + named_by_a_stranger:features"),
    ],
)
def test_a_device_runs_no_code_named_in_a_charter(simulated, tmp_path, monkeypatch, key, name):
    (tmp_path / "named_by_a_stranger.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    line = f"{key} = {json.dumps(name)}"
    given = line if key == "module" else f'name = "logistic"\n{line}'
    text = PLAN.replace('name = "logistic"', given)
    if key == "features":
        text = text.replace('features = "standardized"\n', "")
    with pytest.raises(ParameterError, match=rf"model\.{key} = .*expected no code"):
        trainer_on(records(simulated, 3), 3)(charter(text))
    # The owner of a plan may run its code.
    with pytest.raises(ParameterError, match="SystemExit: it ran"):
        build_algorithm(gather(Plan.from_toml(text), tmp_path))


def test_a_table_of_records_is_read_by_the_columns_of_the_plan(tmp_path):
    own = tmp_path / "mine.csv"
    own.write_text("who,x,y\nme,1,0\nme,3,1\n")
    table = '[data]\npath = "all.csv"\nclient = "who"\ninputs = ["x"]\nlabel = "y"\n'
    table += 'classes = 2\ntest = 0.2\nscaling = { x = [0, 2] }\n[model]\nname = "logistic"\n'
    text = table + "".join(PLAN.partition("[participation]")[1:])
    terms = charter_of(
        CheckIn(3),
        dimension=4,
        population=40,
        plan=text,
        computation=Computation("logistic-1", "pixels-1", (1,), 2, 2, 0.1),
    )
    of_table = trainer_on_file(own, 3)(terms).update(np.ones(4, np.float32), 3)
    held = np.array([[0.5], [1.5]], np.float32), np.array([0, 1])
    assert np.array_equal(of_table, trainer_on(held, 3)(terms).update(np.ones(4, np.float32), 3))
    with pytest.raises(ParameterError, match="a file that exists"):
        trainer_on_file(tmp_path / "none.csv", 3)
    with pytest.raises(ParameterError, match=r"an \.npz file with arrays"):
        trainer_on_file(own, 3)(charter())


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_an_error_for_non_finite_records_names_their_row(tmp_path, wrong):
    inputs, labels = np.zeros((3, 2, 2), np.float32), np.zeros((3, 1))
    inputs[1, 0, 1] = wrong
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=labels)
    with pytest.raises(ParameterError, match=rf"inputs\[1\] = {wrong}: expected finite numbers"):
        trainer_on_file(tmp_path / "mine.npz", 3)
    labels[2] = wrong
    with pytest.raises(ParameterError, match=r"labels\[2\]"):
        checked_records(np.zeros((3, 2)), labels)


def test_a_device_computes_on_the_cpu_even_if_the_plan_names_a_gpu(simulated):
    """A process forked for each participation cannot use a GPU that its parent opened."""
    plan = PLAN + '[run]\ndevice = "cuda"\n'
    made = trainer_on(records(simulated, 7), 7)(charter(plan)).update(PARAMETERS, 7)
    expected = simulated.clipped_sum(PARAMETERS, np.array([7])).total
    assert np.array_equal(made, expected)
