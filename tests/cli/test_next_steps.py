"""The line about what to do next: on a terminal alone, on stderr, after the output."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.cli.options import next_step

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize(("terminal", "printed"), [(True, "next: look\n"), (False, "")])
def test_the_suggested_next_command_is_printed_only_on_a_terminal(
    monkeypatch, capsys, terminal, printed
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    next_step("look")
    assert capsys.readouterr() == ("", printed)


CLIENTS = 60
PLAN = f"""
[data]
name = "digits"
clients = {CLIENTS}
[model]
name = "logistic"
[participation]
law = "check-in"
window = 3
[privacy]
relation = "add-remove"
delta = 1e-4
epsilon = 3.0
[optimizer]
learning_rate = 0.5
"""


def on_a_terminal(folder, *words):
    """Output of a command, and what it writes on a terminal as stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "turnout", *words]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "dumb"}
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=theirs, check=True, env=environment
    )
    os.close(theirs)
    told = b""
    try:
        while part := os.read(ours, 4096):
            told += part
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    return done.stdout.decode(), told.decode()


def test_enrol_and_train_print_the_next_command_on_a_terminal(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    words = ["enrol", "2", "--db", "task.sqlite", "--plan", "plan.toml", "--out", "tokens.txt"]
    _, told = on_a_terminal(tmp_path, *words)
    assert "next: 2 invitations are in tokens.txt" in told
    assert "turnout serve plan.toml --db task.sqlite" in told
    # Without a number, each client that is not invited yet gets an invitation.
    printed, told = on_a_terminal(tmp_path, "enrol", "--db", "task.sqlite")
    assert len(printed.split()) == CLIENTS - 2
    assert f"next: {CLIENTS - 2} invitations are printed here" in told
    printed, told = on_a_terminal(tmp_path, "train", "plan.toml", "--out", "run")
    assert "turnout predict run DATA" in told
    assert "next:" not in printed
