"""Progress of a run on a terminal, and silence without a terminal."""

from __future__ import annotations

import io

import pytest
import rich.console

from turnout.reporting.console import Console
from turnout.simulation import Progress


@pytest.mark.parametrize(("terminal", "asked"), [(True, [0, 1, 2]), (False, [])])
def test_epsilon_of_steps_is_computed_only_if_a_progress_bar_is_shown(terminal, asked):
    console, screen, priced = Console(), io.StringIO(), []
    console._status = rich.console.Console(file=screen, force_terminal=terminal, width=200)

    def spent(step: int) -> float:
        priced.append(step)
        return step / 4

    with console.training("training", 2, 1.5, spent) as tell:
        assert priced == asked[:1]
        for step in (1, 2):
            tell(Progress(step, 2, 3, 3 * step, 0.1, {"accuracy": 0.75}))
    assert priced == asked
    assert ("ε 0.5 of 1.5" in screen.getvalue()) is terminal
