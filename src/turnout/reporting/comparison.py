"""A comparison as a table and as JSON: one row for each value, one column for each method."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnout.core.errors import NumericalError, ParameterError, UnsupportedError
from turnout.plans import Sweep, sweep
from turnout.reporting.words import RELATIONS, TRUST, UNITS, rounded_down, rounded_up
from turnout.spec import PrivacyUnit, Relation

if TYPE_CHECKING:
    from rich.table import Table

    from turnout.accounting.comparison import Method, Quote, Setting

_BLANK = "–"
_SECONDS_BEFORE_PROGRESS = 2.0
Watcher = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Curve:
    """One method over the sweep.

    Attributes:
        method: which.
        quotes: at each value; a text says why there is none.
    """

    method: Method
    quotes: Sequence[Quote | str]

    def blanks(self, values: Sequence[float]) -> list[tuple[float, str]]:
        """Where there is no number, and why."""
        pairs = zip(values, self.quotes, strict=True)
        return [(value, quote) for value, quote in pairs if isinstance(quote, str)]

    @property
    def empty(self) -> bool:
        """Whether there is no number anywhere."""
        return all(isinstance(quote, str) for quote in self.quotes)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What accounting said at every point.

    Attributes:
        asked: the sweep.
        values: of what is swept.
        curves: one for each method.
        seconds: how long it took.
    """

    asked: Sweep
    values: Sequence[float]
    curves: Sequence[Curve]
    seconds: float

    def relation(self, method: Method) -> Relation:
        """The relation that a method's numbers are about."""
        return method.relation or self.asked.relation

    def record(self) -> dict[str, Any]:
        """The comparison as JSON-ready values."""
        return {
            "against": self.asked.against,
            "values": list(self.values),
            **self.asked.fixed(),
            "clients": self.asked.clients,
            "delta": self.asked.delta,
            "unit": PrivacyUnit.CLIENT.value,
            "methods": [self._curve_record(curve) for curve in self.curves],
            "seconds": self.seconds,
        }

    def _curve_record(self, curve: Curve) -> dict[str, Any]:
        method = curve.method
        return {
            "name": method.name,
            "about": method.about,
            "relation": self.relation(method).value,
            "directions": list(method.directions),
            "trust_model": method.trust.value,
            "epsilon": [None if isinstance(q, str) else q.epsilon for q in curve.quotes],
            "epsilon_lower": [
                None if isinstance(q, str) else q.epsilon_lower for q in curve.quotes
            ],
            "blanks": [
                {"value": value, "reason": reason} for value, reason in curve.blanks(self.values)
            ],
        }


def compare(flags: Mapping[str, object], watch: Watcher = lambda done, of: None) -> Comparison:
    """Every method at every value.

    Args:
        flags: of `turnout.plans.sweep`.
        watch: told how many of how many points are done.

    Raises:
        ParameterError: a flag.
    """
    asked = sweep(flags)
    from turnout.accounting.comparison import METHODS, Setting

    values, started = asked.values(), time.perf_counter()
    settings = [
        Setting(
            **{"windows": 1, **asked.fixed(), asked.key: value},
            delta=asked.delta,
            relation=asked.relation,
            clients=asked.clients,
            tolerance=asked.tolerance,
        )
        for value in values
    ]
    quotes: list[list[Quote | str]] = [[] for _ in METHODS]
    for done, setting in enumerate(settings):
        for index, method in enumerate(METHODS):
            watch(done * len(METHODS) + index, len(settings) * len(METHODS))
            quotes[index].append(_quoted(method, setting))
    curves = [Curve(method, row) for method, row in zip(METHODS, quotes, strict=True)]
    return Comparison(asked, values, curves, time.perf_counter() - started)


def show(comparison: Comparison, *, as_json: bool) -> None:
    """Prints a comparison on stdout."""
    if as_json:
        print(json.dumps(comparison.record(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    console.print(_table(comparison))
    for line in ["", *_notes(comparison), "", *_blanks(comparison)]:
        console.print(line, highlight=False, markup=False)


@contextmanager
def progress() -> Iterator[Watcher]:
    """A bar on stderr, in a terminal, once something has taken a while."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("comparing", total=None)
    patience = threading.Timer(_SECONDS_BEFORE_PROGRESS, bar.start)
    patience.daemon = True
    patience.start()
    try:
        yield lambda done, of: bar.update(task, completed=done, total=of)
    finally:
        patience.cancel()
        patience.join()
        bar.stop()


def _quoted(method: Method, setting: Setting) -> Quote | str:
    """ε, or why there is none."""
    try:
        return method.quote(setting)
    except (UnsupportedError, NumericalError, ParameterError) as refusal:
        return str(refusal)


def _table(comparison: Comparison) -> Table:
    """ε by value and method; methods without any number are left to the lines below."""
    from rich.table import Table

    asked = comparison.asked
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, title_justify="left")
    table.title = _title(comparison)
    table.add_column(asked.against.partition("-")[0], justify="right", no_wrap=True)
    columns: list[list[str]] = []
    for curve in comparison.curves:
        if curve.empty:
            continue
        table.add_column(_heading(curve.method), justify="right", overflow="fold")
        columns.append([_up(quote) for quote in curve.quotes])
        if curve.method is comparison.curves[0].method:
            table.add_column("at least", justify="right")
            columns.append([_down(quote) for quote in curve.quotes])
    for value, *row in zip(comparison.values, *columns, strict=True):
        table.add_row(_said(comparison, value), *row)
    return table


def _title(comparison: Comparison) -> str:
    asked = comparison.asked
    fixed = ", ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in asked.fixed().items())
    clients = "" if asked.clients is None else f", {asked.clients:,} clients"
    return f"ε at δ = {asked.delta:g}, {asked.relation.value}: {fixed}{clients}"


def _heading(method: Method) -> str:
    """A method's name, and what its numbers are about if that is not what was asked."""
    if method.relation is not None:
        return f"{method.name}\n({method.relation.value.split('-')[0]})"
    return method.name if len(method.directions) > 1 else f"{method.name}\n(remove)"


def _notes(comparison: Comparison) -> Iterable[str]:
    """What the columns are, and whom they protect against what."""
    asked = comparison.asked
    for curve in comparison.curves:
        method = curve.method
        note = (
            "; the remove direction alone, no guarantee" if method.directions == ("remove",) else ""
        )
        about = f"; {method.relation.value}" if method.relation is not None else ""
        yield f"{method.name}: {method.about}{about}{note}"
    yield ""
    yield f"relation {asked.relation.value}: {RELATIONS[asked.relation]}"
    yield f"unit {PrivacyUnit.CLIENT.value}: {UNITS[PrivacyUnit.CLIENT]}"
    for trust in dict.fromkeys(curve.method.trust for curve in comparison.curves):
        names = ", ".join(c.method.name for c in comparison.curves if c.method.trust is trust)
        yield f"trust model {trust.value} ({names}): {TRUST[trust]}"


def _blanks(comparison: Comparison) -> Iterable[str]:
    """Why there are blanks: one line for each method and kind of reason."""
    for curve in comparison.curves:
        kinds: dict[str, list[tuple[float, str]]] = {}
        for value, reason in curve.blanks(comparison.values):
            kinds.setdefault(re.sub(r"\d[\d.e+-]*", "", reason), []).append((value, reason))
        for blanks in kinds.values():
            values = [value for value, _ in blanks]
            ends = [_said(comparison, value) for value in (values[0], values[-1])]
            where = ends[0] if len(values) == 1 else " to ".join(ends)
            everywhere = len(values) == len(comparison.values)
            place = "everywhere" if everywhere else f"at {where}"
            yield f"{_BLANK} {curve.method.name}, {place}: {blanks[0][1]}"


def _said(comparison: Comparison, value: float) -> str:
    return f"{value:,}" if comparison.asked.whole else f"{value:g}"


def _up(quote: Quote | str) -> str:
    return _BLANK if isinstance(quote, str) else rounded_up(quote.epsilon)


def _down(quote: Quote | str) -> str:
    return _BLANK if isinstance(quote, str) else rounded_down(quote.epsilon_lower or 0.0)
