"""Comparison of two versions: every number of every command, bit for bit.

    python benchmarks/same_numbers.py --before REV              # about eight minutes of one core
    python benchmarks/same_numbers.py --before REV --only "account|train"
    python benchmarks/same_numbers.py --before REV --only "service one-client"

A worktree of the other revision runs the same commands next to this version, with the same
libraries and processor. The operating system's randomness is replaced by one stream of bytes, so
estimates, releases, keys and training repeat. JSON is compared float by float, files, text and
arrays by their bytes; times are left out. Then a coordinator serves a task to devices in separate
processes, and the releases are compared. Each command gets one line with a verdict

    same       nothing differs
    words      every number is equal bit for bit; words, names or more numbers are new
    different  a number is changed or missing, or the exit status; the script's status is then 1

and the CPU-seconds of both versions.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

_HERE = Path(__file__).parent
sys.path.append(str(_HERE / "service"))

from same import served  # noqa: E402
from same.commands import commands, write_inputs  # noqa: E402
from same.parts import Part, of_file, same  # noqa: E402
from servers import Version, versions  # noqa: E402

REFUSED = 2
VERDICTS = ("same", "words", "different")
PRINTED = ("printed", "said")
SAID_NO = 3
"""Exit status of `ledger verify` for a cost that it cannot recompute."""


@dataclass
class Side:
    """One version, the folder in which its commands run, and the process that runs them."""

    name: str
    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[str]
    seen: set[Path] = field(default_factory=set)

    @classmethod
    def of(cls, version: Version, parent: Path) -> Side:
        """Side of a version, with the commands' files in its folder."""
        folder = parent / version.name
        folder.mkdir()
        write_inputs(folder)
        served.write_inputs(folder)
        environment = version.environment() | {
            "COLUMNS": "100",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(parent / f"compiled-{version.name}"),
        }
        process = subprocess.Popen(
            [sys.executable, str(_HERE / "same" / "answering.py")],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        side = cls(version.name, folder, environment, process)
        side.new_files()
        return side

    def answer(self, command: str) -> Answer:
        """Output of a command, printed and written."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        status, seconds = json.loads(self.process.stdout.readline())
        return Answer(status, seconds, self.new_files())

    def new_files(self) -> dict[str, Part]:
        """Files created since the last call, including the printed output."""
        files = {path for path in self.folder.rglob("*") if path.is_file()} - self.seen
        self.seen |= files - {self.folder / name for name in PRINTED}
        return {
            str(path.relative_to(self.folder)): of_file(path)
            for path in sorted(files)
            if not served.kept_apart(path)
        }


@dataclass(frozen=True)
class Answer:
    """Result of a command.

    Attributes:
        status: exit status.
        seconds: CPU-seconds.
        parts: printed output, and files by name.
    """

    status: int
    seconds: float
    parts: dict[str, Part]


def main() -> None:
    """Compare all commands and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", metavar="REV", required=True)
    parser.add_argument(
        "--only", metavar="REGEX", default="", help="run only commands that match this pattern"
    )
    parser.add_argument("--strict", action="store_true", help="count changed words as a difference")
    options = parser.parse_args()
    asked = [each for each in commands() if re.search(options.only, each)]
    verdicts: Counter[str] = Counter()
    seconds = [0.0, 0.0]
    with ExitStack() as stack:
        parent = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # One process for each version, which runs all commands.
        sides = [
            Side.of(version, parent) for version in stack.enter_context(versions(options.before))
        ]
        stack.callback(lambda: [side.process.terminate() for side in sides])
        for command in asked:
            before, now = answers(sides, command)
            verdicts[report(command, before, now)] += 1
            seconds = [seconds[0] + before.seconds, seconds[1] + now.seconds]
        # Served tasks: coordinator and devices of both versions run at the same time.
        for release in served.RELEASES:
            if re.search(options.only, f"service {release}"):
                for command in served.commands(release):
                    verdicts[report(command, *served_answers(sides, command))] += 1
    print(f"\n{verdicts.total()} commands: " + ", ".join(f"{verdicts[v]} {v}" for v in VERDICTS))
    print(f"CPU-seconds: {seconds[0]:.1f} before, {seconds[1]:.1f} now")
    sys.exit(bool(verdicts["different"] or (options.strict and verdicts["words"])))


def answers(sides: list[Side], command: str) -> tuple[Answer, Answer]:
    """Answers of both versions; for a renamed word this version may run the other spelling."""
    before, now = sides
    answer = now.answer(words(command, -1))
    if answer.status == REFUSED and words(command, 0) != words(command, -1):
        answer = now.answer(words(command, 0))
    return before.answer(words(command, 0)), answer


def words(command: str, choice: int) -> str:
    """Command line in one version's spelling: of ``a|b`` the first or the second."""
    return re.sub(r"[\w-]+(\|[\w-]+)+", lambda found: found[0].split("|")[choice], command)


def served_answers(sides: list[Side], command: str) -> tuple[Answer, Answer]:
    """Answers of both versions to a service command; the servers of both run concurrently."""
    if not command.startswith("serve "):
        return answers(sides, command)
    runs = [served.Run(side.folder, side.environment, command) for side in sides]
    found = [
        Answer(run.wait(), 0.0, side.new_files()) for run, side in zip(runs, sides, strict=True)
    ]
    return found[0], found[1]


def report(command: str, before: Answer, now: Answer) -> str:
    """Print one line and the differences of a command, and return the verdict."""
    found = {
        name: same(before.parts.get(name), now.parts.get(name))
        for name in [*before.parts, *(now.parts.keys() - before.parts.keys())]
    }
    verdict = max([*found.values(), "same"], key=VERDICTS.index)
    if before.status != now.status or before.status not in (0, SAID_NO):
        verdict = "different"
    times = f"{before.seconds:6.2f} {now.seconds:6.2f}"
    print(f"{verdict:10}{times}  {command}", flush=True)
    if before.status or now.status:
        print(f"           exit status {before.status} before, {now.status} now")
    for name in (name for name, one in found.items() if one == verdict != "same"):
        print(f"           {name}: {first_difference(before.parts.get(name), now.parts.get(name))}")
    return verdict


def first_difference(before: Part | None, now: Part | None) -> str:
    """First line that differs, in both versions."""
    if before is None or now is None:
        return "is only there " + ("now" if before is None else "before")
    lines = before.whole.splitlines(), now.whole.splitlines()
    pairs = zip_longest(*lines, fillvalue="(no more)")
    was, is_now = next(((a, b) for a, b in pairs if a != b), ("", ""))
    return f"{was.strip()[:150]!r}\n{'':23}now {is_now.strip()[:150]!r}"


if __name__ == "__main__":
    main()
