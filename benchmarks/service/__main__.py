"""Throughput and latency of signed, durable updates at a coordinator, also under attack.

    python benchmarks/service                              # this version, on SQLite
    python benchmarks/service --before REV --databases sqlite,postgres
    python benchmarks/service --only attacks               # or load, memory, ready
    python benchmarks/service --only memory --uploads 100000

A real `turnout serve` process receives updates of 50 KB, signed beforehand, from another process on
the same machine over plain HTTP. Times run from connect to receipt, including every retry that the
coordinator requests; an answer counts if it says that the update is stored. With --before, a
worktree of another revision is measured in alternation with this one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from scenarios import Figure, Rows, attacks, load, memory, ready
from servers import databases, versions

from turnout.reporting.surroundings import measured_on, surroundings

_SCENARIOS: dict[str, Callable[..., Figure]] = {
    "load": load,
    "attacks": attacks,
    "memory": memory,
    "ready": ready,
}


def main() -> None:
    """Run the scenarios on each database and version, alternating between the versions."""
    options = _options()
    rows: Rows = {}
    with ExitStack() as stack:
        beside = stack.enter_context(versions(options.before))
        for kind in options.databases.split(","):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
            named = stack.enter_context(databases(kind, folder))
            for scenario in options.only.split(","):
                # The versions alternate in both orders.
                for repeat in range(options.repeats):
                    for version in beside if repeat % 2 == 0 else beside[::-1]:
                        found = _SCENARIOS[scenario](version, folder, named, options)
                        for name, value in found.items():
                            key = f"{kind}, {version.name}: {name}"
                            rows.setdefault(key, []).append(value)
                            print(f"{key:64s} {value:>12.4g}", flush=True)
    print(f"\n{measured_on()}")
    _show(rows, [version.name for version in beside])
    if options.json:
        Path(options.json).write_text(
            json.dumps({"about": surroundings(), "rows": rows}, indent=1) + "\n"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", metavar="REV", help="another revision to measure")
    parser.add_argument("--databases", default="sqlite", help="sqlite, postgres or both")
    parser.add_argument("--only", default="load,attacks", help=", ".join(_SCENARIOS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--devices", type=int, default=512, help="number of devices that connect at once"
    )
    parser.add_argument(
        "--rounds", type=int, default=6, help="number of times that all devices connect"
    )
    parser.add_argument(
        "--kept",
        type=int,
        default=4000,
        help="uploads in each of three measurements after the rounds",
    )
    parser.add_argument("--bytes", type=int, default=50_000, help="size of an update")
    parser.add_argument(
        "--uploads", type=int, default=100_000, help="number of uploads in the memory scenario"
    )
    parser.add_argument(
        "--uploads-a-second", type=int, default=250, help="rate of uploads in the memory scenario"
    )
    parser.add_argument(
        "--stored", type=int, default=100_000, help="stored updates in the ready scenario"
    )
    parser.add_argument(
        "--folder", help="folder for databases; default: the system's temporary folder"
    )
    parser.add_argument("--json", help="JSON file for all results")
    return parser.parse_args()


def _show(rows: Rows, names: list[str]) -> None:
    """Print the medians, and their ratio if two versions were measured."""
    measured = list(dict.fromkeys(_split(key) for key in rows))
    print(f"{'median':54s}" + "".join(f"{name:>12s}" for name in names) + f"{'ratio':>9s}")
    for kind, name in measured:
        values = [_median(rows.get(f"{kind}, {version}: {name}", [])) for version in names]
        line = f"{kind}: {name}"
        ratio = values[-1] / values[0] if len(values) == 2 and values[0] else float("nan")
        print(f"{line:54s}" + "".join(f"{value:12.4g}" for value in values) + f"{ratio:9.2f}")


def _split(key: str) -> tuple[str, str]:
    label, _, name = key.partition(": ")
    return label.partition(", ")[0], name


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else float("nan")


if __name__ == "__main__":
    main()
