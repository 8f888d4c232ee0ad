"""How good published models are, worked out beside the service.

A thread of its own looks at the newest published model first, then at those before it that the
charter's curve names. It loads PyTorch and the plan's data once the service is ready; a step never
waits for it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnout.core.errors import StorageError, TurnoutError
from turnout.plans import Plan
from turnout.service import learner as learning
from turnout.service.charter import Charter
from turnout.service.learner import Learner, PlanLearner
from turnout.service.storage.interface import Scored, Transaction
from turnout.service.web import logs
from turnout.service.web.running import Running

Evaluate = Callable[[Any], tuple[float, float]]
"""Accuracy and loss of parameters."""


def plan_learner(charter: Charter) -> Learner:
    """The learner of a charter's plan."""
    return PlanLearner(Plan.from_toml(charter.plan), charter.steps // charter.minibatch)


def of_plan(text: str, folder: Path) -> Evaluate:
    """Evaluation on the plan's held-out data; loads PyTorch.

    Args:
        text: the plan as TOML.
        folder: what a trace's path is relative to.
    """
    from turnout.training.building import build_task
    from turnout.training.workload import gather

    task = build_task(gather(Plan.from_toml(text), folder))

    def evaluate(parameters: Any) -> tuple[float, float]:
        evaluation = task.evaluate(parameters)
        return float(evaluation.accuracy), float(evaluation.loss)

    return evaluate


class Evaluator:
    """Evaluates published models in a thread and stores what it found.

    Args:
        running: the task.
        prepare: loads what is needed; called in the thread.
        learner: which of its iterates a release hands out.
    """

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
        try:
            evaluate = self._prepare()
            gc.freeze()  # PyTorch's modules; looking through them would make requests wait
            with self._running.storage.snapshot() as view:
                done = {scored.steps for scored in view.scores()}
            while (steps := self._next(done)) is not None:
                self._score(steps, evaluate)
                done.add(steps)
        except (TurnoutError, ImportError, OSError) as error:
            if not self._stopped:
                logs.logger().warning("models are not evaluated", reason=str(error))

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

    def _handed_out(self, view: Transaction, steps: int) -> Any:
        """The parameters that would be used after so many releases."""
        if steps == 0:
            return learning.from_bytes(view.initial_parameters())
        release = view.release_at(steps - 1)
        if release is None:
            raise StorageError(f"the model after {steps} steps is missing")
        state = learning.unpacked(release.optimizer_state)
        return self._learner.released(learning.from_bytes(release.parameters), state)
