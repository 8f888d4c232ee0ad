"""Evaluation of published models, beside the service.

A thread of its own looks at the newest published model first, then at those before it that the
charter's curve names. It loads PyTorch and the plan's data once the service is ready; a step never
waits for it. Where it cannot be done, the operator is told so; what fails once is tried again.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from turnout.core.errors import ParameterError, StorageError
from turnout.plans import Plan
from turnout.service import learner as learning
from turnout.service.learner import Learner
from turnout.service.storage.interface import Event, Scored
from turnout.service.storage.writes import Transaction
from turnout.service.web import logs
from turnout.service.web.running import Running

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 300.0
_ON = "models are evaluated"

Evaluate = Callable[[Any], tuple[float, float]]
"""Accuracy and loss of parameters."""


def of_plan(text: str, folder: Path) -> Evaluate:
    """Evaluation on the plan's held-out data; loads PyTorch."""
    from turnout.runs.building import build_task
    from turnout.runs.workload import gather

    task = build_task(gather(Plan.from_toml(text), folder))

    def evaluate(parameters: Any) -> tuple[float, float]:
        metrics = task.evaluate(parameters)
        return metrics.get("accuracy", math.nan), metrics["loss"]

    return evaluate


class Evaluator:
    """Evaluates published models in a thread and stores what it found."""

    def __init__(self, running: Running, prepare: Callable[[], Evaluate], learner: Learner) -> None:
        self._running, self._prepare, self._learner = running, prepare, learner
        self._changed = threading.Condition()
        self._newest = running.shown.published.head.steps
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="turnout-evaluation", daemon=True)

    def start(self) -> None:
        """Begin, once the service is ready."""
        self._thread.start()

    def published(self, steps: int) -> None:
        """So many releases are published."""
        with self._changed:
            self._newest = steps
            self._changed.notify()

    def stop(self, patience_seconds: float = 1.0) -> bool:
        """End after the evaluation in progress; whether that was soon enough."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(patience_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        evaluate = self._tried(self._prepared)
        if evaluate is None:
            return
        self._say(_ON, on=True)
        done = self._tried(self._scored) or set()
        while (steps := self._next(done)) is not None:
            self._tried(partial(self._score, steps, evaluate))
            done.add(steps)

    def _prepared(self) -> Evaluate:
        evaluate = self._prepare()
        gc.freeze()  # PyTorch's modules; looking through them would make requests wait
        return evaluate

    def _scored(self) -> set[int]:
        with self._running.storage.snapshot() as view:
            return {scored.steps for scored in view.scores()}

    def _tried(self, work: Callable[[], T]) -> T | None:
        """The result, tried until there is one; None at the end, and where no trial would help."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped:
            try:
                return work()
            except (ParameterError, ImportError, FileNotFoundError) as error:
                self._say(f"models are not evaluated: {error}", on=False)
                return None
            except Exception as error:  # no descriptor, no memory, a bug: no model waits for it
                if self._stopped:
                    return None
                reason = f"{type(error).__name__}: {error}"
                self._say(f"an evaluation failed, and is tried again: {reason}", on=False)
            with self._changed:
                self._changed.wait_for(lambda: self._stopped, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return None

    def _say(self, text: str, *, on: bool) -> None:
        """Tell the operator, by log, view and metric; the same thing once."""
        running = self._running
        if text == running.evaluation or self._stopped:
            return
        running.evaluation = text
        running.metrics.evaluation.set(on)
        level = "info" if on else "warning"
        getattr(logs.logger(), level)(text)
        event = Event(time.time(), level, text)
        with suppress(StorageError):  # the log has it, the database need not
            running.writer.submit(lambda tx: tx.log(event))

    def _next(self, done: set[int]) -> int | None:
        """The next model to look at; waits until there is one. None at the end."""
        named = [0, *self._running.charter.charged_steps]
        with self._changed:
            while not self._stopped:
                newest = self._newest
                if newest not in done:
                    return newest
                left = [steps for steps in named if steps < newest and steps not in done]
                if left:
                    return left[-1]
                self._changed.wait()
        return None

    def _score(self, steps: int, evaluate: Evaluate) -> None:
        with self._running.storage.snapshot() as view:
            parameters = self._handed_out(view, steps)
        scored = Scored(steps, *evaluate(parameters))
        self._running.writer.submit(lambda tx: tx.score(scored)).result()
        if steps == self._newest:
            self._running.metrics.scored(scored)
        self._say(_ON, on=True)

    def _handed_out(self, view: Transaction, steps: int) -> Any:
        """The parameters that would be used after so many releases."""
        if steps == 0:
            return learning.from_bytes(view.initial_parameters())
        release = view.release_at(steps - 1)
        if release is None:
            raise StorageError(f"the model after {steps} steps is missing")
        state = learning.unpacked(release.optimizer_state)
        return self._learner.released(learning.from_bytes(release.parameters), state)
