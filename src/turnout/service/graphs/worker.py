"""The process that runs a graph: it reads and writes arrays, and has no other rights.

``python -m turnout.service.graphs.worker PARENT MEMORY_BYTES`` is started by `sandbox.Sandbox`. The
system ends the worker when the process with the id PARENT ends. The worker reads the graph from its
input, drops its rights to files, processes and memory beyond MEMORY_BYTES, and then answers one
request after another. A request or an answer is one line of JSON (the type and shape of each array,
in a request also the name), followed by the arrays' bytes.
"""

from __future__ import annotations

import json
import sys
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from turnout.service.processes import end_with


def main() -> None:
    """Serve requests until the input ends."""
    # End with the parent process, and import what needs files while files may be opened.
    end_with(int(sys.argv[1]))
    import onnxruntime  # pyright: ignore[reportMissingImports]

    # Read the graph, then drop all rights before ONNX Runtime parses it.
    memory_bytes = int(sys.argv[2])
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    graph = source.read(int(source.readline()))
    _give_up(memory_bytes)
    # One thread, since more are forbidden, and no optimizer: the graph runs exactly as written.
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    # Answer requests until the input ends.
    sink.write(b"ready\n")
    sink.flush()
    while line := source.readline():
        (result,) = session.run(None, _arrays(source, json.loads(line)))
        _write(sink, np.ascontiguousarray(result))


def _give_up(memory_bytes: int) -> None:
    """Limit the memory of this process; forbid it to open files, start processes and dump core."""
    import resource

    for kind, limit in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))


def _arrays(source: BinaryIO, described: list[list[object]]) -> dict[str, NDArray[np.generic]]:
    """Arrays of a request, by name."""
    made: dict[str, NDArray[np.generic]] = {}
    for name, kind, shape in described:
        empty = np.empty(tuple(shape), np.dtype(str(kind)))  # type: ignore[arg-type]
        data = source.read(empty.nbytes)
        made[str(name)] = np.frombuffer(data, empty.dtype).reshape(empty.shape)
    return made


def _write(sink: BinaryIO, result: NDArray[np.generic]) -> None:
    """Write an answer: type and shape in one line, then the bytes."""
    sink.write(json.dumps([result.dtype.str, list(result.shape)]).encode() + b"\n")
    sink.write(result.tobytes())
    sink.flush()


if __name__ == "__main__":
    main()
