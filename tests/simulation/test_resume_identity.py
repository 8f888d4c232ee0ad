"""A checkpoint resumes only a run with the same data and settings; others are refused."""

import base64
import json
import stat
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pytest
from numpy_task import MeanTask, MemoryCheckpoints, Momentum
from simulation_cases import LAWS, POPULATION, same_run, simulation

from turnout import runs as training
from turnout.core.errors import StorageError, UnsupportedError
from turnout.core.identity import identity_of
from turnout.data import ClientData, Records, digits
from turnout.learning.algorithm import FedSGD
from turnout.learning.examples import Examples
from turnout.learning.gradients import Compute, Precision
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LayeredUpdates, LocalTraining, VmappedUpdates
from turnout.learning.models import build_model
from turnout.learning.optimizers import SGD, Constant
from turnout.learning.tasks import SupervisedTask
from turnout.reporting.training_report import SIMULATOR
from turnout.runs.workload import UnseenPhase
from turnout.schemes import AvailabilityCheckIn, CheckIn, GaussianNoise, Relation, Scheme
from turnout.simulation import FileCheckpoints, Simulation

CLIENTS, FEATURES = 30, 6
LAW = CheckIn(window=4, windows=2)
OTHER_DATA = "the checkpoint is of a run on other data: its examples"
OTHER_RULE = r"the checkpoint is of run [0-9a-f]{32}, which differs from this run"


def examples(seed=1, count=2 * CLIENTS, dtype=np.float32):
    generator = np.random.default_rng(seed)
    inputs = generator.integers(0, 9, (count, FEATURES)).astype(dtype)
    return Examples(inputs, generator.integers(0, 3, count))


def learned(
    train=None,
    held_out=None,
    owners=None,
    local=None,
    updates=None,
    clip_norm=1.0,
    model=None,
):
    """Simulation in which each client has two examples, unless ``owners`` assigns them."""
    owners = np.arange(2 * CLIENTS) // 2 if owners is None else owners
    task = SupervisedTask(
        model or build_model("logistic", (FEATURES,), 3),
        train or examples(),
        held_out or examples(2, 10),
        holdings=Holdings.from_owners(owners, CLIENTS),
        local=local or LocalTraining(2, 0.5),
        updates=updates,
    )
    scheme = Scheme(GaussianNoise(1.0), LAW, Relation.ADD_REMOVE)
    algorithm = FedSGD(task, SGD(Constant(0.1)), clip_norm)
    return Simulation(scheme, algorithm, seed=3, evaluate_every=4)


def stopped(run, store, step=3):
    """Checkpoint of a run that is stopped after a step."""

    def stop(progress):
        if progress.step == step:
            raise KeyboardInterrupt

    assert not run.run(checkpoints=store, on_progress=stop).finished
    return store.load()


def changed(examples, place, part="inputs"):
    """Copy of the examples in which one number differs."""
    arrays = {"inputs": examples.inputs.copy(), "labels": examples.labels.copy()}
    arrays[part].reshape(-1)[place] = (arrays[part].reshape(-1)[place] + 1) % 3
    return Examples(**arrays)


def swapped(first, second):
    owners = np.arange(2 * CLIENTS) // 2
    places = [2 * first, 2 * first + 1, 2 * second, 2 * second + 1]
    owners[places] = [second, second, first, first]
    return owners


MODEL = build_model("logistic", (FEATURES,), 3)


def in_bfloat16():
    compute = Compute(precision=Precision.BFLOAT16)
    return VmappedUpdates(MODEL, LocalTraining(2, 0.5), compute=compute)


OTHERS = {
    "other data": ({"train": examples(5)}, OTHER_DATA),
    "one pixel": ({"train": changed(examples(), -1)}, OTHER_DATA),
    "one label": ({"train": changed(examples(), 0, "labels")}, OTHER_DATA),
    "two clients swapped": ({"owners": swapped(4, 21)}, OTHER_DATA),
    "one example moved": ({"owners": np.r_[1, np.arange(1, 2 * CLIENTS) // 2]}, OTHER_DATA),
    "one pixel of the test set": ({"held_out": changed(examples(2, 10), 7)}, OTHER_DATA),
    "another type": ({"train": examples(dtype=np.float16)}, OTHER_RULE),
    "more local steps": ({"local": LocalTraining(3, 0.5)}, OTHER_RULE),
    "another local rate": ({"local": LocalTraining(2, 0.25)}, OTHER_RULE),
    "other updates": ({"updates": LayeredUpdates(MODEL, LocalTraining(2, 0.5))}, OTHER_RULE),
    "another precision": ({"updates": in_bfloat16()}, OTHER_RULE),
    "another clip norm": ({"clip_norm": 0.5}, OTHER_RULE),
    "another start": ({"model": replace(MODEL, zero_start=False)}, OTHER_RULE),
}


@pytest.mark.parametrize("other", OTHERS)
def test_resuming_with_other_data_or_settings_raises_a_one_line_error(other, tmp_path):
    store = FileCheckpoints(tmp_path / "run.npz")
    checkpoint = stopped(learned(), store)
    options, line = OTHERS[other]
    with pytest.raises(StorageError, match=line) as caught:
        learned(**options).run(from_checkpoint=checkpoint)
    assert "\n" not in str(caught.value)


def test_resume_on_the_same_data_gives_the_same_bits(tmp_path):
    checkpoint = stopped(learned(), FileCheckpoints(tmp_path / "run.npz"))
    again = learned(examples(), updates=VmappedUpdates(MODEL, LocalTraining(2, 0.5)))
    assert same_run(learned().run(), again.run(from_checkpoint=checkpoint))


def test_resuming_with_a_changed_availability_trace_is_refused():
    law = LAWS["availability"]
    store = MemoryCheckpoints()
    first = simulation(law)
    first.run(checkpoints=store)
    flipped = law.available.copy()
    flipped[0, 0] ^= True
    other = simulation(AvailabilityCheckIn(flipped, law.window))
    assert other.fingerprint == first.fingerprint  # nothing private is digested without a key
    with pytest.raises(StorageError, match=OTHER_DATA):
        other.run(from_checkpoint=store.load())


def test_each_run_identifies_its_data_with_its_own_random_key(tmp_path):
    one, two = MemoryCheckpoints(), MemoryCheckpoints()
    first, second = stopped(learned(), one), stopped(learned(), two)
    assert first.run.fingerprint == second.run.fingerprint
    assert first.run.data_key != second.run.data_key
    assert first.run.data_digest != second.run.data_digest
    later = MemoryCheckpoints()
    learned().run(from_checkpoint=first, checkpoints=later)
    assert {c.run.data_key for c in (*one.kept, *later.kept)} == {first.run.data_key}
    assert repr(first.run.data_key) not in repr(first)
    assert repr(first.run.data_digest) not in repr(first)


def test_a_checkpoint_is_readable_only_by_its_owner(tmp_path):
    path = tmp_path / "run.npz"
    path.with_name("run.npz.new").touch(0o644)  # left behind by a version that did not mind
    stopped(learned(), FileCheckpoints(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("written", [0, 2])
def test_a_checkpoint_of_another_format_raises_a_one_line_error(tmp_path, written):
    path = tmp_path / "run.npz"
    stopped(learned(), FileCheckpoints(path))
    with np.load(path) as arrays:
        other = dict(arrays) | {"format": np.array(written)}
    np.savez(path, **other)
    line = f"format = {written}: expected 1; resume .*version of turnout .*, or start a new run$"
    with pytest.raises(StorageError, match=line) as caught:
        FileCheckpoints(path).load()
    assert "\n" not in str(caught.value)


class SilentTask(MeanTask):
    """User's task without ``resume_parts``, so that it cannot be identified."""

    resume_parts = None


class SilentMomentum(Momentum):
    """Subclass that is not a dataclass itself, so it may have state outside the fields."""


@pytest.mark.parametrize(
    "silent", [{"task": SilentTask(POPULATION)}, {"optimizer": SilentMomentum()}]
)
def test_tasks_that_cannot_be_identified_run_but_not_with_checkpoints(silent):
    run = simulation(LAWS["poisson"], **silent)
    assert run.run().finished
    with pytest.raises(UnsupportedError, match=r"Silent.* cannot be identified in a checkpoint"):
        run.run(checkpoints=MemoryCheckpoints())
    good = MemoryCheckpoints()
    simulation(LAWS["poisson"]).run(checkpoints=good)
    with pytest.raises(UnsupportedError, match="resume_parts"):
        run.run(from_checkpoint=good.load())


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Rule:
    rate: float
    of: object = None


class Untold:
    pass


@dataclass
class OtherRule(Rule):
    pass


def described(value):
    found = identity_of(value)
    return found.text, found.keyed_digest(bytes(32))


def test_different_values_have_different_checkpoint_identities():
    ones = np.ones(4, np.float32)
    values = [
        None, True, 1, 1.0, "1", b"1", Colour.RED, Colour.BLUE, (), (1,), (1, 1), ((1,), 1),
        {"a": 1}, {"a": 2}, {"a": (1, "b")}, Rule(1.0), Rule(2.0), OtherRule(1.0),
        Rule(1.0, Rule(1.0)), Rule(1.0, ones), Rule(1.0, np.ones(4, np.float64)),
        Rule(1.0, ones.reshape(2, 2)), Rule(1.0, np.zeros(4, np.float32)), np.float32(1),
        Rule(1.0, -np.zeros(4, np.float32)), (ones, 2 * ones), (2 * ones, ones), np.array(1),
        np.zeros((0, 2)), np.arange(3000), np.r_[:1500, 0, 1501:3000],
    ]  # fmt: skip
    found = [described(value) for value in values]
    assert len(set(found)) == len(values)
    assert described({"b": ones, "a": 1}) == described({"a": 1, "b": ones.copy()})
    assert described(ones[::2]) == described(ones[:2])


def test_objects_that_cannot_be_identified_are_refused_in_checkpoints():
    @dataclass
    class Inner:
        rate: float

    extended = Rule(1.0)
    extended.more = 2.0
    unknown = [lambda x: x, Untold(), Untold, Rule, Rule(1.0, max), Inner(1.0), {1, 2}, extended]
    for value in (*unknown, MeanTask.evaluate):
        with pytest.raises(UnsupportedError, match="cannot be identified in a checkpoint"):
            identity_of(value)
    with pytest.raises(UnsupportedError, match="arrays of Python objects cannot be checkpointed"):
        identity_of(np.array([{}]))


class Quiet:
    """Progress watcher that stops a run after a step of training, or before the report."""

    def __init__(self, stop=False, stop_report=False):
        self.stop, self.stop_report = stop, stop_report

    def phase(self, what):
        if self.stop_report and "ε" in what:
            raise KeyboardInterrupt
        return nullcontext(UnseenPhase())

    @contextmanager
    def training(self, what, steps, target, spent):
        def tell(progress):
            if self.stop and progress.step == 5:
                raise KeyboardInterrupt

        yield tell


PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 4
windows = 2
[privacy]
relation = "add-remove"
delta = 1e-4
noise_multiplier = 2.0
[optimizer]
learning_rate = 1.0
[run]
checkpoint_every = 1
"""


def test_a_plan_resumes_on_its_data_and_its_files_show_no_digest_of_them(tmp_path, monkeypatch):
    plan, folder = tmp_path / "plan.toml", tmp_path / "run"
    plan.write_text(PLAN)
    with monkeypatch.context() as patched:
        # Without a progress display, no ε is computed during training.
        patched.setattr("turnout.accounting.epsilon_upper", None)
        with pytest.raises(training.InterruptedRunError):
            training.train(plan, folder, Quiet(stop=True))
    data = digits()
    pixels = data.train.inputs.copy()
    pixels[700, 4, 4] += 1
    with monkeypatch.context() as patched:
        other = ClientData(data.name, Records(pixels, data.train.labels), data.test)
        patched.setattr("turnout.data.load_images", lambda name: other)
        with pytest.raises(StorageError, match=OTHER_DATA):
            training.resume(folder, Quiet())
    with pytest.raises(training.InterruptedRunError, match="after step 8 of 8; go on with"):
        training.resume(folder, Quiet(stop_report=True))
    assert not (folder / "report.json").exists()
    training.resume(folder, Quiet())
    run = FileCheckpoints(folder / SIMULATOR / "checkpoint.npz").load().run
    assert json.loads((folder / "report.json").read_text())
    files = [path for path in folder.rglob("*") if path.is_file()]
    for secret in (run.data_key, run.data_digest):
        shapes = secret, secret.hex().encode(), base64.b64encode(secret)
        holders = {path.name for path in files for s in shapes if s in path.read_bytes()}
        assert holders == {"checkpoint.npz"}
