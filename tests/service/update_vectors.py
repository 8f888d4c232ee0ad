"""Test vectors of device updates, from the code and from the documented rules."""

import hashlib
import math
from fractions import Fraction

import numpy as np

from turnout.learning.examples import Examples
from turnout.learning.features import apply_features
from turnout.learning.holdings import Holdings
from turnout.learning.local_updates import LocalTraining
from turnout.learning.models import build_model
from turnout.learning.tasks import SupervisedTask
from turnout.protocol.lattice import Lattice
from turnout.service.contract.computation import ARCHITECTURES, FEATURES, Computation

UNCLIPPED = 1e6
"""Clip norm so large that no update is clipped."""

EVERY = 97
"""Step between the numbers of a long result that are in the vectors."""


def formula(length, multiplier, modulus, scale):
    """Long vector defined by a few numbers, as documented."""
    given = {"length": length, "multiplier": multiplier, "modulus": modulus, "scale": scale}
    return given, filled(given)


def filled(given):
    """Numbers of a vector that is given as a list or by a formula."""
    if isinstance(given, list):
        return np.array(given, np.float32)
    i = np.arange(given["length"], dtype=np.int64)
    fractions = i * given["multiplier"] % given["modulus"] / given["modulus"]
    return (given["scale"] * (fractions - 0.5)).astype(np.float32)


def cases():
    """Name, computation, clip norm, parameters and (input, label) records of each case."""
    small = [round(0.3 * math.sin(5 * i), 3) for i in range(15)]
    pixels = Computation(input_shape=(2, 2), classes=3)
    steps = Computation("logistic-1", "standardized-1", (2, 2), 3, 3, 0.5)
    grey, _ = formula(256, 31, 257, 1.0)
    other, _ = formula(256, 113, 251, 2.0)
    net = Computation("tanh-cnn-13k-1", "standardized-1", (16, 16), 2)
    colours = Computation("tanh-cnn-13k-1", "pixels-1", (16, 16, 1), 2, 2, 0.25)
    weights = formula(5762, 7919, 10007, 0.3)[0]
    two = [([0.0, 0.25, 0.5, 1.0], 1), ([1.0, 0.125, 0.0, 0.75], 2)]
    return [
        ("logistic, not clipped", pixels, 4.0, small, two),
        ("logistic, clipped, several steps", steps, 0.25, small, [*two, (two[0][0], 0)]),
        ("an input that is constant", steps, 0.25, small, [([0.5] * 4, 1)]),
        ("too large: the zero vector", pixels, 1.0, [0.0] * 15, [([3e38] * 4, 0)]),
        ("not a number: the zero vector", pixels, 1.0, [3e38] * 15, [([3e38] * 4, 0)]),
        ("no records: the zero vector", pixels, 1.0, small, []),
        ("network", net, 0.125, weights, [(grey, 0), (other, 1)]),
        ("network, two steps", colours, 8.0, weights, [(grey, 1)]),
    ]


def vectors():
    """All update vectors, from the code."""
    return [_vector(*case) for case in cases()]


def equal_but_for_rounding(told, made):
    """Whether two vectors agree up to rounding, which depends on the processor in PyTorch."""
    rounded = ("norm", "moved", "quantised", "body")
    for_sure = [{k: v for k, v in one.items() if k not in rounded} for one in (told, made)]
    if for_sure[0] != for_sure[1] or ("norm" in told) != ("norm" in made):
        return False
    units = np.abs(np.subtract(told["quantised"], made["quantised"])).max()
    if units > 1 or (units == 0 and told.get("body") != made.get("body")):
        return False
    if "norm" not in told:
        return True
    numbers = [np.array([one["norm"], *one["moved"]]) for one in (told, made)]
    return bool(np.abs(numbers[0] - numbers[1]).max() <= 1e-6 * told["norm"])


def _vector(name, computation, clip_norm, parameters, records):
    at = filled(parameters)
    lattice = Lattice.for_noise(1.0, clip_norm, len(at))
    update = {"step": lattice.step, "clip_norm": clip_norm, "dimension": len(at)}
    inputs = [filled(given).reshape(computation.input_shape) for given, _ in records]
    labels = [label for _, label in records]
    featured, moved, clipped = _computed(computation, clip_norm, at, inputs, labels)
    q = lattice.quantise(clipped)
    long = len(at) > 100
    kept = slice(None, None, EVERY if long else 1)
    made = {
        "name": name,
        "model": computation.model_document(hashlib.sha256(at.astype("<f4").tobytes()).digest()),
        "client": _hexed(computation.client_document()),
        "update_format": _hexed({"format": "int32-lattice-1"} | update),
        "parameters": parameters,
        "records": [{"input": given, "label": label} for given, label in records],
        "every": EVERY if long else 1,
        "features": [[float(x) for x in row.reshape(-1)[kept]] for row in featured],
    }
    if moved is not None:
        made["norm"] = float(np.linalg.norm(moved))
        made["moved"] = [float(x) for x in moved[kept]]
    made |= {"norm_squared_limit": lattice.norm_squared_limit, "quantised": q[kept].tolist()}
    return made if long else made | {"body": lattice.encode(q).hex()}


def _hexed(fields):
    return {
        key: {"float": value.hex()} if isinstance(value, float) else value
        for key, value in fields.items()
    }


def _computed(computation, clip_norm, at, inputs, labels):
    """Features, the unclipped update (None if it is not finite), and the clipped update."""
    if not inputs:
        return [], np.zeros(len(at)), np.zeros(len(at))
    by_format = {named: name for name, named in (ARCHITECTURES | FEATURES).items()}
    featured = apply_features(by_format[computation.features], np.stack(inputs))
    model = build_model(
        by_format[computation.architecture], featured.shape[1:], computation.classes
    )
    assert model.dimension == len(at)
    examples = Examples(featured, np.array(labels))
    holdings = Holdings.from_owners(np.zeros(len(labels), np.int64), 1)
    local = LocalTraining(computation.steps, computation.learning_rate)

    def at_norm(norm):
        task = SupervisedTask(model, examples, examples, holdings=holdings, local=local)
        return task.clipped_sum(at, np.array([0]), norm).total

    moved = at_norm(UNCLIPPED)
    zero = not moved.any()
    return featured, None if zero else moved, at_norm(clip_norm)


# -- by the page's words, in float64 ---------------------------------------------------------


def features_of(vector):
    """Features of the records, computed as documented, as rows of float64."""
    rows = []
    for record in vector["records"]:
        x = filled(record["input"]).astype(np.float64)
        if vector["model"]["features"]["format"] == "standardized-1":
            m = x.mean()
            x = ((x - m) / np.sqrt(((x - m) ** 2).mean() + 1e-5)).astype(np.float16)
        rows.append(x.astype(np.float64))
    return rows


def moved_of(vector, rows):
    """Unclipped update of logistic regression, computed as documented."""
    k = vector["model"]["architecture"]["classes"]
    n = math.prod(vector["model"]["features"]["input_shape"])
    rate, at = (
        float.fromhex(vector["client"]["learning_rate"]["float"]),
        filled(vector["parameters"]).astype(np.float64),
    )
    moved = np.zeros(k * (n + 1))
    for _ in range(vector["client"]["steps"]):
        weights, biases = np.split(at - moved, [k * n])
        gradient = np.zeros(k * (n + 1))
        for row, record in zip(rows, vector["records"], strict=True):
            z = weights.reshape(k, n) @ row + biases
            upstream = np.exp(z - z.max())
            upstream /= upstream.sum()
            upstream[record["label"]] -= 1
            gradient += np.append(np.outer(upstream, row), upstream) / len(rows)
        moved = moved + rate * gradient
    return moved


def loss_of(vector, rows, parameters):
    """Mean loss of the network at given parameters, computed as documented in float64."""
    shape = (*vector["model"]["features"]["input_shape"], 1)[:3]
    k = vector["model"]["architecture"]["classes"]
    filters = {"tanh-cnn-13k-1": 16, "tanh-cnn-26k-1": 32}
    f, place, total = filters[vector["model"]["architecture"]["format"]], 0, 0.0

    def taken(count):
        nonlocal place
        place += count
        return parameters[place - count : place]

    def pooled(image):
        across = np.maximum(image[:, :-1], image[:, 1:])
        return np.tanh(np.maximum(across[:-1], across[1:]))

    def convolved(image, kernels, side, stride, padding):
        image = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        weights = taken(kernels * side * side * image.shape[2]).reshape(kernels, -1)
        biases = taken(kernels)
        rows, columns = ((length - side) // stride + 1 for length in image.shape[:2])
        return np.array(
            [
                [
                    weights
                    @ image[stride * r : stride * r + side, stride * c : stride * c + side].reshape(
                        -1
                    )
                    + biases
                    for c in range(columns)
                ]
                for r in range(rows)
            ]
        )

    for row, record in zip(rows, vector["records"], strict=True):
        place = 0
        image = pooled(convolved(row.reshape(shape), 16, 8, 2, 3))
        image = pooled(convolved(image, f, 4, 2, 0)).reshape(-1)
        hidden = np.tanh(taken(32 * len(image)).reshape(32, -1) @ image + taken(32))
        z = taken(k * 32).reshape(k, 32) @ hidden + taken(k)
        assert place == len(parameters)
        total += math.log(np.exp(z - z.max()).sum()) + z.max() - z[record["label"]]
    return total / len(rows)


def lattice_of(vector, moved):
    """Quantised update q, computed as documented."""
    told = vector["update_format"]
    step, clip = (float.fromhex(told[name]["float"]) for name in ("step", "clip_norm"))
    with np.errstate(all="ignore"):
        norm = float(np.sqrt((moved**2).sum()))
    if not norm <= 1e30:
        moved, norm = np.zeros(told["dimension"]), 0.0
    factor = min(1.0, clip * (1 - 2.0**-20) / norm) if norm else 1.0
    limit = math.floor((Fraction(clip) / Fraction(step)) ** 2)
    q = [math.trunc(x * factor / step) for x in moved]
    while (exact := sum(x * x for x in q)) > limit:
        q = [math.trunc(x * (math.sqrt(limit / exact) * (1 - 2.0**-40))) for x in q]
    return q, limit
