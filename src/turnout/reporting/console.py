"""Terminal output of a run: progress on stderr, and the result on stdout.

`Console` shows a run's phases and steps; `run_table` returns the result as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import rich.console
import rich.status
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from turnout.core.files import SIMULATOR
from turnout.reporting.summary import (
    Outcome,
    Summary,
    baseline_words,
    protection_words,
    test_words,
    updates_words,
)
from turnout.reporting.training_report import PAGE, PICTURES
from turnout.reporting.words import Headline, guarantee_table, rounded_up
from turnout.simulation import Progress as RunProgress


class Console:
    """Output of a run to the terminal, or to a file if output is redirected."""

    def __init__(self) -> None:
        self._out = rich.console.Console()
        self._status = rich.console.Console(stderr=True)

    @contextmanager
    def phase(self, what: str) -> Iterator[_Phase]:
        """Context with a spinner, for a phase of a run; yields an object that shows texts."""
        with self._status.status(f"{what} …") as status:
            yield _Phase(what, status, self._status)

    @contextmanager
    def training(
        self, what: str, steps: int, target: float | None, spent: Callable[[int], float]
    ) -> Iterator[Callable[[RunProgress], None]]:
        """Context with a progress bar that shows the headline metric, ε so far and check-ins.

        Args:
            what: title of the bar.
            steps: number of steps of the run.
            target: target ε, if the plan has one.
            spent: function that returns the upper bound on ε after a number of steps. The function
                is called only if a terminal shows the bar.

        Yields:
            The function that updates the bar after a step.
        """
        # Columns of the bar.
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        of_target = "" if target is None else f" of {target:g}"
        headline = ""
        hidden = not self._status.is_terminal
        # The first call of `spent` takes long, so a spinner is shown meanwhile.
        if not hidden:
            with self.phase("pricing ε along the run"):
                spent(0)
        with Progress(*columns, console=self._status, transient=True, disable=hidden) as bar:
            task = bar.add_task(what, total=steps, state="")

            # Each step updates the metric, ε so far and the number of check-ins.
            def tell(progress: RunProgress) -> None:
                nonlocal headline
                if hidden:
                    return
                if progress.evaluation is not None:
                    name, value = next(iter(progress.evaluation.items()))
                    headline = f"{Headline(name).words} {Headline(name).text(value, 1)}  "
                epsilon = spent(progress.step)
                so_far = f"ε {rounded_up(epsilon, 3)}{of_target}"
                if math.isinf(epsilon):
                    so_far = "no privacy"
                state = f"{headline}{so_far}  check-ins {progress.participations:,}"
                bar.update(task, completed=progress.step, state=state)

            yield tell

    def report(self, summary: Summary, folder: Path) -> None:
        """Print the result of a run, and the paths of its files in ``folder``."""
        self._out.print(run_table(summary))
        places = (
            ("report", folder / PAGE),
            ("pictures", folder / PICTURES),
            ("counts, not for release", folder / SIMULATOR),
        )
        for name, path in places:
            self._out.print(f"  {name}: {path}", soft_wrap=True, highlight=False)


class _Phase:
    """A running phase, whose spinner shows the given texts."""

    def __init__(
        self, what: str, status: rich.status.Status, console: rich.console.Console
    ) -> None:
        self._what, self._status, self._console = what, status, console

    def rows(self, what: str, done: int) -> None:
        """Show the number ``done`` of processed rows."""
        self._status.update(f"{self._what} … {what}: {done:,}")

    def note(self, text: str) -> None:
        """Print a line that stays on the screen when the progress display ends."""
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)


def run_table(summary: Summary) -> Table:
    """Result of a run as a table: quality of the model, and the guarantee."""
    outcome = summary.outcome
    history, prepared, headline = outcome.history, outcome.prepared, outcome.headline
    # The quality of the model, the protection and the running time.
    rows = {
        f"test {headline.words}": f"[bold]{headline.text(outcome.result)}[/bold]"
        f" (loss {outcome.loss:.4f})",
        "test records": test_words(outcome),
        "steps": f"{history.check_ins.size:,}",
        **{
            f"{name[:1].lower()}{name[1:]}": text
            for name, text in protection_words(prepared, outcome.parameters.size)
        },
        "training time": f"{outcome.seconds:.1f} s",
    }
    # The loss of quality due to absent devices, if the run has an availability trace.
    if summary.trace is not None:
        everyone = summary.trace.everyone.result
        lost = headline.lost(everyone, outcome.result)
        rows["with every phone present"] = f"{headline.text(everyone)}: absence costs {lost}"
    rows |= prepared.plan.data.provenance()
    # The guarantee, and the exact counts, which are not private.
    title = f"{prepared.plan.model.title} on {prepared.plan.data.title}"
    table = guarantee_table(prepared.guarantee, title, rows)
    seen = [_counts(outcome), *filter(None, [updates_words(outcome)])]
    if summary.baseline is not None:
        seen.append(baseline_words(outcome, summary.baseline))
    table.add_row("simulator's view", "\n".join(seen))
    return table


def _counts(outcome: Outcome) -> str:
    """Exact counts of participants, which only a simulation has."""
    history = outcome.history
    return (
        f"{history.participations:,} check-ins ({outcome.expected_check_ins.sum():,.0f} expected), "
        f"nobody came at {int((history.check_ins == 0).sum()):,} steps "
        f"({outcome.expected_empty_steps:.1f} expected); exact counts, not covered by ε"
    )
