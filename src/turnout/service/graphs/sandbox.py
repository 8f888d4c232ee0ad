"""A graph of a charter, run in a process of its own with little memory, time and rights."""

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
    """A graph failed, or took more than it may."""


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """Bounds of what a graph takes.

    Attributes:
        memory_bytes: address space of its process, of which Python and ONNX Runtime take some
            hundred MiB.
        seconds: of one request; the process is killed after it.
    """

    memory_bytes: int = 4 << 30
    seconds: float = 120.0

    def __post_init__(self) -> None:
        checks.count(memory_bytes=self.memory_bytes)
        checks.positive(seconds=self.seconds)


class Sandbox:
    """A running graph; a context manager that ends its process.

    The process holds no secret, opens no file and starts no other process once it has the graph,
    and it is killed at its bounds. On Linux the system ends it with the process that started it.
    It is no wall against a fault in ONNX Runtime itself.

    Args:
        graph: one that `graphs.read_graph` took.
        bounds: of memory and time.

    Raises:
        UnsupportedError: a system without such limits (Windows).
        ExhaustedError: the graph cannot be loaded within the bounds.
    """

    def __init__(self, graph: bytes, bounds: GraphLimits | None = None) -> None:
        if sys.platform == "win32":
            raise UnsupportedError("a graph of a charter runs only where processes have limits")
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
        try:
            self._send(str(len(graph)).encode() + b"\n", graph)
            if self._line() != b"ready":
                raise ExhaustedError("a graph of the charter cannot be loaded")
        except BaseException:
            self.close()
            raise

    @property
    def _memory(self) -> str:
        return str(self._bounds.memory_bytes)

    def run(self, arrays: Mapping[str, NDArray[Any]], most_bytes: int) -> NDArray[np.float32]:
        """The graph's output, float32, of at most so many bytes.

        Raises:
            ExhaustedError: it failed, took too long or too much, or gave something else.
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
        """A request, from which on its time runs."""
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
                raise ExhaustedError("a graph of the charter ended its process") from None

    def _line(self) -> bytes:
        while b"\n" not in self._left:
            self._more()
            if len(self._left) > _LONGEST_LINE and b"\n" not in self._left[:_LONGEST_LINE]:
                raise ExhaustedError("a graph of the charter gave no answer")
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
            raise ExhaustedError("a graph of the charter failed, or took too much memory")
        self._left += part

    def _await(self, descriptor: int, event: int) -> None:
        """Return once it can be read or written.

        Raises:
            ExhaustedError: the time is over.
        """
        self._selector.register(descriptor, event)
        try:
            left = self._deadline - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                seconds = self._bounds.seconds
                raise ExhaustedError(f"a graph of the charter took more than {seconds:g} seconds")
        finally:
            self._selector.unregister(descriptor)


def _shape_of(line: bytes, most_bytes: int) -> tuple[int, ...]:
    """The shape in an answer's line.

    Raises:
        ExhaustedError: not float32, or more bytes than were asked for.
    """
    try:
        kind, sides = json.loads(line)
        shape = tuple(int(side) for side in sides)
    except (ValueError, TypeError):
        raise ExhaustedError("a graph of the charter gave no answer") from None
    size = 4
    for side in shape:
        size *= side
        if side < 0 or size > most_bytes:
            raise ExhaustedError("a graph of the charter gave more than was asked for")
    if kind != "<f4":
        raise ExhaustedError(f"a graph of the charter gave numbers of the type {str(kind)[:20]}")
    return shape


def _closed(pipe: IO[bytes]) -> None:
    with suppress(BrokenPipeError):  # the process is gone, and what was not written with it
        pipe.close()
