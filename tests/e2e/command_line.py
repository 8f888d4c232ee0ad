"""Plan, environment and signals for tests that run the command line in another process."""

from __future__ import annotations

import os

PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
features = "standardized"
[participation]
law = "check-in"
window = 8
windows = 3
[privacy]
relation = "add-remove"
noise_multiplier = 2.0
delta = 1e-4
clip_norm = 0.25
[optimizer]
learning_rate = 8.0
momentum = 0.3
averaging = "ema"
[run]
evaluate_every = 4
checkpoint_every = 2
"""


def environment(**extra: str) -> dict[str, str]:
    """Environment of this process, without data files, network and width of the terminal."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TURNOUT_DATA", "COLUMNS")}
    return {**kept, "TURNOUT_OFFLINE": "1", "XDG_CACHE_HOME": "/nonexistent", **extra}


def signalled(number: int, saves: int) -> None:
    """Make this process send itself a signal right after a number of saved checkpoints."""
    from turnout.simulation import FileCheckpoints

    save, saved = FileCheckpoints.save, []

    def saving(self, checkpoint) -> None:
        save(self, checkpoint)
        saved.append(checkpoint.step)
        if len(saved) == saves:
            os.kill(os.getpid(), number)

    FileCheckpoints.save = saving
