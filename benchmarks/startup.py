"""CPU time of starting: `import turnout`, and one whole `turnout account`.

The script prints the median of user and system time in seconds over runs in new interpreters, and
its ratio to the limit. The limit is for an idle core: other work on the machine increases CPU time,
too.

    python benchmarks/startup.py --runs 9
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage

ACCOUNT = "account --scheme check-in --window 1000 --noise-multiplier 1 --delta 1e-6"
CLI = "import sys; from turnout.cli.main import main; main(sys.argv[1:])"
MEASURED = {
    "an empty interpreter": (["pass"], None),
    "import numpy": (["import numpy"], None),
    "import turnout": (["import turnout"], 0.1),
    "turnout account": ([CLI, *ACCOUNT.split(), "--relation", "add-remove"], 0.5),
}
"""Arguments of ``python -c`` and the limit in seconds."""


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one new interpreter."""
    command = [sys.executable, "-c", *arguments]
    compiled = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=compiled)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a line for each measured command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    for name, (arguments, limit) in MEASURED.items():
        cpu_seconds(arguments)  # the first run compiles bytecode
        seconds = statistics.median(cpu_seconds(arguments) for _ in range(runs))
        ratio = "" if limit is None else f"  {seconds / limit:.2f} of {limit:g} s"
        print(f"{name:22}{seconds:7.3f} s{ratio}")


if __name__ == "__main__":
    main()
