"""A coordinator that is killed again and again while devices talk to it.

Run as a program it is the *zygote*: it has imported everything, and forks a real
``turnout serve`` for each line that it reads, so that a start takes a tenth of a second.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from turnout.protocol import Lattice
from turnout.service.signatures import SigningKey
from turnout.service.wire import (
    Invitation,
    SignedRequest,
    enrolments_path,
    model_path,
    updates_path,
)


def zygote() -> None:
    """Fork a server for each line of arguments, as JSON; say its process id."""
    import turnout.service.web.app
    import turnout.training.building  # PyTorch, which each server would load by itself
    from turnout.cli.main import main

    assert turnout.service.web.app
    assert turnout.training.building
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            os.dup2(2, 1)
            main(json.loads(line))
            os._exit(0)
        print(child, flush=True)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


class Server:
    """A server that can be started and killed."""

    def __init__(self, arguments: list[str], port: int, log: Path, environment: dict[str, str]):
        self._arguments, self.port = json.dumps(arguments), port
        with log.open("ab") as output:
            self._zygote = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=environment,
            )
        self._say()

    def _say(self) -> str:
        assert self._zygote.stdout
        return self._zygote.stdout.readline().decode().strip()

    def start(self) -> None:
        """Start it; it may take a moment until it answers."""
        assert self._zygote.stdin
        self._zygote.stdin.write(self._arguments.encode() + b"\n")
        self._zygote.stdin.flush()
        self._process = int(self._say())

    def kill(self) -> None:
        """End it as the power would."""
        os.kill(self._process, signal.SIGKILL)

    def answers(self, seconds: float) -> bool:
        """Wait until it answers."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
            with closing(connection), suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return True
            time.sleep(0.002)
        return False

    def close(self) -> None:
        """End the zygote and what it started."""
        with suppress(OSError, AttributeError):
            self.kill()
        self._zygote.kill()
        self._zygote.communicate()


@dataclass
class Diary:
    """What clients saw: which check-ins were acknowledged, which bytes were published."""

    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)
    published: dict[int, set[str]] = field(default_factory=dict)
    found_stored: int = 0
    conflicts: int = 0
    errors: list[str] = field(default_factory=list)


class Crowd(threading.Thread):
    """Clients who send one update after the other, and again what was not acknowledged."""

    def __init__(
        self, invitations: list[Invitation], lattice: Lattice, window: int, port: int, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self.diary, self.over = Diary(), threading.Event()
        self._invitations, self._lattice, self._window = invitations, lattice, window
        self._port, self._dice = port, random.Random(seed)
        self._keys = {i.client: SigningKey.new() for i in invitations}
        self._enrolled: set[int] = set()
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        """Until it is told to stop."""
        while not self.over.is_set():
            try:
                self._once()
            except (OSError, http.client.HTTPException):
                self._hang_up()
                time.sleep(0.003)
            except Exception as error:
                self.diary.errors.append(repr(error))
                break
        self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _asked(self, method: str, path: str, body: bytes = b"", headers=None):
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        self._connection.request(method, path, body, headers or {})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _signed(self, client: int, path: str, body: bytes):
        task = self._invitations[0].task
        request = SignedRequest(task, "POST", path, client, os.urandom(16), "", body)
        signature = self._keys[client].sign(request.canonical())
        return self._asked("POST", path, body, request.headers(signature))

    def _once(self) -> None:
        status, data = self._asked("GET", "/v1/status")
        if status != 200:
            return
        now = json.loads(data)
        self._look(now["model_steps"])
        invitation = self._dice.choice(self._invitations)
        client, step = invitation.client, now["step"]
        if client not in self._enrolled:
            self._enrol(invitation)
        values = [self._dice.randrange(-20, 21) for _ in range(8)]
        update = np.zeros(self._lattice.dimension, np.int32)
        update[:8] = values
        self._send(client, step, self._lattice.encode(update))

    def _enrol(self, invitation: Invitation) -> None:
        fields = {
            "client": invitation.client,
            "secret": invitation.secret.hex(),
            "public_key": self._keys[invitation.client].public.hex(),
        }
        body = json.dumps(fields).encode()
        status, data = self._signed(invitation.client, enrolments_path(), body)
        if status != 200:
            raise AssertionError(f"enrolment: {status} {data!r}")
        self._enrolled.add(invitation.client)

    def _send(self, client: int, step: int, body: bytes) -> None:
        """The same bytes until there is an answer or the patience is over."""
        digest = hashlib.sha256(body).hexdigest()
        for attempt in range(40):
            try:
                status, data = self._signed(client, updates_path(step), body)
            except (OSError, http.client.HTTPException):
                self._hang_up()
                time.sleep(0.05)
                continue
            if status == 200:
                receipt = json.loads(data)
                assert receipt["digest"] == digest
                known = self.diary.acknowledged.setdefault((client, step), digest)
                assert known == digest
                self.diary.found_stored += attempt > 0
            elif status == 409:
                self.diary.conflicts += 1
            elif status >= 500 and status != 503:
                self.diary.errors.append(f"{status} {data!r}")
            return

    def _look(self, steps: int) -> None:
        status, data = self._asked("GET", model_path(steps))
        if status == 200:
            self.diary.published.setdefault(steps, set()).add(hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    zygote()
