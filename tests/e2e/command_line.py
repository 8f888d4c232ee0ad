"""The command line as a user runs it: another process."""

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
    """This process's environment without data files, network or terminal."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TURNOUT_DATA", "COLUMNS")}
    return {**kept, "TURNOUT_OFFLINE": "1", "XDG_CACHE_HOME": "/nonexistent", **extra}


def signalled(number: int, saves: int) -> None:
    """Let this process, a run, signal itself right after it saved so many checkpoints."""
    from turnout.simulation import FileCheckpoints

    save, saved = FileCheckpoints.save, []

    def saving(self, checkpoint) -> None:
        save(self, checkpoint)
        saved.append(checkpoint.step)
        if len(saved) == saves:
            os.kill(os.getpid(), number)

    FileCheckpoints.save = saving
