"""The process: one HTTP server, one conductor, one writer, and how they start and end together.

`serve` runs it. `open_task` opens the storage with the plan's task, a new one or the stored one;
`room` reserves descriptors, some of which connections can never take.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.core.errors import ParameterError
from turnout.plans import Plan, read_plan
from turnout.service.contract.charter import Charter
from turnout.service.coordinator.releases import Learner
from turnout.service.storage.addresses import place_of
from turnout.service.storage.database import Storage
from turnout.service.storage.opening import holds_nothing, open_storage
from turnout.service.web import conductor, heads, logs
from turnout.service.web.conductor import Conductor, Evaluator
from turnout.service.web.heads import HeadFile
from turnout.service.web.operators import password_of
from turnout.service.web.running import Running
from turnout.service.web.settings import Settings

if TYPE_CHECKING:
    from turnout.service.coordinator.new_task import NewTask
    from turnout.service.web.bounded_server import BoundedServer
    from turnout.service.witness.client import Witness

try:
    import resource
except ModuleNotFoundError:  # Windows, which has no such limit
    resource = None

KEPT = 256
"""For the database's files and readers, the head file, data, logs, and connections that end."""

FEWEST = 64
"""Connections without which there is no serving."""


def room(connections: int) -> int:
    """As many connections as are wanted, or fewer where the system does not allow it.

    The process's limit is raised as far as that needs.
    """
    if resource is None:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + KEPT
    if _below(soft, needed):
        soft = needed if not _below(hard, needed) else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if not _below(soft, needed):
        return connections
    if soft - KEPT < FEWEST:
        reason = f"room for {FEWEST} beside {KEPT} other files; `ulimit -n` allows {soft} in all"
        raise ParameterError("connections", connections, reason)
    return soft - KEPT


def _below(limit: int, needed: int) -> bool:
    unlimited = resource is None or limit == resource.RLIM_INFINITY
    return not unlimited and limit < needed


Phase = Callable[[str], AbstractContextManager[object]]
"""Shows that something takes a while."""


def plan_text(path: Path) -> str:
    """A plan's TOML text."""
    text = read_plan(path)
    Plan.from_toml(text, path.name)
    return text


def stored_charter(storage: Storage) -> Charter | None:
    """The charter of the stored task; None where there is none."""
    with storage.snapshot() as view:
        data = view.charter()
    return None if data is None else Charter.from_canonical(data)


def open_task(
    plan: Path, settings: Settings, phase: Phase, *, serving: bool = True
) -> tuple[Storage, Charter]:
    """The open storage and the charter of its task, if it is that of a plan.

    An empty storage gets the plan's task. The task is made before its database: a founding that
    fails, or is ended while the plan is priced, leaves none behind.

    Raises:
        ParameterError: the plan is refused, or the stored task is another plan's or has another
            schedule.
        StorageError: the task was lost, or the storage cannot be opened.
    """
    new = _new_task(plan, settings, phase) if holds_nothing(settings.db) else None
    storage = open_storage(settings.db, serving=serving)
    try:
        charter = stored_charter(storage)
        if charter is not None:
            _require_same(charter, plan, settings)
            return storage, charter
        new = new or _new_task(plan, settings, phase)
        new.create_task(storage)
        return storage, new.charter
    except BaseException:
        storage.close()
        raise


def _new_task(plan: Path, settings: Settings, phase: Phase) -> NewTask:
    """The task of a plan, priced; no task at this address may have been lost."""
    from turnout.service.coordinator.new_task import new_task

    heads.require_no_exported_head(settings.head_file, settings.db)
    text = plan_text(plan)
    with phase("Pricing the plan step by step"):
        return new_task(text, plan.parent, settings.timing, graph=settings.graph)


def _require_same(charter: Charter, plan: Path, settings: Settings) -> None:
    """The stored task is the plan's, with the schedule of the settings."""
    if charter.plan != plan_text(plan):
        place = place_of(settings.db)
        expected = f"the plan of the task in {place}, to the letter; it cannot change"
        raise ParameterError("PLAN", str(plan), expected)
    settings.require_timing(charter.timing)


def head_file(settings: Settings, task: str) -> HeadFile:
    """The file of a task's heads; the log has a warning where one snapshot may hold all of it."""
    path = settings.head_file or heads.default_file(task)
    if settings.witness is None and heads.shares_a_file_system(path, settings.db):
        logs.logger().warning(
            "one snapshot may restore the database and the head file, unnoticed: name a file on "
            "another disk with --head-file, or use --witness",
            head_file=str(path),
        )
    return HeadFile(path, heads.address_of(settings.db), begin=settings.new_head_file)


def witness_of(settings: Settings) -> Witness | None:
    """The witness that the settings name."""
    settings.require_whole_witness()
    if settings.witness is None or settings.witness_key is None:
        return None
    from turnout.service.witness.app import token_of
    from turnout.service.witness.client import Witness, witness_key

    file = settings.witness_token_file
    token = None if file is None else token_of(file, "witness_token_file")
    key = witness_key(settings.witness_key)
    return Witness(settings.witness, key, token=token, ca=settings.witness_ca)


_GRACE_SECONDS = 20
_LEAVE_SECONDS = 5.0
_YOUNG_OBJECTS = 5000
"""Before the youngest are looked through. Looking through all that 9,000 connections are made of
takes 50 ms, and would be done every few seconds; hardly anything here needs it to be freed."""


def serve(
    plan: Path, settings: Settings, phase: Phase, announce: Callable[[Running, str], object]
) -> None:
    """Serve the task of a plan until a signal, or its end where the settings say so."""
    from turnout.service.web.bounded_server import listening_at, url_of

    file, tls = settings.operator_password_file, settings.tls
    password = None if file is None else password_of(file)
    most = room(settings.connections)
    with listening_at(settings.host, settings.port) as listening:
        running = _opened(plan, settings, phase)
        if most < settings.connections:
            reason = "the limit of open files (ulimit -n) is too low for --connections"
            logs.logger().warning("fewer connections than asked for", most=most, reason=reason)
        server = http_server(running, password, settings, tls, most)
        address = url_of(listening, secure=tls is not None)
        process = _Process(running, server, plan, settings, partial(announce, running, address))
        process.run(listening)


def _opened(plan: Path, settings: Settings, phase: Phase) -> Running:
    logs.configure()
    watching = witness_of(settings)
    storage, charter = open_task(plan, settings, phase)
    try:
        return Running(
            storage,
            Learner,
            head_file=head_file(settings, charter.task),
            witness=watching,
            change_witness=settings.change_witness,
        )
    except BaseException:
        storage.close()
        raise


class _Process:
    """Everything that runs, from the first request to the last commit."""

    def __init__(
        self,
        running: Running,
        server: BoundedServer,
        plan: Path,
        settings: Settings,
        announce: Callable[[], object],
    ) -> None:
        self._running, self._server, self._settings = running, server, settings
        self._announce, self._idle = announce, True
        prepare = partial(conductor.evaluation_of_plan, running.charter.plan, plan.parent)
        self._evaluator = Evaluator(running, prepare, Learner(running.charter))
        self._conductor = Conductor(
            running,
            lambda published: self._evaluator.published(published.head.steps),
            settings.wait_for,
        )

    def run(self, listening: socket.socket) -> None:
        """Until it is over; what is queued is committed, and the storage closed."""
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main(listening))
        if not self._idle:
            # It is in the middle of loading PyTorch or evaluating; all else is done.
            sys.stdout.flush()
            os._exit(0)

    async def _main(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._server.stop)
        conducting = asyncio.create_task(self._conduct())
        try:
            await self._server.serve(listening)
        finally:
            conducting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await conducting
            self._idle = await asyncio.to_thread(self._evaluator.stop)
            await asyncio.to_thread(self._running.close)
            logs.logger().info("stopped")

    async def _conduct(self) -> None:
        """The schedule, from the moment on from which requests are taken."""
        await self._server.started.wait()
        self._announce()
        # What is here by now stays: looking through it for garbage would make requests wait.
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS, 20, 50)
        running = self._running
        await running.note("info", f"serving from step {running.engine.step} on")
        self._evaluator.start()
        await self._conductor.run()
        if self._settings.exit_when_finished:
            # Devices that wait for a step are told that there is none any more.
            leave = max(_LEAVE_SECONDS, 2 * running.charter.timing.step_seconds)
            await running.clock.until(running.clock.now() + leave)
            self._server.stop()


def http_server(
    running: Running,
    password: str | None,
    settings: Settings,
    tls: tuple[Path, Path] | None,
    most: int,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> BoundedServer:
    """The HTTP server of a running coordinator, which keeps at most ``most`` connections."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    from turnout.service.web.app import create_app
    from turnout.service.web.bounded_server import BoundedServer
    from turnout.service.web.connections import Connections, proxies

    trusted = settings.forwarded_allow_ips
    app: Any = create_app(running, password=password)
    if trusted is not None:
        app = ProxyHeadersMiddleware(app, trusted)
    return BoundedServer(
        app,
        Connections(most, max(1, most // 2), proxies(trusted), clock),
        tls,
        _GRACE_SECONDS,
    )
