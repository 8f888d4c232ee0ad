"""Fleet: many devices on one machine, in a few processes, for a trial of the service.

`run_fleet` runs a `Trial` and returns a `FleetResult`; `Standing` counts participations and
compares the number with its expectation under the scheme; `Watch` notices a coordinator that stops
answering. `turnout fleet` prints the result. Each device is a coroutine with its own state file.

For trials only: the owner of a fleet holds all records, keys and participations, whereas a real
device holds only its own. State files survive a killed process but not a power cut: one disk
cannot sync for hundreds of devices in time.
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
from turnout.service.device.trainer import (
    TrainerOf,
    UpdateFunction,
    trainer_on_dealt,
    trainers_on_split,
)
from turnout.service.device.working import UnfinishedError, Work, Workshop, in_a_process

_AHEAD = "to come"
_REASONS = {
    "late": "their updates arrived late: steps are too short for so many devices in one process; "
    "use more --processes, or longer steps",
    "missed": "their steps ended while the devices were not running, or too busy",
    "unconfirmed": "no receipt arrived for them",
    "passed over": "their steps were closed before the update was sent",
    _AHEAD: "their devices ended early",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """Counts of a fleet's participations and their expectation under the scheme.

    Attributes:
        tally: number of participations by outcome, where pending participations have an outcome of
            their own.
        taken: number of participations that the coordinator counted.
        expected: expected number of participations so far, under the scheme's participation.
        variance: upper bound on the variance of the number of participations so far.
        schedule: number of steps of the run and length of a step in seconds; (0, 0.0) before a
            device has received the charter.
    """

    tally: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    expected: float = 0.0
    variance: float = 0.0
    schedule: tuple[int, float] = (0, 0.0)

    def __add__(self, other: Standing) -> Standing:
        """Sum of two sets of counts; variances add because clients draw independently."""
        return Standing(
            self.tally + other.tally,
            self.taken + other.taken,
            self.expected + other.expected,
            self.variance + other.variance,
            max(self.schedule, other.schedule),
        )

    def warning(self) -> str:
        """Warning if fewer participations were counted than expected; empty text otherwise."""
        if not is_far_below(self.taken, self.expected, self.variance):
            return ""
        counts = f"{self.taken} of {self.expected:.0f} expected turns were taken"
        lost = {what: self.tally[what] for what in _REASONS if self.tally[what]}
        if not lost:
            return f"{counts}; the devices drew {self.tally.total()}"
        most = max(lost, key=lambda what: lost[what])
        return f"{counts}; {lost[most]} {most}: {_REASONS[most]}"


def standing(memories: Sequence[Memory], steps: int, asks_one: bool) -> Standing:
    """Counts of participations of the given devices after the first ``steps`` steps.

    ``asks_one`` is True under the one-client rule. One client of a step is then chosen to send its
    update, and the check-ins of the other clients count as ``taken`` too.
    """
    tally = sum((memory.tally() for memory in memories), Counter[str]())
    taken = tally["accepted"]
    if asks_one:
        taken += tally.pop("passed over", 0)
        tally["not asked"] = taken - tally["accepted"]
        tally = +tally
    if not memories:
        return Standing(tally)
    clients = [memory.client for memory in memories]
    participation, population = participation_from_dict(memories[0].law), memories[0].population
    return Standing(tally, taken, *expected_turns(participation, population, clients, steps))


class Watch:
    """Monitor of the coordinator's answers, shared by all devices of a process.

    Attributes:
        step: the highest step in progress that the coordinator reported.
        finished: whether the coordinator reported that all steps are over.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._heard_at = now()
        self._failed_at: float | None = None
        self.step, self.finished = 0, False

    def heard(self) -> None:
        """Note the time of an answer of the coordinator."""
        self._heard_at, self._failed_at = self._now(), None

    def failed(self) -> None:
        """Note the time of a request without an answer."""
        if self._failed_at is None:
            self._failed_at = self._now()

    def quiet_seconds(self) -> float:
        """Seconds since the coordinator's last answer, with or without later requests."""
        return self._now() - self._heard_at

    def silent_seconds(self) -> float:
        """Seconds since the first failed request after the last answer; 0 without failure."""
        return 0.0 if self._failed_at is None else self._now() - self._failed_at

    def note_status(self, status: bytes) -> None:
        """Note step and phase of a status; the devices check the other contents of the status."""
        with suppress(ValueError, TypeError, KeyError):
            fields = json.loads(status)
            self.step = max(self.step, int(fields["step"]))
            self.finished = fields["phase"] == StepPhase.FINISHED.value


class WatchedLink(Link):
    """Link to the coordinator that reports answers and failures to a `Watch`."""

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
            self._watch.note_status(answer[-1])
        return answer


_TOLD_EVERY_SECONDS = 0.5
_CONNECTIONS = 32
_LOOKED_EVERY_SECONDS = 2.0
"""Interval of status requests; a finished coordinator may stop soon afterwards."""
_STATUS_BYTES = 1 << 14
PATIENCE_SECONDS = 120.0

Tell = Callable[[Standing], None]
"""Receives the counts of participations at intervals."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings of a trial with many devices, shared by all its processes.

    Attributes:
        url: the coordinator's address.
        tokens: the invitations, one per device.
        data: name of the data set that is dealt to the devices, or path of a file that is split by
            the plan's column of clients; None for the data set of the plan.
        folder: folder of the state files.
        ca: file of certificates (PEM) to trust.
        cover: send dummy traffic in the steps that a device did not draw.
        allow_http: accept ``http://`` to another machine.
        patience_seconds: time after which all devices end if the coordinator has answered none of
            them; once the coordinator has reported that all steps are over, all devices end at the
            first request without an answer.
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
        """Waiting times of one device; a device's patience is longer than the trial's patience.

        Pauses are short, since a trial is often started before its coordinator.
        """
        own = max(3600.0, 2 * self.patience_seconds)
        return Limits(longest_backoff_seconds=2.0, patience_seconds=own)


@dataclass(frozen=True, slots=True)
class FleetResult:
    """Outcomes of all devices of a trial.

    Attributes:
        standing: final counts of participations, with their expectation.
        failures: error text → number of devices that ended with it.
        error: error class of one failure, a subclass of `TurnoutError`; None without failures.
        gone: number of devices that ended because the coordinator stopped answering before the
            last step.
        left: number of participations that these devices had not finished.
    """

    standing: Standing
    failures: Counter[str]
    error: type[TurnoutError] | None
    gone: int = 0
    left: int = 0

    def __add__(self, other: FleetResult) -> FleetResult:
        """Sum of the outcomes of two groups of devices."""
        return FleetResult(
            self.standing + other.standing,
            self.failures + other.failures,
            self.error or other.error,
            self.gone + other.gone,
            self.left + other.left,
        )


def tokens_from(path: Path, devices: int | None) -> tuple[str, ...]:
    """First ``devices`` invitation tokens of a file, one per line; all tokens for None.

    Raises:
        ParameterError: the file is missing, or has no tokens or fewer than ``devices``.
    """
    try:
        lines = path.read_text("utf-8-sig").split()
    except (OSError, UnicodeDecodeError):
        raise ParameterError("--tokens", str(path), "a file of tokens, one per line") from None
    if not lines:
        raise ParameterError("--tokens", str(path), "a file of tokens, one per line")
    wanted = len(lines) if devices is None else devices
    if not 0 < wanted <= len(lines):
        raise ParameterError("--devices", devices, f"1 to {len(lines)}, the tokens in {path}")
    return tuple(lines[:wanted])


async def run_devices(trial: Trial, tell: Tell) -> FleetResult:
    """Joint outcome of all devices of one process; each device runs until it ends."""
    invitations = [Invitation.decoded(token) for token in trial.tokens]
    with ExitStack() as opened:
        # Open every state file first: one in use or damaged ends the trial before any request.
        diaries = [
            Diary(opened.enter_context(StateFile(place_in(trial.folder, each), synced=False)), each)
            for each in invitations
        ]
        async with connection(trial.ca, connections=_CONNECTIONS) as http:
            watch = Watch(asyncio.get_running_loop().time)
            # All devices share one link, one trainer and as many workshops as there are processors.
            link = WatchedLink(watch, http, trial.url, allow_http=trial.allow_http)
            group = _DeviceGroup(diaries, link, watch, trial.patience_seconds)
            trainers = _trainers(trial.data)
            workshop = shared(os.cpu_count() or 1)
            devices = [
                TaskDevice(
                    *each,
                    link,
                    group.noting_terms(trainers(each[0].client)),
                    cover=trial.cover,
                    pace=Pace(trial.limits),
                    workshop=workshop,
                    try_out=False,  # building the one trainer of all devices tried it out
                )
                for each in zip(invitations, diaries, strict=True)
            ]
            return await group.run(devices, tell)


def _trainers(data: str | None) -> Callable[[int], TrainerOf]:
    """Function that maps a client's id to the function that builds the client's update function.

    Args:
        data: path of a file that is split into clients, or name of a built-in data set; None for
            the data set of the plan.
    """
    if data is not None and Path(data).exists():
        return trainers_on_split(Path(data))
    dealt = trainer_on_dealt(data)
    return lambda client: dealt


def shared(places: int) -> Workshop:
    """`Workshop` that runs at most ``places`` computations at once, each in a forked process.

    The time that a computation waits for a free place counts towards the computation's time limit.
    Like every `Workshop`, the result raises `UnfinishedError` if the computation fails or takes too
    long.
    """
    free = asyncio.Semaphore(places)

    async def workshop(work: Work, seconds: float) -> NDArray[np.floating]:
        try:
            async with asyncio.timeout(seconds), free:
                return await in_a_process(work, seconds)
        except TimeoutError:
            raise UnfinishedError(
                f"the update took more than {seconds:g} seconds", late=True
            ) from None

    return workshop


def run_fleet(trial: Trial, processes: int, tell: Tell) -> FleetResult:
    """Joint outcome of all devices of a trial, which run in several processes."""
    # Deal the invitations to the processes; a single process is this one.
    shares = min(processes, len(trial.tokens))
    parts = [replace(trial, tokens=trial.tokens[i::processes]) for i in range(shares)]
    if len(parts) == 1:
        return asyncio.run(run_devices(trial, tell))
    # Spawned workers report counts and their result through a queue, and end with this process.
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
    """Run the devices of one process of the trial and queue their result."""
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
    """Sum of the results of all processes; ``tell`` receives interim counts."""
    latest: dict[int, Standing] = {}
    results: dict[int, FleetResult] = {}
    while len(results) < len(workers):
        # Without news, look for a process that ended without a result. The queue is tested again
        # after that, because a process may send its result and end between the two tests.
        if queue.empty():
            alive = [i for i, worker in enumerate(workers) if worker.is_alive()]
            lost = set(range(len(workers))) - set(alive) - set(results)
            if lost and queue.empty():
                raise StorageError(f"{len(lost)} processes of the fleet ended without a result")
            # Wait for news without load on the processor; the wait is shorter if a process ends.
            workers[alive[0]].join(_TOLD_EVERY_SECONDS) if alive else None
            continue
        # The sum of each process's newest counts is the fleet's.
        index, news = queue.get()
        if isinstance(news, FleetResult):
            results[index] = news
            latest[index] = news.standing
        else:
            latest[index] = news
        tell(sum(latest.values(), Standing()))
    return sum(results.values(), FleetResult(Standing(), Counter(), None))


class _DeviceGroup:
    """Devices of one process, with their common monitor of the coordinator."""

    def __init__(
        self, diaries: Sequence[Diary], link: Link, watch: Watch, patience_seconds: float
    ) -> None:
        self._memories = [diary.memory for diary in diaries]
        self._link, self._watch, self._patience = link, watch, patience_seconds
        self._charter: Charter | None = None

    def noting_terms(self, trainer_of: TrainerOf) -> TrainerOf:
        """Builder that calls ``trainer_of`` and stores the charter in this group."""

        def build(charter: Charter) -> UpdateFunction:
            self._charter = charter
            return trainer_of(charter)

        return build

    async def run(self, devices: Sequence[TaskDevice], tell: Tell) -> FleetResult:
        """Outcome of the group's devices, once all have ended or the coordinator is silent.

        The failure of a device ends no other device.
        """
        runs = [asyncio.ensure_future(device.run()) for device in devices]
        looking = asyncio.ensure_future(self._look())
        # Report counts until all have ended, then cancel the rest.
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
        """Whether the coordinator has been silent for longer than the trial allows."""
        silent = self._watch.silent_seconds()
        return silent > (0.0 if self._watch.finished else self._patience)

    async def _look(self) -> None:
        """Request the coordinator's status if no device has done so: all devices may be asleep."""
        while True:
            await asyncio.sleep(_LOOKED_EVERY_SECONDS)
            if self._watch.quiet_seconds() >= _LOOKED_EVERY_SECONDS:
                with suppress(ProtocolError):
                    await self._link.get(STATUS_PATH, _STATUS_BYTES)

    def _stands(self, steps: int) -> Standing:
        """Counts after ``steps`` steps, and the schedule of the run if it is known."""
        charter = self._charter
        counts = standing(self._memories, steps, charter is not None and charter.asks_one)
        if charter is None:
            return counts
        return replace(counts, schedule=(charter.steps, charter.timing.step_seconds))

    def _result(self, runs: Sequence[asyncio.Future[Counter[str]]]) -> FleetResult:
        """Outcomes of all devices of the group; the run of an unfinished device is cancelled."""
        cut = [memory for run, memory in zip(runs, self._memories, strict=True) if run.cancelled()]
        errors = [
            error for run in runs if not run.cancelled() and (error := run.exception()) is not None
        ]
        for error in errors:  # any other error is a defect
            if not isinstance(error, TurnoutError):
                raise error
        # Cancelled devices are a failure only if steps were left when the coordinator fell silent.
        gone = 0 if self._watch.finished else len(cut)
        steps = self._watch.step if gone else sys.maxsize
        ahead = ("to come", "checked in")
        left = sum(memory.tally()[how] for memory in cut for how in ahead) if gone else 0
        kind = _kind(errors[0]) if errors else RemoteProtocolError if gone else None
        failures = Counter(str(error) for error in errors)
        return FleetResult(self._stands(steps), failures, kind, gone, left)


def _kind(error: BaseException) -> type[TurnoutError]:
    """Error class to report: one of three classes that every process can import."""
    if isinstance(error, StorageError):
        return StorageError
    return RemoteProtocolError if isinstance(error, ProtocolError) else TurnoutError
