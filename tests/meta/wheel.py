"""Tests of the built package in empty environments, and of src without the package `service`.

``make wheel`` runs these tests. The source archive is built from the repository and the wheel from
that archive; twine and check-wheel-contents, in their newest versions, must accept both. The wheel
and its required dependencies are installed into an empty environment of each Python that
``--python`` names, where the Python and the commands of README.md must print the output that
README.md shows. Then `turnout/service` is deleted from a copy of src, where importing, accounting,
estimation and training must work.
"""

from __future__ import annotations

import argparse
import doctest
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MOST_MEGABYTES = 400  # an installation without extras stays below this size
BUILDERS = ("build", "check-wheel-contents", "setuptools>=77", "twine")
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


def pip(python: Path | str) -> list[str]:
    """Start of a command that runs pip for an interpreter."""
    options = ["--quiet", "--disable-pip-version-check", "--python", str(python)]
    return [sys.executable, "-m", "pip", *options]


def build(folder: Path) -> Path:
    """Wheel that is built from the source archive; both pass the checks of package indexes."""
    # The tools have an environment of their own, so the project's lock does not depend on them.
    run([sys.executable, "-m", "venv", "tools"], folder)
    binaries = folder / "tools" / "bin"
    run([*pip(binaries / "python"), "install", *BUILDERS], folder)
    # `build` makes the source archive, unpacks it and makes the wheel from what it contains.
    out = folder / "dist"
    command = [str(binaries / "python"), "-m", "build", "--no-isolation", "--outdir", str(out)]
    run([*command, str(ROOT)], folder)
    files = sorted(out.iterdir())
    run([str(binaries / "twine"), "check", "--strict", *map(str, files)], folder)
    (wheel,) = out.glob("turnout-*.whl")
    # The folders that `turnout new` copies are complete, so some of their files are equal (W002).
    run([str(binaries / "check-wheel-contents"), "--ignore", "W002", str(wheel)], folder)
    sizes = ", ".join(f"{file.name} {file.stat().st_size / 1e6:.1f} MB" for file in files)
    print(f"built and accepted by twine and check-wheel-contents: {sizes}")
    return wheel


def check_readme(wheel: Path, python: str, folder: Path) -> None:
    """Run README.md with the wheel in an empty environment of one Python."""
    folder.mkdir()
    run([python, "-m", "venv", "--without-pip", "bare"], folder)
    binaries = folder / "bare" / "bin"
    run([*pip(binaries / "python"), "install", str(wheel)], folder)
    megabytes = sum(f.stat().st_size for f in (folder / "bare").rglob("*") if f.is_file()) / 1e6
    if megabytes > MOST_MEGABYTES:
        sys.exit(f"an installation without extras has {megabytes:.0f} MB: above {MOST_MEGABYTES}")

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
    version = run([str(binaries / "python"), "--version"], folder).strip()
    counts = f"{len(examples)} expressions, {len(parts)} commands: same"
    print(f"README on {version}, {megabytes:.0f} MB installed: {counts}")


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
    """Run all checks in a temporary folder."""
    parser = argparse.ArgumentParser(description="Tests of the built package.")
    parser.add_argument(
        "--python",
        action="append",
        metavar="PATH",
        help="interpreters that run the README [default: the one that runs this program]",
    )
    pythons = parser.parse_args().python or [sys.executable]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        for number, python in enumerate(pythons):
            check_readme(wheel, python, folder / f"python-{number}")
        check_without_service(folder)


if __name__ == "__main__":
    main()
