"""Many devices for a trial: coroutines in a few processes, a state file for each device.

`run_fleet` runs them; `Watch` compares their participations with what the scheme expects. That is
for trials only: the owner of a fleet holds all records and keys, where a real device knows its own
turns alone. State files outlive a killed process, but not a power cut: one disk cannot sync for
hundreds of devices in time.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import (
    ParameterError,
    ProtocolError,
    RemoteProtocolError,
    StorageError,
    TurnoutError,
)
from turnout.participation.drawing import expected_turns, is_far_below
from turnout.schemes.codec import participation_from_dict
from turnout.service.contract.charter import Charter
from turnout.service.contract.wire import STATUS_PATH, Invitation, StepPhase
from turnout.service.device.device import TaskDevice
from turnout.service.device.link import Link, UnreachableError, connection
from turnout.service.device.memory import Diary, Memory, StateFile, place_in
from turnout.service.device.pace import Limits, Pace
from turnout.service.device.trainer import TrainerOf, UpdateFunction, trainer_on_dealt
from turnout.service.device.working import UnfinishedError, Work, Workshop, in_a_process

_AHEAD = "to come"
_REASONS = {
    "late": "they came late: steps are too short for so many devices in one process; more "
    "--processes, or longer steps",
    "missed": "their steps went by: the devices were not there, or too busy to look",
    "unconfirmed": "no receipt came back for them",
    "passed over": "their steps were closed before the update was sent",
    _AHEAD: "their devices ended early",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """The states of the turns of some devices.

    Attributes:
        tally: how many turns ended how, or are to come.
        taken: those in which a device came and was taken.
        expected, variance: turns that the law lets expect by now, and its bound.
    """

    tally: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Standing) -> Standing:
        """Both together; clients draw independently."""
        return Standing(
            self.tally + other.tally,
            self.taken + other.taken,
            self.expected + other.expected,
            self.variance + other.variance,
        )

    def warning(self) -> str:
        """The warnings of counts far below their expectation; empty where there are none."""
        if not is_far_below(self.taken, self.expected, self.variance):
            return ""
        said = f"{self.taken} of {self.expected:.0f} expected turns were taken"
        lost = {what: self.tally[what] for what in _REASONS if self.tally[what]}
        if not lost:
            return f"{said}; the devices drew {self.tally.total()}"
        most = max(lost, key=lambda what: lost[what])
        return f"{said}; {lost[most]} {most}: {_REASONS[most]}"


def standing(memories: Sequence[Memory], steps: int, asks_one: bool) -> Standing:
    """The states of the turns of devices after that many steps."""
    tally = sum((memory.tally() for memory in memories), Counter[str]())
    taken = tally["accepted"]
    if asks_one:
        taken += tally.pop("passed over", 0)
        tally["not asked"] = taken - tally["accepted"]
        tally = +tally
    if not memories:
        return Standing(tally)
    clients = [memory.client for memory in memories]
    law, population = participation_from_dict(memories[0].law), memories[0].population
    return Standing(tally, taken, *expected_turns(law, population, clients, steps))


class Watch:
    """Whether the coordinator answers, as all devices of a process notice it together.

    Attributes:
        step: the highest step that it said is in progress.
        finished: whether it said that all steps are over.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard_at = now()
        self._failed_at: float | None = None
        self.step, self.finished = 0, False

    def heard(self) -> None:
        """An answer came."""
        self._heard_at, self._failed_at = self._now(), None

    def failed(self) -> None:
        """No answer came."""
        if self._failed_at is None:
            self._failed_at = self._now()

    def quiet_seconds(self) -> float:
        """Since the last answer; nobody may have asked."""
        return self._now() - self._heard_at

    def silent_seconds(self) -> float:
        """Since the first question without an answer after the last answer; 0 without one."""
        return 0.0 if self._failed_at is None else self._now() - self._failed_at

    def told(self, status: bytes) -> None:
        """A status came; devices read it strictly, here a word in it is enough."""
        with suppress(ValueError, TypeError, KeyError):
            said = json.loads(status)
            self.step = max(self.step, int(said["step"]))
            self.finished = said["phase"] == StepPhase.FINISHED.value


class WatchedLink(Link):
    """A link that many devices share, and that notices whether anything comes back."""

    def __init__(self, watch: Watch, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._watch = watch

    async def _exchange(self, *arguments: Any, **named: Any) -> Any:
        try:
            answer = await super()._exchange(*arguments, **named)
        except UnreachableError:
            self._watch.failed()
            raise
        self._watch.heard()
        if STATUS_PATH in arguments:
            self._watch.told(answer[-1])
        return answer


_TOLD_EVERY_SECONDS = 0.5
_CONNECTIONS = 32
_LOOKED_EVERY_SECONDS = 2.0
"""So often somebody asks for the status: a coordinator that finished may be gone soon."""
_STATUS_BYTES = 1 << 14
PATIENCE_SECONDS = 120.0

Tell = Callable[[Standing], None]
"""Hears now and then how the turns stand."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that all processes of a fleet share.

    Attributes:
        data: the data set that the simulation would deal; None takes the plan's.
        patience_seconds: all devices end once the coordinator gave none of them any answer for
            so long. Where it said before that all steps are over, they end at once.
    """

    url: str
    tokens: tuple[str, ...] = field(repr=False)
    data: str | None
    folder: Path
    ca: Path | None = None
    cover: bool = False
    allow_http: bool = False
    patience_seconds: float = PATIENCE_SECONDS

    def __post_init__(self) -> None:
        checks.positive(patience_seconds=self.patience_seconds)

    @property
    def limits(self) -> Limits:
        """The waiting times of a device; the fleet's patience ends before the device's own.

        A trial may be started before its coordinator is; it should not begin half a minute late.
        """
        own = max(3600.0, 2 * self.patience_seconds)
        return Limits(longest_backoff_seconds=2.0, patience_seconds=own)


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The outcomes of the turns of a fleet's devices.

    Attributes:
        standing: how the turns stand in the end, beside what the law lets expect.
        failures: error text → how many devices ended with it.
        error: the kind of a failure, None where all went well; a `TurnoutError` class.
        gone: devices that ended because the coordinator was gone before all steps were over.
        left: turns that those had ahead.
    """

    standing: Standing
    failures: Counter[str]
    error: type[TurnoutError] | None
    gone: int = 0
    left: int = 0

    def __add__(self, other: FleetResult) -> FleetResult:
        """Both together."""
        return FleetResult(
            self.standing + other.standing,
            self.failures + other.failures,
            self.error or other.error,
            self.gone + other.gone,
            self.left + other.left,
        )


def tokens_from(path: Path, devices: int | None) -> tuple[str, ...]:
    """The first tokens of a file, one a line."""
    try:
        lines = path.read_text("utf-8-sig").split()
    except (OSError, UnicodeDecodeError):
        raise ParameterError("--tokens", str(path), "a file of tokens, one a line") from None
    if not lines:
        raise ParameterError("--tokens", str(path), "a file of tokens, one a line")
    wanted = len(lines) if devices is None else devices
    if not 0 < wanted <= len(lines):
        raise ParameterError("--devices", devices, f"1 to {len(lines)}, the tokens in {path}")
    return tuple(lines[:wanted])


async def run_devices(trial: Trial, tell: Tell) -> FleetResult:
    """All devices of one process, until each is done."""
    invitations = [Invitation.decoded(token) for token in trial.tokens]
    with ExitStack() as opened:
        diaries = [
            Diary(opened.enter_context(StateFile(place_in(trial.folder, each), synced=False)), each)
            for each in invitations
        ]
        async with connection(trial.ca, connections=_CONNECTIONS) as http:
            watch = Watch(asyncio.get_running_loop().time)
            link = WatchedLink(watch, http, trial.url, allow_http=trial.allow_http)
            crowd = _Crowd(diaries, link, watch, trial.patience_seconds)
            trainer_of = crowd.told_by(trainer_on_dealt(trial.data))
            workshop = shared(os.cpu_count() or 1)
            devices = [
                TaskDevice(
                    *each,
                    link,
                    trainer_of,
                    cover=trial.cover,
                    pace=Pace(trial.limits),
                    workshop=workshop,
                    try_out=False,  # of one trainer for all, which was
                )
                for each in zip(invitations, diaries, strict=True)
            ]
            return await crowd.run(devices, tell)


def shared(places: int) -> Workshop:
    """A workshop with so many places; who waits for one has less time to compute."""
    free = asyncio.Semaphore(places)

    async def workshop(work: Work, seconds: float) -> NDArray[np.floating]:
        try:
            async with asyncio.timeout(seconds), free:
                return await in_a_process(work, seconds)
        except TimeoutError:
            raise UnfinishedError(f"it took more than {seconds:g} seconds", late=True) from None

    return workshop


def run_fleet(trial: Trial, processes: int, tell: Tell) -> FleetResult:
    """All devices of a trial, dealt to processes."""
    shares = min(processes, len(trial.tokens))
    parts = [replace(trial, tokens=trial.tokens[i::processes]) for i in range(shares)]
    if len(parts) == 1:
        return asyncio.run(run_devices(trial, tell))
    context = multiprocessing.get_context("spawn")
    queue: SimpleQueue[tuple[int, Standing | FleetResult]] = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(part, index, queue), daemon=True)
        for index, part in enumerate(parts)
    ]
    for worker in workers:
        worker.start()
    try:
        return _collected(queue, workers, tell)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(trial: Trial, index: int, queue: SimpleQueue) -> None:
    """One process of a fleet."""
    import torch

    torch.set_num_threads(1)
    try:
        result = asyncio.run(run_devices(trial, lambda stands: queue.put((index, stands))))
    except TurnoutError as error:
        failures = Counter({str(error): len(trial.tokens)})
        result = FleetResult(Standing(), failures, _kind(error))
    except KeyboardInterrupt:
        return
    queue.put((index, result))


def _collected(queue: SimpleQueue, workers: Sequence, tell: Tell) -> FleetResult:
    """The results of all processes, progress told in between."""
    latest: dict[int, Standing] = {}
    results: dict[int, FleetResult] = {}
    while len(results) < len(workers):
        if queue.empty():
            alive = [i for i, worker in enumerate(workers) if worker.is_alive()]
            lost = set(range(len(workers))) - set(alive) - set(results)
            if lost and queue.empty():
                raise StorageError(f"{len(lost)} process(es) of the fleet ended early")
            workers[alive[0]].join(_TOLD_EVERY_SECONDS) if alive else None
            continue
        index, said = queue.get()
        if isinstance(said, FleetResult):
            results[index] = said
            latest[index] = said.standing
        else:
            latest[index] = said
        tell(sum(latest.values(), Standing()))
    return sum(results.values(), FleetResult(Standing(), Counter(), None))


class _Crowd:
    """The devices of one process, and what they notice together."""

    def __init__(
        self, diaries: Sequence[Diary], link: Link, watch: Watch, patience_seconds: float
    ) -> None:
        self._memories = [diary.memory for diary in diaries]
        self._link, self._watch, self._patience = link, watch, patience_seconds
        self._asks_one = False

    def told_by(self, trainer_of: TrainerOf) -> TrainerOf:
        """The same trainers; whoever asks for one knows the terms."""

        def told(charter: Charter) -> UpdateFunction:
            self._asks_one = charter.asks_one
            return trainer_of(charter)

        return told

    async def run(self, devices: Sequence[TaskDevice], tell: Tell) -> FleetResult:
        """Every device until it is done, or nobody answers; one that fails ends no other."""
        runs = [asyncio.ensure_future(device.run()) for device in devices]
        looking = asyncio.ensure_future(self._look())
        try:
            pending: set[asyncio.Future[Counter[str]]] = set(runs)
            while pending and not self._is_over():
                _, pending = await asyncio.wait(pending, timeout=_TOLD_EVERY_SECONDS)
                tell(self._stands(self._watch.step))
        finally:
            for task in (looking, *runs):
                task.cancel()
            await asyncio.gather(looking, *runs, return_exceptions=True)
        return self._result(runs)

    def _is_over(self) -> bool:
        """Whether nobody will answer any more."""
        silent = self._watch.silent_seconds()
        return silent > (0.0 if self._watch.finished else self._patience)

    async def _look(self) -> None:
        """Ask for the status while no device does: all of them may sleep until a later step."""
        while True:
            await asyncio.sleep(_LOOKED_EVERY_SECONDS)
            if self._watch.quiet_seconds() >= _LOOKED_EVERY_SECONDS:
                with suppress(ProtocolError):
                    await self._link.get(STATUS_PATH, _STATUS_BYTES)

    def _stands(self, steps: int) -> Standing:
        return standing(self._memories, steps, self._asks_one)

    def _result(self, runs: Sequence[asyncio.Future[Counter[str]]]) -> FleetResult:
        """The outcomes of all runs; those that were cut short are cancelled."""
        cut = [memory for run, memory in zip(runs, self._memories, strict=True) if run.cancelled()]
        errors = [
            error for run in runs if not run.cancelled() and (error := run.exception()) is not None
        ]
        for error in errors:
            if not isinstance(error, TurnoutError):
                raise error
        gone = 0 if self._watch.finished else len(cut)
        steps = self._watch.step if gone else sys.maxsize
        ahead = ("to come", "checked in")
        left = sum(memory.tally()[how] for memory in cut for how in ahead) if gone else 0
        kind = _kind(errors[0]) if errors else RemoteProtocolError if gone else None
        failures = Counter(str(error) for error in errors)
        return FleetResult(self._stands(steps), failures, kind, gone, left)


def _kind(error: BaseException) -> type[TurnoutError]:
    """A kind of error that any process knows."""
    if isinstance(error, StorageError):
        return StorageError
    return RemoteProtocolError if isinstance(error, ProtocolError) else TurnoutError
