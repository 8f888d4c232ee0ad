"""Brackets on ε from other packages' scripts, each answer in its own process with a time limit."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.environment import python

HERE = Path(__file__).resolve().parent
GIBIBYTES = 8.0


@dataclass(frozen=True)
class Cell:
    """Gaussian noise, and ``picks`` steps in each of ``windows`` windows of ``window`` steps."""

    sigma: float
    window: int
    delta: float
    windows: int = 1
    picks: int = 1

    def __str__(self) -> str:
        times = f" × {self.windows}" if self.windows > 1 else ""
        picks = f" k={self.picks}" if self.picks > 1 else ""
        return f"σ={self.sigma:g} t={self.window:,}{times}{picks} δ={self.delta:g}"


@dataclass(frozen=True)
class Bracket:
    """Bounds on ε by one package, their CPU time, and the reason if a bound is missing."""

    who: str
    lower: float | None = None
    upper: float | None = None
    seconds: float | None = None
    directions: dict[str, tuple[float, float]] = field(default_factory=dict)
    settings: str = ""
    failure: str = ""

    @property
    def width(self) -> float | None:
        """Relative width (upper − lower)/upper; None without a certified upper and lower bound."""
        if self.lower is None or self.upper is None or not 0 < self.upper < math.inf:
            return None
        return (self.upper - self.lower) / self.upper

    def overlaps(self, other: Bracket) -> bool:
        """Whether one number can lie in both brackets; missing bounds exclude nothing."""
        return self._is_below(other) and other._is_below(self)

    def _is_below(self, other: Bracket) -> bool:
        return self.lower is None or other.upper is None or self.lower <= other.upper


@dataclass(frozen=True)
class Asked:
    """A cell, and the limits for every answer to it; ``scale`` is a rough value of ε."""

    cell: Cell
    scale: float
    seconds: float

    def rows(
        self, peer: str, route: str, seconds: float | None = None
    ) -> tuple[list[dict[str, Any]], str]:
        """All answers of one route, and the reason if the route was stopped."""
        seconds = self.seconds if seconds is None else seconds
        script = HERE / f"{peer.replace('-', '_')}_prices.py"
        # The script of the other package receives the question and its limits as options.
        numbers = {
            "sigma": self.cell.sigma,
            "window": self.cell.window,
            "windows": self.cell.windows,
            "picks": self.cell.picks,
            "delta": self.cell.delta,
            "scale": self.scale,
            "seconds": seconds,
            "gibibytes": GIBIBYTES,
        }
        flags = [f"--{name}={value!r}" for name, value in numbers.items()]
        command = [str(python(peer)), "-W", "ignore", str(script), *flags, route]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        # Answers that were printed before a limit ended the process still count.
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode == -signal.SIGXCPU:
            return rows, f"does not finish in {seconds:g} CPU-seconds"
        if done.returncode:
            return rows, (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]
        return rows, ""


def default(peer: str, asked: Asked) -> Bracket:
    """Answer of another package with its documented settings."""
    who = f"{peer}, default"
    rows, ended = asked.rows(peer, "default")
    if not rows:
        return Bracket(who, failure=ended)
    if "error" in rows[0]:
        return Bracket(who, failure=rows[0]["error"])
    row = rows[0]
    return Bracket(who, row.get("lower"), row["upper"], row["seconds"])


def pld_accounting_at_best(asked: Asked, wanted: float) -> Bracket:
    """Best three calls in hindsight: upper bounds in both directions, and a lower bound.

    Of all tried settings, these are the ones that reach the wanted relative width in the fewest
    CPU-seconds or, if none reaches it, the ones that come nearest within the limit.
    """
    share = asked.seconds / 2  # three calls share the limit; the third is cheap
    found: dict[str, list[dict[str, Any]]] = {}
    for route in ("upper-remove", "fft-remove", "upper-add", "lower-remove"):
        rows, _ = asked.rows("pld-accounting", route, share)
        found[route] = [{**row, "route": route} for row in rows if "error" not in row]
    removes = found["upper-remove"] + found["fft-remove"]
    who = "pld-accounting, best"
    choices = [
        (upper, lower["epsilon"], sum(row["seconds"] for row in calls), calls)
        for calls in itertools.product(removes, found["upper-add"], found["lower-remove"])
        for upper, lower in [(max(calls[0]["epsilon"], calls[1]["epsilon"]), calls[2])]
    ]
    choices = [choice for choice in choices if choice[2] <= asked.seconds]
    if not choices:
        return Bracket(who, failure=f"no bracket in {asked.seconds:g} CPU-seconds")
    upper, lower, seconds, calls = min(choices, key=lambda c: _merit(c[0], c[1], c[2], wanted))
    settings = "; ".join(_settings(row) for row in calls)
    return Bracket(who, lower, upper, seconds, settings=settings)


def random_allocation_at_best(asked: Asked, wanted: float, documented: Bracket) -> Bracket:
    """Least upper bound, including that of the documented settings, and the lower bound."""
    who, cell = "random-allocation, best", asked.cell
    uppers, ended = asked.rows("random-allocation", "upper")
    lowers = asked.rows("random-allocation", "lower")[0] if cell.windows == 1 else []
    lower = next((row for row in lowers if "error" not in row), {"lower": None, "seconds": 0.0})
    uppers.append({"upper": documented.upper or math.inf, "seconds": documented.seconds})
    uppers = [row for row in uppers if math.isfinite(row.get("upper", math.inf))]
    if not uppers:
        return Bracket(who, failure=ended or "no finite upper bound")
    best = min(
        uppers, key=lambda row: _merit(row["upper"], lower["lower"] or 0.0, row["seconds"], wanted)
    )
    seconds = best["seconds"] + lower["seconds"]
    return Bracket(who, lower["lower"], best["upper"], seconds, settings=_settings(best))


def contradictions(brackets: Sequence[Bracket]) -> Iterable[tuple[Bracket, Bracket]]:
    """Pairs of brackets that cannot both be correct."""
    for first, second in itertools.combinations(brackets, 2):
        if not first.overlaps(second):
            yield first, second


def _merit(upper: float, lower: float, seconds: float, wanted: float) -> tuple[float, float]:
    """Sort key: width down to the wanted width (to a hundredth), then CPU-seconds."""
    width = max((upper - lower) / upper, wanted)
    return round(math.log(width, 1.01)), seconds


def _settings(row: dict[str, Any]) -> str:
    names = [f"{name} {row[name]:.3g}" for name in ("step", "points") if name in row]
    return " ".join([row.get("route", ""), *names]).strip()
