"""Tests of the wheel in an empty environment, and of src without the package `service`.

``make wheel`` runs these tests. The wheel and its required dependencies are installed into an empty
environment, where the Python and the commands of README.md must print the output that README.md
shows. Then `turnout/service` is deleted from a copy of src, where importing, accounting, estimation
and training must work.
"""

from __future__ import annotations

import doctest
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
WITHOUT_SERVICE = (
    "account --scheme check-in --noise-multiplier 1.0 --window 1000 --delta 1e-6 "
    "--relation add-remove",
    "estimate frequencies towns.csv --column town --labels labels.txt --epsilon 1 --model local",
    "train --example digits --out run",
)


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Output of a command, which must exit with status 0."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_readme(folder: Path) -> None:
    """Run README.md in an empty environment with the wheel."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], folder)
    (wheel,) = folder.glob("turnout-*.whl")
    run([sys.executable, "-m", "venv", "bare"], folder)
    binaries = folder / "bare" / "bin"
    run([*pip, "--python", str(binaries / "python"), "install", str(wheel)], folder)

    # The Python session, as a doctest in the environment's interpreter.
    session = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    (folder / "session.txt").write_text(session)
    examples = doctest.DocTestParser().get_examples(session)
    run([str(binaries / "python"), "-m", "doctest", "session.txt"], folder)

    # The commands, compared with the output in the README.
    (block,) = re.findall(r"```console\n(\$ turnout .*?)```", README, re.DOTALL)
    parts = re.findall(r"\$ turnout (.*)\n((?:(?!\$ ).*\n)*)", block)
    for arguments, shown in parts:
        printed = run([str(binaries / "turnout"), *arguments.split()], folder)
        if [line.rstrip() for line in printed.splitlines()] != shown.splitlines():
            sys.exit(f"turnout {arguments} printed\n{printed}\nand the README shows\n{shown}")
    print(f"README in a bare environment: {len(examples)} expressions, {len(parts)} commands: same")


def check_without_service(folder: Path) -> None:
    """Import turnout, compute ε, estimate and train with `turnout/service` deleted."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source)
    shutil.rmtree(source / "turnout" / "service")
    (folder / "towns.csv").write_text("town\n" + "Bonn\n" * 600 + "Trier\n" * 400)
    (folder / "labels.txt").write_text("Bonn\nTrier\n")
    python = [sys.executable, "-c"]
    names = "import turnout; [getattr(turnout, name) for name in dir(turnout)]"
    run([*python, names], folder, PYTHONPATH=str(source))
    program = "import sys; from turnout.cli.main import main; sys.exit(main())"
    for arguments in WITHOUT_SERVICE:
        run([*python, program, *arguments.split()], folder, PYTHONPATH=str(source))
        print(f"without service: turnout {arguments.partition(' --')[0]} works")


def main() -> None:
    """Run both checks in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        check_readme(Path(folder))
        check_without_service(Path(folder))


if __name__ == "__main__":
    main()
