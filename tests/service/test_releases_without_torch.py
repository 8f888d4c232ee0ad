"""A coordinator imports no PyTorch for a release, and imports its optimizer at the start."""

import os
import subprocess
import sys
from pathlib import Path

from processes import environment

SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path

from web_world import charter_of, task_storage

from turnout.service.coordinator.engine import Engine
from turnout.service.coordinator.releases import Learner

OPTIMIZERS = ["", 'name = "adam"', "momentum = 0.5", 'averaging = "ema"', 'averaging = "tail"']
for number, optimizer in enumerate(OPTIMIZERS):
    own = charter_of()
    charter = replace(own, plan=own.plan.rstrip() + f"\\n{optimizer}\\n")
    storage = task_storage(Path(sys.argv[1], str(number)), charter)
    engine = Engine.open(storage, Learner)
    ready = set(sys.modules)
    for _ in range(2):
        with storage.transaction() as tx:
            release = engine.close_step(tx)
        engine.publish()
    storage.close()
    late = sorted(name for name in set(sys.modules) - ready if name.startswith("turnout"))
    assert not late, (optimizer, late)
    assert "torch" not in sys.modules, optimizer
"""


def test_a_release_imports_no_further_module_and_needs_no_pytorch(tmp_path):
    folders = [*map(str, Path(__file__).parents[:2]), os.environ.get("PYTHONPATH", "")]
    paths = environment(PYTHONPATH=os.pathsep.join(folders))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=paths,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
