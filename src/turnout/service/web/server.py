"""The process of `turnout serve`: one HTTP server, one conductor and one writer, from start to end.

`serve` runs the process. `open_task` opens the storage with the plan's task, new or stored; `room`
computes how many connections the limit of open files allows.
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
from turnout.plans.plugins import require_installed
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
"""Descriptors for the database, its readers, the head file, data, logs, and closing connections."""

FEWEST = 64
"""Least number of connections with which the service starts."""


def room(connections: int) -> int:
    """Number of connections to allow: ``connections``, or fewer if the limit of open files is low.

    The process's own limit is raised as far as needed and allowed.

    Args:
        connections: wanted number of connections.

    Raises:
        ParameterError: the limit leaves fewer than ``FEWEST`` connections.
    """
    if resource is None:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + KEPT
    if _is_below(soft, needed):
        soft = needed if not _is_below(hard, needed) else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if not _is_below(soft, needed):
        return connections
    if soft - KEPT < FEWEST:
        reason = f"{FEWEST} or more besides {KEPT} other files; `ulimit -n` allows {soft} in all"
        raise ParameterError("connections", connections, reason)
    return soft - KEPT


def _is_below(limit: int, needed: int) -> bool:
    """Whether a limit of open files is less than the needed number."""
    unlimited = resource is None or limit == resource.RLIM_INFINITY
    return not unlimited and limit < needed


Phase = Callable[[str], AbstractContextManager[object]]
"""Shows a text while a long computation runs."""


def plan_text(path: Path) -> str:
    """TOML text of a plan file, checked to be a valid plan.

    Raises:
        ParameterError: the file is missing or not a valid plan.
        UnsupportedError: the plan names a module that no installed package has.
    """
    text = read_plan(path)
    require_installed(Plan.tables_from_toml(text, path.name))
    Plan.from_toml(text, path.name)
    return text


def stored_charter(storage: Storage) -> Charter | None:
    """Charter of the stored task; None if the storage has no task."""
    with storage.snapshot() as view:
        data = view.charter()
    return None if data is None else Charter.from_canonical(data)


def open_task(
    plan: Path, settings: Settings, phase: Phase, *, serving: bool = True
) -> tuple[Storage, Charter]:
    """Opened storage and charter of the task, which must be the given plan's task.

    An empty storage gets the plan's task. The task is computed before its database is created, so
    an invalid plan or an interruption leaves no database.

    Args:
        plan: file of the plan.
        settings: settings of the service.
        phase: shows the computation of ε, which takes seconds.
        serving: open the storage as the coordinator that serves it.

    Raises:
        ParameterError: the plan is invalid, or the stored task has another plan or schedule.
        StorageError: the database of a known task is empty, or cannot be opened.
    """
    # A new task is computed before its database exists.
    new = _new_task(plan, settings, phase) if holds_nothing(settings.db) else None
    storage = open_storage(settings.db, serving=serving)
    # A stored task must be the plan's; an empty storage gets the new task.
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
    """New task of a plan; refused if a head file shows that the task's database was lost."""
    from turnout.service.coordinator.new_task import new_task

    heads.require_no_exported_head(settings.head_file, settings.db)
    text = plan_text(plan)
    with phase("Computing ε after each step of the plan"):
        return new_task(text, plan.parent, settings.timing, graph=settings.graph)


def _require_same(charter: Charter, plan: Path, settings: Settings) -> None:
    """Refuse a stored task whose plan or schedule differs from the plan file and the settings."""
    if charter.plan != plan_text(plan):
        place = place_of(settings.db)
        expected = f"the plan of the task in {place}, to the letter, since it cannot change"
        raise ParameterError("PLAN", str(plan), expected)
    settings.require_timing(charter.timing)


def head_file(settings: Settings, task: str) -> HeadFile:
    """Head file of a task; a warning is logged if one backup may contain file and database."""
    path = settings.head_file or heads.default_file(task)
    if settings.witness is None and heads.shares_a_file_system(path, settings.db):
        logs.logger().warning(
            "one snapshot may restore both the database and the head file, unnoticed: name a file "
            "on another disk with --head-file, or use --witness",
            head_file=str(path),
        )
    return HeadFile(path, heads.address_of(settings.db), begin=settings.new_head_file)


def witness_of(settings: Settings) -> Witness | None:
    """Client of the witness that the settings name; None without a witness."""
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
"""Number of new objects before a garbage collection of the youngest ones.

A collection of all objects of 9,000 connections takes 50 ms, and would happen every few seconds;
almost no object of this process needs a collection to be freed.
"""


def serve(
    plan: Path, settings: Settings, phase: Phase, announce: Callable[[Running, str], object]
) -> None:
    """Serve a plan's task until a signal; with ``exit_when_finished`` at most until its end.

    Args:
        plan: file of the plan.
        settings: settings of the service.
        phase: shows a long computation at the start.
        announce: receives the running task and the URL once connections are accepted.

    Raises:
        ParameterError: the plan or a setting is invalid.
        StorageError: for the same reasons as in `open_task` and `Running`.
    """
    from turnout.service.web.bounded_server import listening_at, url_of

    # Password, certificate and number of connections, before the storage is opened.
    file, tls = settings.operator_password_file, settings.tls
    password = None if file is None else password_of(file)
    most = room(settings.connections)
    # The task is opened only if its address is free.
    with listening_at(settings.host, settings.port) as listening:
        running = _open_running(plan, settings, phase)
        if most < settings.connections:
            reason = "the limit of open files (ulimit -n) is too low for --connections"
            logs.logger().warning(
                "fewer connections than in the settings", most=most, reason=reason
            )
        # One process with server, schedule and writer.
        server = http_server(running, password, settings, tls, most)
        address = url_of(listening, secure=tls is not None)
        process = _Process(running, server, plan, settings, partial(announce, running, address))
        process.run(listening)


def _open_running(plan: Path, settings: Settings, phase: Phase) -> Running:
    """Running task of a plan, with storage, head file and witness opened and checked."""
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
    """Server process: HTTP server, schedule and writer of one task."""

    def __init__(
        self,
        running: Running,
        server: BoundedServer,
        plan: Path,
        settings: Settings,
        announce: Callable[[], object],
    ) -> None:
        # The task, its server, and the caller to notify.
        self._running, self._server, self._settings = running, server, settings
        self._announce, self._idle = announce, True
        # The evaluator loads the plan's data in its thread.
        prepare = partial(conductor.evaluation_of_plan, running.charter.plan, plan.parent)
        self._evaluator = Evaluator(running, prepare, Learner(running.charter))
        # The schedule notifies the evaluator of each published model.
        self._conductor = Conductor(
            running,
            lambda published: self._evaluator.published(published.head.steps),
            settings.wait_for,
        )

    def run(self, listening: socket.socket) -> None:
        """Serve until the end; then commit the waiting jobs and close the storage."""
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main(listening))
        if not self._idle:
            # The evaluator still loads PyTorch or evaluates; all other parts have ended.
            sys.stdout.flush()
            os._exit(0)

    async def _main(self, listening: socket.socket) -> None:
        """Serve requests and run the schedule until a signal arrives, then end them in order."""
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
        """Run the schedule as soon as requests are accepted."""
        await self._server.started.wait()
        self._announce()
        # The objects of the start are permanent: no garbage collection, which would delay requests.
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS, 20, 50)
        running = self._running
        await running.note("info", f"serving from step {running.engine.step} on")
        self._evaluator.start()
        await self._conductor.run()
        if self._settings.exit_when_finished:
            # Devices that wait for a step learn from the status that there is none.
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
    """HTTP server that serves a running task.

    Args:
        running: the task.
        password: password of the operator; None for no operator.
        settings: settings of the service.
        tls: files of certificate and key; None for HTTP.
        most: largest number of connections.
        clock: function that returns the time in seconds, for deadlines of connections.
    """
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    from turnout.service.web.app import create_app
    from turnout.service.web.bounded_server import BoundedServer
    from turnout.service.web.connections import Connections, proxies

    # Trusted proxies forward the addresses of their clients.
    trusted = settings.forwarded_allow_ips
    app: Any = create_app(running, password=password)
    if trusted is not None:
        app = ProxyHeadersMiddleware(app, trusted)
    # One address may have half of all connections, unless it is a trusted proxy's.
    return BoundedServer(
        app,
        Connections(most, max(1, most // 2), proxies(trusted), clock),
        tls,
        _GRACE_SECONDS,
    )
