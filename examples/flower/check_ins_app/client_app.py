"""The ClientApp: a gradient step on the node's own data; the mod decides in which rounds."""

from __future__ import annotations

import os

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from turnout.integrations.flower import CheckInMod

# A SuperNode's configuration names the folder; simulated nodes share one, a file each.
app = ClientApp(mods=[CheckInMod(os.environ.get("TURNOUT_SIMULATED_NODES"))])

FEATURES = 8


def node_data(node: int) -> tuple[np.ndarray, np.ndarray]:
    """Twenty made-up rows of a node, and their classes."""
    random = np.random.default_rng(node)
    rows = random.normal(size=(20, FEATURES))
    return rows, (rows.sum(axis=1) + random.normal(size=20) > 0).astype(np.float64)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Take one step of logistic regression from the received model."""
    weights = message.content.array_records["arrays"]["weights"].numpy()
    rows, classes = node_data(int(context.node_config["partition-id"]))
    slope = rows.T @ (1 / (1 + np.exp(-rows @ weights)) - classes) / len(classes)
    after = ArrayRecord({"weights": Array((weights - slope).astype(weights.dtype))})
    return Message(RecordDict({"arrays": after}), reply_to=message)
