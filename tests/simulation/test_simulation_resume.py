"""A run that was stopped and resumed has the same bits as an uninterrupted run."""

import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forked import HANGS_SECONDS
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_task import MeanTask, MemoryCheckpoints, Momentum
from simulation_cases import LAWS, POPULATION, same_run, simulation

from turnout.core.errors import StorageError
from turnout.schemes import ReleaseRule
from turnout.simulation import FileCheckpoints

OPTIMIZER = ["optimizer.velocity", "optimizer.moves", "optimizer.sum"]
CHILD = Path(__file__).with_name("killed_run.py")


@pytest.mark.parametrize("release", ReleaseRule)
@pytest.mark.parametrize("law", LAWS)
def test_a_run_resumed_at_any_step_gives_the_same_result(law, release):
    store = MemoryCheckpoints()
    whole = simulation(LAWS[law], release).run(checkpoints=store)
    assert [c.step for c in store.kept] == list(range(LAWS[law].steps + 1))
    for checkpoint in store.kept:
        again = simulation(LAWS[law], release).run(from_checkpoint=checkpoint)
        assert same_run(whole, again)


def test_a_saved_checkpoint_is_loaded_exactly(tmp_path):
    memory, file = MemoryCheckpoints(), FileCheckpoints(tmp_path / "run.npz")
    run = simulation(LAWS["check-in"], ReleaseRule.ONE_CLIENT)
    run.run(checkpoints=memory)
    for checkpoint in memory.kept:
        file.save(checkpoint)
        loaded = file.load()
        assert same_run(run.run(from_checkpoint=loaded), run.run(from_checkpoint=checkpoint))
        for name in ("step", "seconds"):
            assert getattr(loaded, name) == getattr(checkpoint, name)
        for name in ("fingerprint", "data_key", "data_digest"):
            assert getattr(loaded.run, name) == getattr(checkpoint.run, name)
        assert loaded.server["parameters"].dtype == np.float32
        # Where a minibatch begins, none is the same as an empty one.
        assert (loaded.mechanism_state or {}).keys() == (checkpoint.mechanism_state or {}).keys()
        for name, array in (loaded.mechanism_state or {}).items():
            np.testing.assert_array_equal(array, checkpoint.mechanism_state[name])
        assert set(loaded.server) == {"parameters", *OPTIMIZER}
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_loading_a_missing_checkpoint_file_returns_none(tmp_path):
    assert FileCheckpoints(tmp_path / "run.npz").load() is None


@pytest.mark.parametrize("every", [1, 4, 100])
def test_checkpoints_are_written_every_n_steps_and_at_the_end(every):
    store = MemoryCheckpoints()
    simulation(LAWS["poisson"]).run(checkpoints=store, checkpoint_every=every)
    assert [c.step for c in store.kept] == sorted({*range(0, 13, every), 12})


def test_resuming_a_finished_run_returns_its_result():
    store, asked = MemoryCheckpoints(), MeanTask(POPULATION)
    whole = simulation(LAWS["check-in"]).run(checkpoints=store)
    again = simulation(LAWS["check-in"], task=asked).run(from_checkpoint=store.load())
    assert same_run(whole, again)
    assert asked.asked == []


def interrupted_task(call, where):
    """Task in which Ctrl-C arrives during call number ``call`` of the kind ``where``."""
    task, calls = MeanTask(POPULATION), 0
    clipped_sum, evaluate = task.clipped_sum, task.evaluate

    def count(kind):
        nonlocal calls
        calls += kind == where
        if kind == where and calls == call:
            raise KeyboardInterrupt

    def interrupted_sum(parameters, clients, clip_norm):
        count("update" if clients.size > 1 else "alone")
        return clipped_sum(parameters, clients, clip_norm)

    def interrupted_evaluation(parameters):
        count("evaluation")
        return evaluate(parameters)

    task.clipped_sum, task.evaluate = interrupted_sum, interrupted_evaluation
    return task


@pytest.mark.parametrize(
    ("where", "call", "steps_done"),
    [
        ("update", 1, 0),
        ("update", 4, 3),
        ("alone", 2, 0),
        ("evaluation", 1, 0),
        ("evaluation", 2, 4),
    ],
)
def test_ctrl_c_saves_the_last_complete_step(where, call, steps_done):
    store, law = MemoryCheckpoints(), LAWS["every step"]
    part = simulation(law, task=interrupted_task(call, where)).run(
        checkpoints=store, checkpoint_every=100
    )
    assert (part.finished, part.steps_done) == (False, steps_done)
    assert store.load().step == steps_done
    assert part.history.check_ins.size == steps_done
    again = simulation(law).run(from_checkpoint=store.load())
    assert same_run(again, simulation(law).run())


def test_ctrl_c_in_the_progress_callback_saves_the_step_just_reported():
    def stop(progress):
        if progress.step == 7:
            raise KeyboardInterrupt

    store = MemoryCheckpoints()
    part = simulation(LAWS["check-in"]).run(on_progress=stop, checkpoints=store)
    assert (part.finished, part.steps_done, store.load().step) == (False, 7, 7)


@given(stops=st.lists(st.integers(0, 15), max_size=5), law=st.sampled_from(sorted(LAWS)))
@settings(max_examples=25, deadline=None)
def test_a_run_stopped_and_resumed_many_times_gives_the_same_result(stops, law):
    store = MemoryCheckpoints()
    for stop in stops:

        def halt(progress, stop=stop):
            if progress.step >= stop:
                raise KeyboardInterrupt

        simulation(LAWS[law]).run(from_checkpoint=store.load(), on_progress=halt, checkpoints=store)
    last = simulation(LAWS[law]).run(from_checkpoint=store.load())
    assert same_run(last, simulation(LAWS[law]).run())


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"sigma": 1.5},
        {"expected_check_ins": 3.0},
        {"evaluate_every": 4},
        {"optimizer": Momentum(rate=0.31)},
        {"release": ReleaseRule.AVERAGED},
        {"law": LAWS["poisson"]},
        {"task": MeanTask(POPULATION + 1)},
        {"task": MeanTask(POPULATION, dimension=2)},
        {"clip_norm": 2.0},
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other):
    store = MemoryCheckpoints()
    law = LAWS["check-in"]
    simulation(law).run(checkpoints=store)
    different = simulation(**({"law": law} | other))
    with pytest.raises(StorageError, match="differs from this run"):
        different.run(from_checkpoint=store.load())


def saved(path):
    store, memory = FileCheckpoints(path), MemoryCheckpoints()
    simulation(LAWS["check-in"]).run(checkpoints=memory)
    store.save(memory.kept[3])
    return store, memory


def damage_nothing(path):
    path.write_bytes(b"")


def damage_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_type(path):
    path.write_bytes(b"a text")


def damage_format(path):
    with np.load(path) as arrays:
        np.savez(path, **(dict(arrays) | {"format": np.array(99)}))


def damage_missing(path):
    with np.load(path) as arrays:
        np.savez(path, **{k: v for k, v in arrays.items() if k != "step"})


def damage_pickle(path):
    with np.load(path) as arrays:
        np.savez(path, **(dict(arrays) | {"step": np.array([{}], dtype=object)}))


@pytest.mark.parametrize(
    "damage",
    [
        damage_nothing,
        damage_half,
        damage_type,
        damage_format,
        damage_missing,
        damage_pickle,
    ],
)
def test_a_damaged_checkpoint_file_raises_a_one_line_error(tmp_path, damage):
    store, _ = saved(tmp_path / "run.npz")
    damage(tmp_path / "run.npz")
    with pytest.raises(StorageError, match=r"run\.npz: not a usable checkpoint") as caught:
        store.load()
    assert "\n" not in str(caught.value)


def test_a_checkpoint_file_with_a_wrong_byte_is_refused_or_loads_unchanged(tmp_path):
    """For each position of a flipped byte, the load is refused or the arrays are unchanged."""
    path = tmp_path / "run.npz"
    store, _ = saved(path)
    content, refused = path.read_bytes(), 0
    with np.load(path) as arrays:
        before = {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}
    for place in range(0, len(content), 5):
        wrong = bytearray(content)
        wrong[place] ^= 0xFF
        path.write_bytes(wrong)
        try:
            store.load()
        except StorageError:
            refused += 1
            continue
        with np.load(path) as arrays:
            after = {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}
        assert after == before
    assert refused > len(content) / 5 / 2


@pytest.mark.parametrize("broken", ["os.fsync", "os.replace", "numpy.savez"])
def test_a_failed_save_keeps_the_old_checkpoint(tmp_path, monkeypatch, broken):
    store, memory = saved(tmp_path / "run.npz")

    def fails(*arguments, **options):
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(broken, fails)
        with pytest.raises(
            StorageError, match=r"run\.npz: checkpoint cannot be written: disk full"
        ):
            store.save(memory.kept[9])
    assert store.load().step == 3
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_partially_written_checkpoint_is_ignored(tmp_path):
    store, memory = saved(tmp_path / "run.npz")
    (tmp_path / "run.npz.new").write_bytes(b"half")
    assert store.load().step == 3
    store.save(memory.kept[4])
    assert store.load().step == 4


def start(path, *steps):
    arguments = [sys.executable, str(CHILD), str(path), *map(str, steps)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def go_on(process, steps):
    """Let a halted process save ``steps`` more steps."""
    assert process.stdout.readline() == b"halted\n"
    process.stdin.write(b"%d\n" % steps)
    process.stdin.flush()


def ended(process):
    """Exit code of a process, after waiting for its end."""
    process.stdin.close()
    code = process.wait(timeout=HANGS_SECONDS)
    process.stdout.close()
    return code


def test_a_run_killed_and_resumed_many_times_gives_the_same_bits(tmp_path):
    """A process is killed at four random times; the fifth process runs to the end."""
    path = tmp_path / "run.npz"
    pauses = random.Random(4)
    reached = []
    for _ in range(4):
        process = start(path, 2)
        go_on(process, 100)  # the run has more steps, so the signal always arrives before its end
        time.sleep(pauses.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        assert ended(process) == -signal.SIGKILL
        reached.append(FileCheckpoints(path).load().step)
    assert sorted(set(reached)) == reached, reached
    assert ended(start(path)) == 0
    sys.path.insert(0, str(CHILD.parent))
    from killed_run import build

    end = FileCheckpoints(path).load()
    assert same_run(build().run(from_checkpoint=end), build().run())


def test_sigint_stops_a_real_process_cleanly(tmp_path):
    path = tmp_path / "run.npz"
    process = start(path, 2)
    go_on(process, 100)
    process.send_signal(signal.SIGINT)
    assert ended(process) == 3
    assert 0 < FileCheckpoints(path).load().step < 600


def test_a_run_resumed_from_a_wrong_checkpoint_is_detected():
    """Negative control of `same_run`: a run from a changed checkpoint has another result."""
    store = MemoryCheckpoints()
    law = LAWS["check-in"]
    whole = simulation(law).run(checkpoints=store)
    middle, start = store.kept[6], store.kept[0].server
    for wrong in (
        replace(middle, server=middle.server | {"parameters": start["parameters"]}),
        replace(middle, server=start | {"parameters": middle.server["parameters"]}),
        replace(middle, step=5, history=store.kept[5].history),
    ):
        again = simulation(law).run(from_checkpoint=wrong)
        with pytest.raises(AssertionError):
            same_run(whole, again)
