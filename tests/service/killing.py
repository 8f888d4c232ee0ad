"""A coordinator and a witness that are killed repeatedly while devices send updates.

The number of counted updates is read from the models: each client has its own coordinate, which the
test's noise leaves unchanged. The noise writes a tag into other coordinates, so that a second draw
of a step gives a different model.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
from forked import HANGS_SECONDS, Forked
from processes import turnout

from turnout.protocol.lattice import Lattice
from turnout.service.contract.ledger import SigningKey
from turnout.service.contract.wire import (
    ENROLMENT_FORMAT,
    UPDATE_FORMAT,
    Invitation,
    SignedRequest,
    enrolments_path,
    model_path,
    updates_path,
)

MARK, TAGS, HIGHEST_TAG = 16, 16, 15
"""Value of a client's coordinate; number of tags of a draw, and their largest value."""
DIVISOR = 40.0
"""Divisor of sums in the plan; with learning rate 1 it determines the model's change."""


def tagging_noise(deviation: float, dimension: int) -> np.ndarray:
    """Noise of zeros, with 64 fresh random bits in the last coordinates."""
    drawn = np.zeros(dimension, np.int64)
    drawn[-TAGS:] = np.frombuffer(os.urandom(TAGS), np.uint8) & HIGHEST_TAG
    return drawn


def with_tagging_noise() -> None:
    """Replace the system's noise by the tagging noise in the coordinator's process."""
    from turnout.service.web.running import Running

    Running.__init__.__kwdefaults__["noise"] = tagging_noise


def counted(before: bytes, after: bytes, lattice: Lattice) -> np.ndarray:
    """Noisy sum that changed one model into the next, in integer units of the lattice."""
    first, second = (np.frombuffer(model, "<f4").astype(np.float64) for model in (before, after))
    moved = (first - second) * (DIVISOR / lattice.step)
    whole = np.rint(moved)
    assert np.abs(moved - whole).max() < 0.1  # otherwise counts could not be read from the model
    return whole.astype(np.int64)


class Server:
    """Server process that can be started and killed."""

    def __init__(
        self, arguments: list[object], log: Path, prepare: Callable[[], object] | None = None
    ) -> None:
        self._arguments, self._log, self._prepare = arguments, log, prepare
        self._process: Forked | None = None
        self._killed = False

    @property
    def runs(self) -> bool:
        """Whether the server process is running."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server unless it is running; answering may take a moment."""
        if self._process is None or self._killed:
            self._process = turnout(*self._arguments, log=self._log, prepare=self._prepare)
            self._killed = False
        self.require_running()

    def require_running(self) -> None:
        """Fail if the server has ended without being killed."""
        assert self.runs, self._log.read_text()[-3000:]

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._killed = self._process.wait() == -signal.SIGKILL


def answers(port: int) -> bool:
    """Whether a coordinator accepts requests."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_SECONDS)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False


@dataclass
class Diary:
    """Updates that clients sent and got acknowledged, and models and ledger heads that they saw."""

    sent: set[tuple[int, int]] = field(default_factory=set)
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)
    published: dict[int, set[str]] = field(default_factory=dict)
    heads: dict[int, set[str]] = field(default_factory=dict)
    step: int = 0
    found_stored: int = 0
    conflicts: int = 0
    errors: list[str] = field(default_factory=list)


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, without a time limit."""
    deadline = time.monotonic() + HANGS_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.003)


class Crowd(threading.Thread):
    """Clients that send one update after another and resend updates without an acknowledgement."""

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
        """Send updates until the test stops the clients."""
        while not self.over.is_set():
            try:
                self._once()
            except (OSError, http.client.HTTPException):
                self._hang_up()
                time.sleep(0.01)
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
            self._connection = http.client.HTTPConnection(
                "127.0.0.1", self._port, timeout=HANGS_SECONDS
            )
        self._connection.request(method, path, body, headers or {})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _signed(self, client: int, path: str, body: bytes):
        task = self._invitations[0].task
        told = ENROLMENT_FORMAT if path == enrolments_path() else UPDATE_FORMAT
        request = SignedRequest.posting(task, path, client, os.urandom(16), body, format=told)
        signature = self._keys[client].sign(request.canonical())
        return self._asked("POST", path, body, request.headers(signature))

    def _once(self) -> None:
        status, data = self._asked("GET", "/v1/status")
        if status != 200:
            return
        now = json.loads(data)
        self.diary.step = now["step"]
        self.diary.heads.setdefault(now["model_steps"], set()).add(now["head"].split(":")[1])
        self._look(now["model_steps"])
        invitation = self._dice.choice(self._invitations)
        client, step = invitation.client, now["step"]
        if client not in self._enrolled:
            self._enrol(invitation)
        update = np.zeros(self._lattice.dimension, np.int32)
        update[client] = MARK
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
        """Send the same bytes until an answer arrives."""
        digest = hashlib.sha256(body).hexdigest()
        self.diary.sent.add((client, step))
        for attempt in count():
            if self.over.is_set():
                return
            try:
                status, data = self._signed(client, updates_path(step), body)
            except (OSError, http.client.HTTPException):
                self._hang_up()
                time.sleep(0.01)
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
