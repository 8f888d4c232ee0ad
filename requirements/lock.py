"""Writes the lock files from pyproject.toml: exact versions, nothing about a machine.

runtime.lock and dev.lock are what `make` installs. container.lock and torch.lock are the image's,
with the hash of each file: all of the one comes from the default index, and PyTorch for processors
alone from an index of its own, so that neither can serve a package of the other's.

Run it as ``make lock``.
"""

from __future__ import annotations

import hashlib
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
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
IMAGE = ("--python-version", "3.11", "--platform", "manylinux_2_28_x86_64")
"""What the Containerfile builds on."""


def compiled(*options: str) -> list[str]:
    """A requirement each, with its hashes if they are asked for, as pip-compile resolves them."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--strip-extras"]
        command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-trusted-host"]
        command += ["--no-emit-find-links", "--no-emit-options", "--allow-unsafe", *options]
        inputs = ["pyproject.toml", "requirements/build.in"]
        subprocess.run([*command, "--output-file", str(output), *inputs], check=True, cwd=ROOT)
        found = re.split(r"\n(?=\S)", output.read_text().strip())
    return [one.strip() for one in found if "==" in one and not ACCELERATOR.match(one)]


def locked(*extras: str) -> str:
    """The lock file for some extras."""
    pins = compiled(*(word for extra in extras for word in ("--extra", extra)))
    return HEADER + "\n".join(pin.split("+")[0] for pin in pins) + "\n"


def hashed(*extras: str) -> str:
    """The lock file for some extras without PyTorch, at the versions of dev.lock, with hashes."""
    options = [word for extra in extras for word in ("--extra", extra)]
    pins = compiled("--generate-hashes", "--constraint", str(HERE / "dev.lock"), *options)
    return HEADER + "\n".join(pin for pin in pins if not pin.startswith("torch==")) + "\n"


def torch() -> str:
    """PyTorch for processors, at the version of dev.lock, with the hash of the image's wheel."""
    (version,) = re.findall(r"^torch==(\S+)$", (HERE / "dev.lock").read_text(), re.MULTILINE)
    pin = f"torch=={version}+cpu"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *IMAGE]
        command += ["--only-binary", ":all:", "--index-url", CPU_INDEX, "--dest", folder, pin]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).iterdir()
        return f"{HEADER}{pin} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


if __name__ == "__main__":
    (HERE / "runtime.lock").write_text(locked("train"))
    (HERE / "dev.lock").write_text(locked("dev", "all"))
    (HERE / "container.lock").write_text(hashed("service", "train"))
    (HERE / "torch.lock").write_text(torch())
