"""Training on a Ray cluster gives the bits of one process, also with lost workers."""

import os
import signal
from contextlib import nullcontext
from decimal import Decimal

import numpy as np
import pyarrow
import pytest

import turnout as tn
from turnout.cli.main import main
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.learning import tasks
from turnout.learning.examples import Examples
from turnout.learning.gradients import Compute
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LocalTraining, SingleUpdates
from turnout.learning.losses import LOSSES
from turnout.learning.models import build_model
from turnout.learning.modules import build_module
from turnout.learning.tasks import SupervisedTask
from turnout.runs import InterruptedRunError

ray = pytest.importorskip("ray")

from turnout.integrations.ray import (  # noqa: E402
    LostWorkersError,
    RayEngine,
    RayRows,
)

PLAN = {
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "participation": {"law": "every-step", "steps": 2},
    "privacy": {"relation": "zero-out", "delta": 1e-5, "epsilon": 3.0},
    "optimizer": {"learning_rate": 1.0},
}
CODE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.scores = torch.nn.Flatten(), torch.nn.Linear(784, 10)

    def forward(self, inputs):
        return self.scores(self.flat(inputs))
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Two of a cluster's three processors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # Ray keeps its token there
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(
            "local",
            num_cpus=3,
            object_store_memory=2**27,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        with RayEngine(workers=2) as engine:
            yield engine
        ray.shutdown()


@pytest.fixture(scope="module")
def task() -> SupervisedTask:
    """A small network, and clients with different numbers of examples, some with none."""
    random, clients = np.random.default_rng(1), 900
    inputs, labels = random.random((clients, 28, 28)), random.integers(0, 10, clients)
    owners = np.concatenate((np.arange(clients - 60), random.integers(0, 50, 60)))
    model = build_model("tanh-cnn-13k", (28, 28), 10)
    examples = Examples(inputs.astype(np.float32), labels)
    return SupervisedTask(model, examples, examples, holdings=Holdings.from_owners(owners, clients))


@pytest.fixture(scope="module")
def parameters(task) -> np.ndarray:
    return task.initial_parameters(np.random.default_rng(2))


@pytest.mark.parametrize("blocks", [256, 3])
def test_clipped_sums_on_a_cluster_have_the_bits_of_one_process(
    engine, task, parameters, blocks, monkeypatch
):
    monkeypatch.setattr(tasks, "BLOCKS", blocks)
    for clients in (np.arange(900), np.arange(3), np.array([], np.int64)):
        here = task.clipped_sum(parameters, clients, 0.3)
        there = task.computed_by(engine).clipped_sum(parameters, clients, 0.3)
        assert np.array_equal(here.total, there.total)
        assert (here.count, here.clipped) == (there.count, there.clipped)
    assert here.count == 0
    whole = task.clipped_sum(parameters, np.arange(900), 0.3).total
    reversed_ = task.clipped_sum(parameters, np.arange(900)[::-1], 0.3).total
    assert not np.array_equal(whole, reversed_)  # another order has other bits


def dying_once(task, at, mark):
    """A task that ends its worker at one block, once."""

    class DiesOnce:
        def block_sum(self, parameters, block, clip_norm):
            if at in block and not mark.exists():
                mark.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return task.block_sum(parameters, block, clip_norm)

    return DiesOnce()


@pytest.mark.parametrize("at", [5, 700, 899])
def test_blocks_of_a_lost_worker_are_computed_again_and_counted_once(
    engine, task, parameters, tmp_path, at
):
    blocks = np.array_split(np.arange(900), 40)
    expected = [task.block_sum(parameters, block, 0.3) for block in blocks]
    mark = tmp_path / "lost"
    found = list(engine.sums(dying_once(task, at, mark), parameters, blocks, 0.3))
    assert len(found) == len(expected)
    assert all(np.array_equal(a.total, b.total) for a, b in zip(found, expected, strict=True))
    assert [each.count for each in found] == [block.size for block in blocks]
    list(engine.sums(task, parameters, blocks, 0.3))  # a worker is ready then
    alive = {ray.get(worker.ready.remote()) for worker in engine._ready}
    assert engine.workers == 2
    assert int(mark.read_text()) not in alive


def test_a_run_whose_workers_always_die_ends_with_an_error(engine, task, parameters, monkeypatch):
    class Dies:
        def ready(self):
            return 0

        def sums(self, *_):
            os._exit(1)

    monkeypatch.setattr("turnout.integrations.ray.LOSSES", 0)
    own = RayEngine(workers=1)
    own._actor = ray.remote(num_cpus=1)(Dies)
    with own, pytest.raises(LostWorkersError, match="lost 2 calls"):
        list(own.sums(task, parameters, [np.arange(9)] * 9, 0.3))


def test_a_run_of_one_process_continues_on_a_cluster(engine, tmp_path):
    class Stops:
        def sums(self, *arguments):
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match="after step 0"):
        tn.train(PLAN, tmp_path, engine=Stops())  # pyright: ignore[reportArgumentType]
    assert tn.train(resume=tmp_path, engine=engine) == tn.train(PLAN)
    assert engine._task[0].population == 1437  # the workers had this run's task


def test_the_command_passes_its_options_to_the_engine(tmp_path, monkeypatch):
    asked = []

    def train(*_, engine, **__):
        asked.append(engine)
        raise InterruptedRunError(None, 1, 2)

    monkeypatch.setattr("turnout.integrations.ray.RayEngine", lambda *given: nullcontext(given))
    monkeypatch.setattr("turnout.api.train.train", train)
    command = ["train", "plan.toml", "--out", str(tmp_path / "run")]
    for options in (["--engine", "ray", "--workers", "3", "--address", "auto"], []):
        with pytest.raises(SystemExit, match="130"):
            main([*command, *options])
    assert asked == [("auto", 3), None]


def test_code_of_a_plan_folder_reaches_the_workers(engine, task, tmp_path):
    (tmp_path / "nets.py").write_text(CODE)
    model = build_module("nets:Net", folder=tmp_path)
    updates = SingleUpdates(model, LocalTraining(), LOSSES["cross-entropy"])
    own = SupervisedTask(model, task._examples, task._examples, updates=updates)
    here = own.clipped_sum(model.start, np.arange(100), 0.3)
    there = own.computed_by(engine).clipped_sum(model.start, np.arange(100), 0.3)
    assert np.array_equal(here.total, there.total)
    assert here.total.any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns of its own settings
def test_rows_of_a_ray_data_set_are_read_in_order(engine):
    random = np.random.default_rng(1)
    held = [pyarrow.table({"age": random.random(700), "height": random.random(700)})] * 2
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = RayRows(ray.data.from_arrow(held))
    assert rows.names == ["age", "height"]
    swapped = np.concatenate(list(rows.vectors(["height", "age"])))
    expected = np.stack([held[0]["height"], held[0]["age"]], axis=1)
    assert np.array_equal(swapped, np.concatenate([expected, expected]))
    found = tn.estimate_mean(rows, norm="linf", radius=1.0, epsilon=1.0, trust="local")
    assert found.clients == 1400
    towns = RayRows(ray.data.from_arrow(pyarrow.table({"town": [2, 0, 1]})))
    assert np.concatenate(list(towns.entries(None))).tolist() == [2, 0, 1]
    with pytest.raises(ParameterError, match="column"):
        list(towns.entries("age"))
    odd = {"Gro\u0308\xdfe": [Decimal("0.5"), None] * 50, "b": ["a\0", None] * 50}
    odd = RayRows(ray.data.from_arrow(pyarrow.table(odd)))
    asked = {"epsilon": 50.0, "trust": "central", "relation": "replace-one"}
    height = {"columns": "Gr\xf6\xdfe", "norm": "linf", "radius": 1.0, **asked}
    with pytest.raises(ParameterError, match="a value in every row; invalid: row 1, 3, 5, 7, 9, …"):
        tn.estimate_mean(odd, **height)
    assert abs(tn.estimate_mean(odd, missing=1, **height).value[0] - 0.75) < 0.1
    found = tn.estimate_frequencies(odd, column="b", categories=["a", "a\0"], missing="a", **asked)
    assert found.values.round(1).tolist() == [0.5, 0.5]
    with pytest.raises(ParameterError, match=r"ray\.data\.Dataset"):
        RayRows([1, 2])  # pyright: ignore[reportArgumentType]


def test_the_workers_option_without_the_ray_engine_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "plan.toml", "--out", str(tmp_path / "run"), "--workers", "2"])
    assert "--address and --workers are allowed only with --engine ray" in capsys.readouterr().err


def test_requests_for_more_than_the_cluster_has_are_refused(engine, task, parameters):
    with pytest.raises(ParameterError, match=r"workers = 9: expected at most \d"):
        RayEngine(workers=9).__enter__()
    with pytest.raises(ParameterError, match="workers"):
        RayEngine(workers=0)
    with pytest.raises(ParameterError, match="inside its with statement"):
        list(RayEngine().sums(task, parameters, [np.arange(9)] * 9, 0.3))
    on_gpu = SupervisedTask(task.model, task._examples, task._examples)
    on_gpu._compute = Compute("cuda")
    with pytest.raises(UnsupportedError, match=r"run\.device = 'cpu'"):
        on_gpu.computed_by(engine)


def test_a_cluster_that_does_not_answer_is_refused(monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("no cluster at auto\nand more")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ParameterError, match=r"address = 'auto': .*, but no cluster at auto$"):
        RayEngine("auto").__enter__()


def test_an_error_in_a_worker_is_raised_unchanged(engine, task):
    with pytest.raises(ParameterError, match="parameters"):
        list(engine.sums(task, np.zeros(3), [np.arange(9)] * 9, 0.3))
