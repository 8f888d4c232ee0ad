"""Answers of another package with their CPU-seconds, as JSON lines, with a limit on each answer.

The scripts for other packages import this module in their own environments, so it uses only the
standard library. An answer that exceeds its limit ends the process (SIGXCPU) immediately, also
inside compiled code; every earlier answer has been printed by then.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from collections.abc import Callable, Iterable
from typing import Any

Answer = Callable[[], dict[str, Any]]


def arguments(description: str) -> argparse.ArgumentParser:
    """Command-line parser with the question and its limits, the same for every script."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--windows", type=int, required=True)
    parser.add_argument("--picks", type=int, default=1)
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument(
        "--scale", type=float, required=True, help="rough value of ε, where the search starts"
    )
    parser.add_argument(
        "--seconds", type=float, required=True, help="limit in CPU-seconds for one answer"
    )
    parser.add_argument("--gibibytes", type=float, required=True, help="limit on the address space")
    return parser


def limit_memory(gibibytes: float) -> None:
    size = int(gibibytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def measured(answer: Answer, seconds: float, **labels: Any) -> dict[str, Any]:
    """Print one answer, or the error in its place, with its CPU-seconds."""
    limit = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    started = time.process_time()
    try:
        found = answer()
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    row = {**labels, **found, "seconds": time.process_time() - started}
    print(json.dumps(row), flush=True)
    return row


def climb(
    levels: Iterable[tuple[Answer, dict[str, Any]]],
    seconds: float,
    growth: float,
    enough: Callable[[dict[str, Any]], bool],
) -> None:
    """Print finer and finer answers until one is enough, memory ends, or the limit is near.

    ``growth`` is a lower bound on the ratio of a level's time to that of the previous level.
    """
    for answer, labels in levels:
        row = measured(answer, seconds, **labels)
        out_of_memory = row.get("error", "").startswith("MemoryError")
        if out_of_memory or growth * row["seconds"] > seconds:
            return
        if "error" not in row and enough(row):
            return
