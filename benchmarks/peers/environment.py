"""The peers' own Python environment: python benchmarks/peers/environment.py"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE / ".venv"
READY = FOLDER / "ready"


def python() -> Path:
    """The environment's interpreter, made first if need be."""
    interpreter = FOLDER / "bin" / "python"
    requirements = (HERE / "requirements.txt").read_text()
    if not READY.is_file() or READY.read_text() != requirements:
        print(f"making {FOLDER} (once)", file=sys.stderr)
        venv.create(FOLDER, with_pip=True, clear=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "-r"]
        subprocess.run([*install, str(HERE / "requirements.txt")], check=True)
        READY.write_text(requirements)
    return interpreter


if __name__ == "__main__":
    print(python())
