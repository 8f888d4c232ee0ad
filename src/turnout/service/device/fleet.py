"""Many devices for a trial: coroutines in a few processes, a state file for each device.

For trials only: who runs a fleet holds everybody's records and keys. Its state files outlive a
killed process, but not a power cut: one disk cannot sync for hundreds of devices in time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from turnout.core.errors import (
    ParameterError,
    ProtocolError,
    RemoteProtocolError,
    StorageError,
    TurnoutError,
)
from turnout.service.device.device import Device
from turnout.service.device.diary import Diary, StateFile
from turnout.service.device.link import Link, connection
from turnout.service.device.pace import Limits, Pace
from turnout.service.device.trainer import trainer_on_dealt
from turnout.service.wire import Invitation

_TOLD_EVERY_SECONDS = 0.5
_CONNECTIONS = 32
_LIMITS = Limits(longest_backoff_seconds=2.0)
"""A trial may be started before its coordinator is; it should not begin half a minute late."""

Tell = Callable[[Counter[str]], None]
"""Hears now and then how many turns stand how."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What all processes of a fleet share.

    Attributes:
        url: the coordinator's address.
        tokens: one invitation a device.
        data: the data set that the simulation would deal; None takes the plan's.
        folder: where the state files are.
        ca: certificates to trust; None takes the system's.
        cover: send cover traffic.
        allow_http: take an address without encryption.
    """

    url: str
    tokens: tuple[str, ...] = field(repr=False)
    data: str | None
    folder: Path
    ca: Path | None = None
    cover: bool = False
    allow_http: bool = False


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What became of the turns of a fleet's devices.

    Attributes:
        tally: how many turns ended how.
        failures: error text → how many devices ended with it.
        error: the kind of a failure, None where all went well; a `TurnoutError` class.
    """

    tally: Counter[str]
    failures: Counter[str]
    error: type[TurnoutError] | None

    def __add__(self, other: FleetResult) -> FleetResult:
        """Both together."""
        return FleetResult(
            self.tally + other.tally, self.failures + other.failures, self.error or other.error
        )


NOBODY = FleetResult(Counter(), Counter(), None)


def tokens_from(path: Path, devices: int | None) -> tuple[str, ...]:
    """The first tokens of a file, one a line.

    Raises:
        ParameterError: no such file, or fewer tokens than devices.
    """
    try:
        lines = path.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError):
        raise ParameterError("--tokens", str(path), "a file of tokens, one a line") from None
    if not lines:
        raise ParameterError("--tokens", str(path), "a file of tokens, one a line")
    wanted = len(lines) if devices is None else devices
    if not 0 < wanted <= len(lines):
        raise ParameterError("--devices", devices, f"1 to {len(lines)}, the tokens in {path}")
    return tuple(lines[:wanted])


async def run_devices(trial: Trial, tell: Tell) -> FleetResult:
    """All devices of one process, until each is done.

    Raises:
        ParameterError: a token that is none, or two for one device.
        StorageError: another process uses a state file, or it is damaged.
    """
    invitations = [Invitation.decoded(token) for token in trial.tokens]
    trainer_of = trainer_on_dealt(trial.data)
    with ExitStack() as opened:
        diaries = [
            Diary(opened.enter_context(StateFile(_place(trial.folder, each), synced=False)), each)
            for each in invitations
        ]
        async with connection(trial.ca, connections=_CONNECTIONS) as http:
            link = Link(http, trial.url, allow_http=trial.allow_http)
            devices = [
                Device(invitation, diary, link, trainer_of, cover=trial.cover, pace=Pace(_LIMITS))
                for invitation, diary in zip(invitations, diaries, strict=True)
            ]
            return await _all(devices, tell)


def run_fleet(trial: Trial, processes: int, tell: Tell) -> FleetResult:
    """All devices of a trial, dealt to processes.

    Args:
        trial: which.
        processes: at least 1.
        tell: hears the whole fleet's tally.
    """
    parts = [trial.tokens[i::processes] for i in range(min(processes, len(trial.tokens)))]
    if len(parts) == 1:
        return asyncio.run(run_devices(trial, tell))
    context = multiprocessing.get_context("spawn")
    queue: SimpleQueue[tuple[int, Counter[str] | FleetResult]] = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(_part(trial, part), index, queue), daemon=True)
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


def _part(trial: Trial, tokens: Sequence[str]) -> Trial:
    """The same trial for some of its devices."""
    return Trial(
        trial.url,
        tuple(tokens),
        trial.data,
        trial.folder,
        trial.ca,
        trial.cover,
        trial.allow_http,
    )


def _work(trial: Trial, index: int, queue: SimpleQueue) -> None:
    """One process of a fleet."""
    import torch

    torch.set_num_threads(1)
    try:
        result = asyncio.run(run_devices(trial, lambda tally: queue.put((index, tally))))
    except TurnoutError as error:
        result = FleetResult(Counter(), Counter({str(error): len(trial.tokens)}), _kind(error))
    except KeyboardInterrupt:
        return
    queue.put((index, result))


def _collected(queue: SimpleQueue, workers: Sequence, tell: Tell) -> FleetResult:
    """The results of all processes, progress told in between."""
    tallies: dict[int, Counter[str]] = {}
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
            tallies[index] = said.tally
        else:
            tallies[index] = said
        tell(sum(tallies.values(), Counter()))
    return sum(results.values(), NOBODY)


async def _all(devices: Sequence[Device], tell: Tell) -> FleetResult:
    """Every device until she is done; one that fails does not end the others."""

    def tally() -> Counter[str]:
        return sum((device.tally() for device in devices), Counter())

    runs = [asyncio.ensure_future(device.run()) for device in devices]
    try:
        pending: set[asyncio.Future[Counter[str]]] = set(runs)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=_TOLD_EVERY_SECONDS)
            tell(tally())
    finally:
        for run in runs:
            run.cancel()
    errors = [error for run in runs if (error := run.exception()) is not None]
    for error in errors:
        if not isinstance(error, TurnoutError):
            raise error
    failures = Counter(str(error) for error in errors)
    return FleetResult(tally(), failures, _kind(errors[0]) if errors else None)


def _kind(error: BaseException) -> type[TurnoutError]:
    """A kind of error that any process knows."""
    if isinstance(error, StorageError):
        return StorageError
    return RemoteProtocolError if isinstance(error, ProtocolError) else TurnoutError


def _place(folder: Path, invitation: Invitation) -> Path:
    """The state file of one device of a fleet."""
    return folder / f"{invitation.task[:16]}-{invitation.client}.json"
