"""Process that runs a graph: arrays in, one array out, after giving up all other rights."""

import json
import resource
import sys

from worker import end_with

end_with(int(sys.argv[1]))

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402

MEMORY_BYTES = 4 << 30

source = sys.stdin.buffer
size, described = json.loads(source.readline())
graph, arrays = source.read(size), {}
for name, (kind, shape) in described.items():
    empty = np.empty(shape, kind)
    arrays[name] = np.frombuffer(source.read(empty.nbytes), kind).reshape(shape)

for limit, value in (
    (resource.RLIMIT_AS, MEMORY_BYTES),
    (resource.RLIMIT_NOFILE, 0),
    (resource.RLIMIT_FSIZE, 0),
    (resource.RLIMIT_NPROC, 0),
    (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(limit, (value, value))

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
(result,) = session.run(None, arrays)
sys.stdout.buffer.write(np.ascontiguousarray(result, "<f4").tobytes())
