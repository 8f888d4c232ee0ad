"""A charter's graph, run in a separate process with limited memory, time and rights.

`Sandbox` starts the process on the device and exchanges arrays with it. `worker` is the program of
the process, and `GraphLimits` has its limits. `updates` uses `Sandbox` to compute updates.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from turnout.core import checks
from turnout.core.errors import RemoteProtocolError, UnsupportedError

_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
_WORKER = __name__.replace("sandbox", "worker")
_LONGEST_LINE = 1 << 10


class ExhaustedError(RemoteProtocolError):
    """A graph failed or exceeded its limits."""


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """Bounds on memory and time of a graph.

    Attributes:
        memory_bytes: address space of the process; Python and ONNX Runtime use some hundred MiB
            of it.
        seconds: longest time of one request, after which the process is killed.
    """

    memory_bytes: int = 4 << 30
    seconds: float = 120.0

    def __post_init__(self) -> None:
        checks.count(memory_bytes=self.memory_bytes)
        checks.positive(seconds=self.seconds)


class Sandbox:
    """A graph in a running process; a context manager that ends the process.

    Once the process has the graph, it opens no file and starts no other process. It has no secret,
    and it is killed when it exceeds its limits. On Linux the system ends the process with its
    parent. The separate process does not protect against a vulnerability of ONNX Runtime itself.

    Args:
        graph: bytes that `format.read_graph` accepted.
        bounds: limits of memory and time.

    Raises:
        UnsupportedError: the system has no such limits (Windows).
        ExhaustedError: the graph cannot be loaded within the limits.
    """

    def __init__(self, graph: bytes, bounds: GraphLimits | None = None) -> None:
        if sys.platform == "win32":
            raise UnsupportedError(
                "a charter's graph needs a system with process limits, not Windows"
            )
        # A process with few environment variables; it limits its own rights before it parses the
        # graph.
        self._bounds = bounds or GraphLimits()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER, str(os.getpid()), self._memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            cwd="/",
        )
        self._selector = selectors.DefaultSelector()
        self._left, self._deadline = b"", 0.0
        # The process answers "ready" once the graph is loaded.
        try:
            self._send(str(len(graph)).encode() + b"\n", graph)
            if self._line() != b"ready":
                raise ExhaustedError("the charter's graph cannot be loaded")
        except BaseException:
            self.close()
            raise

    @property
    def _memory(self) -> str:
        return str(self._bounds.memory_bytes)

    def run(self, arrays: Mapping[str, NDArray[Any]], most_bytes: int) -> NDArray[np.float32]:
        """The graph's output as float32, in the shape that the graph returns.

        Args:
            arrays: inputs of the graph, by name.
            most_bytes: largest accepted size of the output in bytes.

        Raises:
            ExhaustedError: the graph failed, exceeded its limits, or returned another type or size.
        """
        described = [[name, each.dtype.str, list(each.shape)] for name, each in arrays.items()]
        parts = [np.ascontiguousarray(each).tobytes() for each in arrays.values()]
        self._send(json.dumps(described).encode() + b"\n", *parts)
        shape = _shape_of(self._line(), most_bytes)
        size = 4 * int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._read(size), "<f4").reshape(shape)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                _closed(pipe)
        self._process.wait()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, *parts: bytes) -> None:
        """Send a request and start its time limit."""
        self._deadline = time.monotonic() + self._bounds.seconds
        pipe = self._process.stdin
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        for part in parts:
            self._write(pipe.fileno(), part)

    def _write(self, descriptor: int, part: bytes) -> None:
        view = memoryview(part)
        while view:
            self._await(descriptor, selectors.EVENT_WRITE)
            try:
                view = view[os.write(descriptor, view) :]
            except BrokenPipeError:
                raise ExhaustedError("the process of the charter's graph ended early") from None

    def _line(self) -> bytes:
        while b"\n" not in self._left:
            self._more()
            if len(self._left) > _LONGEST_LINE and b"\n" not in self._left[:_LONGEST_LINE]:
                raise ExhaustedError("the charter's graph returned no result")
        line, _, self._left = self._left.partition(b"\n")
        return line

    def _read(self, size: int) -> bytes:
        parts, held = [self._left], len(self._left)
        while held < size:
            self._left = b""
            self._more()
            parts.append(self._left)
            held += len(self._left)
        self._left = b""
        return b"".join(parts)[:size]

    def _more(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        self._await(pipe.fileno(), selectors.EVENT_READ)
        part = os.read(pipe.fileno(), 1 << 20)
        if not part:
            raise ExhaustedError("the charter's graph failed, or exceeded its memory limit")
        self._left += part

    def _await(self, descriptor: int, event: int) -> None:
        """Wait until the pipe can be read or written.

        Raises:
            ExhaustedError: the request has exceeded its time limit.
        """
        self._selector.register(descriptor, event)
        try:
            left = self._deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                seconds = self._bounds.seconds
                raise ExhaustedError(f"the charter's graph took more than {seconds:g} seconds")
        finally:
            self._selector.unregister(descriptor)


def _shape_of(line: bytes, most_bytes: int) -> tuple[int, ...]:
    """Shape of the output, from the first line of an answer.

    Raises:
        ExhaustedError: the type is not float32, or the size exceeds ``most_bytes``.
    """
    # The line is a JSON list of the type and the sides.
    try:
        kind, sides = json.loads(line)
        shape = tuple(int(side) for side in sides)
    except (ValueError, TypeError):
        raise ExhaustedError("the charter's graph returned no result") from None
    # The size in bytes, checked side by side, so that no product grows without bound.
    size = 4
    for side in shape:
        size *= side
        if side < 0 or size > most_bytes:
            raise ExhaustedError(f"the charter's graph returned more than {most_bytes} bytes")
    if kind != "<f4":
        raise ExhaustedError(
            f"the charter's graph returned numbers of type {str(kind)[:20]}: expected float32"
        )
    return shape


def _closed(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):  # the process has ended: unwritten bytes are lost with it
        pipe.close()
