"""Python environments of other packages: python benchmarks/peers/environment.py [PEER]

An environment lies in ``.venv`` next to its ``requirements.txt``: that of pfl in this folder, that
of any other package in ``environments/PEER``.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent


def python(peer: str | None = None) -> Path:
    """Interpreter of a package's environment (without a name: pfl's), created if needed."""
    folder = HERE if peer is None else HERE / "environments" / peer
    requirements, environment = folder / "requirements.txt", folder / ".venv"
    interpreter, ready = environment / "bin" / "python", environment / "ready"
    wanted = requirements.read_text()
    if not ready.is_file() or ready.read_text() != wanted:
        print(f"making {environment} (once)", file=sys.stderr)
        venv.create(environment, with_pip=True, clear=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "-r"]
        subprocess.run([*install, str(requirements)], check=True)
        ready.write_text(wanted)
    return interpreter


if __name__ == "__main__":
    print(python(*sys.argv[1:2]))
