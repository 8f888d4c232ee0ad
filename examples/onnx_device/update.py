"""The client's update: the charter's graph on its records, clipped and rounded to integers."""

import json
import math
from fractions import Fraction

import graph
import numpy as np
from texts import require

TOLERANCE = 1e-4


class Update:
    """Updates of one client; the graph must first reproduce the test vectors of the charter."""

    def __init__(self, charter, artefacts, inputs, labels):
        self.lattice = charter["messages"]["update"]
        model, self.d = charter["model"], self.lattice["dimension"]
        shape = tuple(model["features"]["input_shape"])
        require(
            inputs.shape[1:] == shape, f"records of {inputs.shape[1:]}, not {shape}", ValueError
        )
        known = labels.min() >= 0 and labels.max() < model["architecture"]["classes"]
        require(known, "the labels contain an unknown class", ValueError)
        self.inputs, self.labels = _featured(model["features"]["format"], inputs), labels
        self.graph, vectors = artefacts
        ports = graph.read(self.graph)
        due = {"parameters": (1, (self.d,)), "labels": (7, (None,)), "weights": (1, (None,))}
        due |= {"clip_norm": (11, ()), "update": (1, (self.d,))}
        due["inputs"] = (1, (None, *self.inputs.shape[1:]))
        require(
            ports == due, f"the charter's graph has the inputs and outputs {ports}: expected {due}"
        )
        for vector in json.loads(vectors)["vectors"]:
            self._check(vector)

    def _check(self, vector):
        """Check that the graph reproduces the update of a test vector."""
        shape = self.inputs.shape[1:]
        rows = [_filled(given, math.prod(shape)).reshape(shape) for given in vector["inputs"]]
        labels = np.array(vector["labels"], np.int64)
        clip_norm = float.fromhex(vector["clip_norm"])
        made = self._run(_filled(vector["parameters"], self.d), np.stack(rows), labels, clip_norm)
        require(made is not None, "the charter's graph fails or exceeds its limits")
        made, room = made.astype(np.float64), TOLERANCE * max(vector["norm"], 1e-12)
        far = np.abs(made[:: vector["every"]] - vector["update"]).max()
        near = far <= room and abs(np.linalg.norm(made) - vector["norm"]) <= room
        require(near, "the charter's graph does not reproduce its test vectors")

    def _run(self, parameters, inputs, labels, clip_norm):
        arrays = {
            "parameters": parameters,
            "inputs": inputs,
            "labels": labels,
            "weights": np.full(len(labels), 1 / len(labels), np.float32),
            "clip_norm": np.array(clip_norm),
        }
        return graph.run(self.graph, arrays, (self.d,))

    def body(self, model):
        """Encoded update for a model's bytes; None if the graph fails."""
        parameters = np.frombuffer(model, "<f4")
        made = self._run(parameters, self.inputs, self.labels, self.lattice["clip_norm"])
        require(made is not None, "the charter's graph fails or exceeds its limits")
        moved = clipped(made.astype(np.float64), self.lattice["clip_norm"])
        return quantised(moved, self.lattice)


def clipped(moved, clip_norm):
    """Update clipped to the clip norm; zeros if it is not finite."""
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.square(moved).sum()))
    if not norm <= 1e30:
        return np.zeros(len(moved))
    return moved * min(1.0, clip_norm * (1 - 2.0**-20) / norm) if norm else moved


def quantised(update, lattice):
    """Encoded update: little-endian int32 multiples of the lattice step."""
    limit = math.floor((Fraction(lattice["clip_norm"]) / Fraction(lattice["step"])) ** 2)
    q = [math.trunc(x / lattice["step"]) for x in update]
    while (exact := sum(x * x for x in q)) > limit:
        q = [math.trunc(x * (math.sqrt(limit / exact) * (1 - 2.0**-40))) for x in q]
    return np.array(q, "<i4").tobytes()


def _featured(name, inputs):
    """Features of the records, float32."""
    numbers = inputs.astype(np.float32) / np.float32(255 if inputs.dtype == np.uint8 else 1)
    if name == "pixels-1":
        return numbers
    flat = numbers.reshape(len(numbers), -1).astype(np.float64)
    flat -= flat.mean(1, keepdims=True)
    flat /= np.sqrt(np.square(flat).mean(1, keepdims=True) + 1e-5)
    return flat.astype(np.float16).astype(np.float32).reshape(numbers.shape)


def _filled(given, length):
    """Numbers of a vector that is given as a list or by a formula."""
    if isinstance(given, list):
        return np.array(given[:length], np.float32)
    i = np.arange(length, dtype=np.int64)
    fractions = i * given["multiplier"] % given["modulus"] / given["modulus"]
    return (given["scale"] * (fractions - 0.5)).astype(np.float32)
