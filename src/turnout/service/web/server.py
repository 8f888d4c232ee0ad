"""The process: one server, one conductor, one writer, and how they end together."""

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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.service.learner import Learner
from turnout.service.web import descriptors, evaluation, logs
from turnout.service.web.conductor import Conductor
from turnout.service.web.evaluation import Evaluator
from turnout.service.web.opening import Phase, head_file, open_task, witness
from turnout.service.web.operators import password_of
from turnout.service.web.running import Running
from turnout.service.web.settings import Settings

if TYPE_CHECKING:
    from turnout.service.web.bounded_server import BoundedServer

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
    most = descriptors.room(settings.connections)
    with listening_at(settings.host, settings.port) as listening:
        running = _opened(plan, settings, phase)
        if most < settings.connections:
            reason = "the limit of open files (ulimit -n) is too low for --connections"
            logs.logger().warning("fewer connections than asked for", most=most, reason=reason)
        server = _server(running, password, settings, tls, most)
        address = url_of(listening, secure=tls is not None)
        process = _Process(running, server, plan, settings, partial(announce, running, address))
        process.run(listening)


def _opened(plan: Path, settings: Settings, phase: Phase) -> Running:
    logs.configure()
    watching = witness(settings)
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
        prepare = partial(evaluation.of_plan, running.charter.plan, plan.parent)
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


def _server(
    running: Running,
    password: str | None,
    settings: Settings,
    tls: tuple[Path, Path] | None,
    most: int,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> BoundedServer:
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
