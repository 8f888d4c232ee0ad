"""The process: one uvicorn, one conductor, one writer, and how they end together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.core.errors import ParameterError
from turnout.service.storage.opening import open_storage
from turnout.service.web import descriptors, evaluation, logs
from turnout.service.web.conductor import Conductor
from turnout.service.web.evaluation import Evaluator, plan_learner
from turnout.service.web.opening import Phase, head_file, require_task, witness
from turnout.service.web.operators import password_of
from turnout.service.web.running import Running
from turnout.service.web.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    from turnout.service.web.connections import Entry

_GRACE_SECONDS = 20
_LEAVE_SECONDS = 5.0
_YOUNG_OBJECTS = 5000
"""Before the youngest are looked through. Looking through all that 9,000 connections are made of
takes 50 ms, and would be done every few seconds; hardly anything here needs it to be freed."""


def serve(
    plan: Path, settings: Settings, phase: Phase, announce: Callable[[Running, str], object]
) -> None:
    """Serve the task of a plan until a signal, or its end where the settings say so.

    Args:
        plan: TOML; its task is created in an empty database.
        settings: how.
        phase: shows that something takes a while.
        announce: told when requests are taken, and at which address.

    Raises:
        TurnoutError: something is refused before anything is served.
    """
    file, tls = settings.operator_password_file, settings.tls
    password = None if file is None else password_of(file)
    most = descriptors.room(settings.connections)
    with _listening(settings) as listening:
        running = _opened(plan, settings, phase)
        if most < settings.connections:
            reason = "the limit of open files (ulimit -n) is too low for --connections"
            logs.logger().warning("fewer connections than asked for", most=most, reason=reason)
        server = _server(running, password, settings, tls, most)
        address = _address(listening, secure=tls is not None)
        process = _Process(running, server, plan, settings, partial(announce, running, address))
        process.run([listening])


def _opened(plan: Path, settings: Settings, phase: Phase) -> Running:
    logs.configure()
    watching = witness(settings)
    storage = open_storage(settings.db, serving=True)
    try:
        task = require_task(storage, plan, settings, phase).task
        return Running(
            storage,
            plan_learner,
            head_file=head_file(settings, task),
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
        server: uvicorn.Server,
        plan: Path,
        settings: Settings,
        announce: Callable[[], object],
    ) -> None:
        self._running, self._server, self._settings = running, server, settings
        self._announce, self._idle = announce, True
        prepare = partial(evaluation.of_plan, running.charter.plan, plan.parent)
        self._evaluator = Evaluator(running, prepare, plan_learner(running.charter))
        self._conductor = Conductor(
            running,
            lambda published: self._evaluator.published(published.head.steps),
            settings.wait_for,
        )

    def run(self, sockets: list[socket.socket]) -> None:
        """Until it is over; what is queued is committed, and the storage closed."""
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main(sockets))
        if not self._idle:
            # It is in the middle of loading PyTorch or evaluating; all else is done.
            sys.stdout.flush()
            os._exit(0)

    async def _main(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        conducting = asyncio.create_task(self._conduct())
        try:
            await self._server.serve(sockets)
        finally:
            conducting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await conducting
            self._idle = await asyncio.to_thread(self._evaluator.stop)
            await asyncio.to_thread(self._running.close)
            logs.logger().info("stopped")

    async def _conduct(self) -> None:
        """The schedule, from the moment on from which requests are taken."""
        while not self._server.started:
            await asyncio.sleep(0.005)
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
            self._stop()

    def _stop(self) -> None:
        """Take no more requests; a second signal does not wait for open ones."""
        self._server.force_exit = self._server.should_exit
        self._server.should_exit = True


def _server(
    running: Running,
    password: str | None,
    settings: Settings,
    tls: tuple[Path, Path] | None,
    most: int,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> uvicorn.Server:
    import uvicorn

    from turnout.service.web.accepting import Listener
    from turnout.service.web.app import create_app
    from turnout.service.web.connections import Connections, proxies
    from turnout.service.web.http_connection import HttpConnection

    exempt = proxies(settings.forwarded_allow_ips)
    connections = Connections(most, max(1, most // 2), exempt, clock)

    class Server(uvicorn.Server):
        """A server that leaves signals to the process, and accepts in its own way."""

        table = connections

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            assert sockets is not None
            (listening,) = sockets
            here, loop = listening.getsockname()[:2], asyncio.get_running_loop()

            def make(
                entry: Entry, address: tuple[str, int], drop: Callable[[], object]
            ) -> HttpConnection:
                state = self.server_state
                own = {"config": config, "state": state, "loop": loop, "server": here}
                return HttpConnection(connections, entry, address=address, drop=drop, **own)

            # uvicorn asks of its servers no more than a listener can do.
            taking: Any = Listener(listening, connections, make, config.ssl)
            self.servers = [taking]
            self._sweeping = loop.create_task(connections.keep_sweeping())
            self.started = True

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            self._sweeping.cancel()

    config = uvicorn.Config(
        create_app(running, password=password),
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=settings.forwarded_allow_ips is not None,
        forwarded_allow_ips=settings.forwarded_allow_ips or "",
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=None if tls is None else os.fspath(tls[0]),
        ssl_keyfile=None if tls is None else os.fspath(tls[1]),
    )
    return Server(config)


def _listening(settings: Settings) -> socket.socket:
    """The socket that requests come from; taken first, so that two services never start."""
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        return listening
    except OSError as error:
        reason = f"an address to listen at ({error.strerror or error})"
        raise ParameterError("host:port", f"{settings.host}:{settings.port}", reason) from None


def _address(listening: socket.socket, *, secure: bool) -> str:
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http{'s' if secure else ''}://{name}:{port}"
