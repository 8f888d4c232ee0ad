"""The task of one_task.py as a Flower app, simulated: python flower_one_task.py NOISE_MULTIPLIER

benchmarks/one_task.py runs this script in Flower's environment, with PYTHONPATH=src.
TURNOUT_ONE_TASK names a JSON file with the path of the digits and the settings of the plan,
TURNOUT_SIMULATED_NODES an empty folder for the participations of the nodes. The script prints one
JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from turnout.integrations.flower import CheckInMod, CheckInStrategy
from turnout.learning.optimizers import SGD
from turnout.schemes import CheckIn, GaussianNoise, Scheme

SETTINGS, STATE = "TURNOUT_ONE_TASK", "TURNOUT_SIMULATED_NODES"
app = ClientApp(mods=[CheckInMod(os.environ.get(STATE))])


def settings() -> dict[str, Any]:
    """Settings that the benchmark wrote."""
    return json.loads(Path(os.environ[SETTINGS]).read_text())


def slope(weights: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Gradient of the mean cross-entropy of softmax regression, shape (values + 1, 10)."""
    scores = rows @ weights
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    return rows.T @ (odds - np.eye(10)[labels]) / len(labels)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Gradient of the node's own digits, which the mod clips."""
    given = settings()
    data = np.load(given["data"])
    mine = data["owner"] == int(context.node_config["partition-id"])
    weights = message.content.array_records["arrays"]["weights"].numpy()
    after = weights - slope(weights, data["rows"][mine], data["labels"][mine])
    record = ArrayRecord({"weights": Array(after.astype(np.float32))})
    return Message(RecordDict({"arrays": record}), reply_to=message)


def trained(given: dict[str, Any], sigma: float, folder: Path) -> dict[str, float]:
    """Accuracy and ε of one simulated run."""
    data, found = np.load(given["data"]), {}
    participation = CheckIn(given["window"], given["windows"])
    scheme = Scheme(GaussianNoise(sigma), participation, given["relation"])
    model = ArrayRecord({"weights": Array(np.zeros((data["rows"].shape[1], 10), np.float32))})
    # The server runs all rounds of the strategy, then tests the model that they return.
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        strategy = CheckInStrategy(
            folder / "ledger.jsonl",
            scheme,
            SGD(given["learning_rate"]),
            model,
            clip_norm=given["clip_norm"],
            nodes=given["clients"],
            delta=given["delta"],
        )
        result = strategy.start(grid, model, num_rounds=strategy.rounds_left, timeout=600)
        scores = data["test rows"] @ result.arrays["weights"].numpy()
        found["accuracy"] = float(np.mean(scores.argmax(axis=1) == data["test labels"]))
        found["epsilon"] = strategy.privacy_spent().epsilon

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server, app, given["clients"], backend_config=resources)
    return found


def main() -> None:
    """Run a simulation at the given noise multiplier."""
    print(json.dumps(trained(settings(), float(sys.argv[1]), Path(os.environ[STATE]))))


if __name__ == "__main__":
    main()
