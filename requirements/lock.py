"""Writes runtime.lock and dev.lock from pyproject.toml: exact versions, nothing about a machine.

Run it as ``make lock``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
HEADER = "# Written by `make lock` from pyproject.toml; do not edit.\n"
ACCELERATOR = re.compile(r"^(nvidia|cuda|triton)[-_=]", re.IGNORECASE)
"""PyTorch chooses these for the machine at hand; a lock for all machines names none."""


def locked(*options: str) -> str:
    """The lock file for some options of pip-compile."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--strip-extras"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-trusted-host"]
        command += ["--no-emit-find-links", "--no-emit-options", "--allow-unsafe", *options]
        inputs = ["pyproject.toml", "requirements/build.in"]
        subprocess.run([*command, "--output-file", str(output), *inputs], check=True, cwd=ROOT)
        lines = output.read_text().splitlines()
    pins = [line.split("+")[0] for line in lines if "==" in line and not ACCELERATOR.match(line)]
    return HEADER + "\n".join(pins) + "\n"


if __name__ == "__main__":
    (HERE / "runtime.lock").write_text(locked("--extra", "train"))
    (HERE / "dev.lock").write_text(locked("--extra", "dev", "--extra", "all"))
