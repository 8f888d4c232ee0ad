"""Background evaluation of models: impossible evaluations are reported, failed ones repeated."""

import asyncio
import errno
from types import SimpleNamespace

import pytest
from forked import HANGS_SECONDS
from web_world import Adding, world

from turnout.core.errors import ParameterError
from turnout.service.storage.opening import open_storage
from turnout.service.web import conductor, logs
from turnout.service.web.conductor import Evaluator


async def until(condition):
    async with asyncio.timeout(HANGS_SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


def texts(running):
    with running.storage.snapshot() as view:
        return [event.text for event in view.events(100)]


def metric(running):
    lines = running.metrics.text((0, 0)).decode().splitlines()
    return next(line for line in lines if line.startswith("turnout_evaluation "))


@pytest.mark.parametrize(
    "error",
    [ParameterError("data.name", "digits", "TURNOUT_DATA"), ImportError("no torch"), OSError()],
    ids=["no data", "no PyTorch", "no descriptor"],
)
def test_the_operator_page_reports_that_models_are_not_evaluated(tmp_path, error):
    def prepare():
        raise error

    async def main():
        async with world(tmp_path) as w:
            evaluator = Evaluator(w.running, prepare, Adding())
            assert metric(w.running) == "turnout_evaluation 1.0"
            evaluator.start()
            await until(lambda: metric(w.running) == "turnout_evaluation 0.0")
            view = await w.running.operator()
            assert str(error) in view.evaluation
            assert "evaluat" in view.evaluation
            await until(lambda: view.evaluation in texts(w.running))
            assert await asyncio.to_thread(evaluator.stop)

    asyncio.run(main())


@pytest.mark.parametrize("where", ["prepare", "evaluate", "snapshot"])
def test_a_failed_evaluation_is_repeated(tmp_path, monkeypatch, mutate, where):
    failures = [OSError(errno.EMFILE, "too many open files"), MemoryError()]
    monkeypatch.setattr(conductor, "FIRST_PAUSE_SECONDS", 0.001)

    def maybe(place):
        if place == where and failures:
            raise failures.pop()

    def prepare():
        maybe("prepare")

        def evaluate(parameters):
            maybe("evaluate")
            return 0.5, 1.0

        return evaluate

    async def main():
        async with world(tmp_path) as w:
            evaluator = Evaluator(w.running, prepare, Adding())
            scored = evaluator._evaluated_steps
            mutate(evaluator, "_evaluated_steps", lambda: (maybe("snapshot"), scored())[1])
            evaluator.start()
            await until(lambda: w.running.metrics.accuracy._value.get() == 0.5)
            assert not failures
            await until(lambda: metric(w.running) == "turnout_evaluation 1.0")
            assert (await w.running.operator()).evaluation == "models are evaluated"
            assert any("will be repeated" in text for text in texts(w.running))
            assert await asyncio.to_thread(evaluator.stop)

    asyncio.run(main())


def test_a_release_that_waits_for_the_witness_is_not_evaluated(tmp_path):
    """The release was committed before a restart; the witness has not signed its ledger head."""
    evaluated = []

    def evaluate(parameters):
        evaluated.append(parameters)
        return 0.5, 1.0

    async def committed():
        async with world(tmp_path) as w:
            await w.conductor._submit(w.running.engine.close_step)

    async def restarted():
        storage = open_storage(tmp_path / "turnout.sqlite", serving=True)
        async with world(tmp_path, storage=storage, witness=SimpleNamespace(key=bytes(32))) as w:
            assert w.running.withheld
            evaluator = Evaluator(w.running, lambda: evaluate, Adding())
            evaluator.start()
            await until(lambda: evaluated)
            assert not [text for text in texts(w.running) if "failed" in text]
            assert await asyncio.to_thread(evaluator.stop)

    asyncio.run(committed())
    asyncio.run(restarted())
    assert len(evaluated) == 1


@pytest.mark.parametrize(("loss", "shown"), [(1.0, {"loss": 1.0}), (float("nan"), {})])
def test_the_log_has_the_accuracy_of_the_final_model_alone(tmp_path, mutate, loss, shown):
    lines = []
    logger = SimpleNamespace(
        info=lambda text, **named: lines.append((text, named)), warning=lambda text: None
    )
    mutate(logs, "logger", lambda: logger)

    async def main():
        async with world(tmp_path) as w:
            evaluator = Evaluator(w.running, lambda: lambda parameters: (0.93218, loss), Adding())
            last = w.running.charter.steps
            mutate(evaluator, "_parameters_for_use", lambda view, steps: steps)
            evaluator.start()
            evaluator.published(1)
            await until(lambda: w.running.metrics.accuracy._value.get() > 0)
            assert not [named for text, named in lines if named]
            evaluator.published(last)
            expected = ("the final model was evaluated", {"releases": last, "accuracy": 0.9322})
            await until(lambda: (expected[0], expected[1] | shown) in lines)
            assert await asyncio.to_thread(evaluator.stop)

    asyncio.run(main())
