"""The ServerApp: a turnout scheme over all rounds, with its releases in a ledger."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from turnout.integrations.flower import CheckInStrategy
from turnout.learning.optimizers import SGD
from turnout.schemes import CheckIn, GaussianNoise, Relation, Scheme

app = ServerApp()

FEATURES, DELTA = 8, 1e-5


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the remaining rounds of the scheme, and print ε."""
    config = context.run_config
    scheme = Scheme(
        GaussianNoise(float(config["noise-multiplier"])),
        CheckIn(int(config["window"]), int(config["windows"])),
        Relation.ZERO_OUT,
    )
    arrays = ArrayRecord({"weights": Array(np.zeros(FEATURES, np.float32))})
    strategy = CheckInStrategy(
        str(config["ledger"]),
        scheme,
        SGD(0.5),
        arrays,
        clip_norm=1.0,
        nodes=int(config["nodes"]),
        delta=DELTA,
    )
    seconds = float(config["seconds"])
    result = strategy.start(grid, arrays, num_rounds=strategy.rounds_left, timeout=seconds)
    print("weights", result.arrays["weights"].numpy().round(2), strategy.privacy_spent())
