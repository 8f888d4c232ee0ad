"""Fixtures: the command `turnout`, a small plan, and a finished run of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from command_line import PLAN, environment
from forked import completed

Turnout = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Run:
    """Finished run: its folder and its output."""

    folder: Path
    stdout: str


def start(folder: Path, *arguments: object, **how) -> subprocess.CompletedProcess[str]:
    return completed(*arguments, folder=folder, environment=environment(), **how)


@pytest.fixture
def turnout(tmp_path) -> Turnout:
    return partial(start, tmp_path)


@pytest.fixture
def plan(tmp_path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Run:
    """Finished run that many tests read and no test may change."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "plan.toml").write_text(PLAN)
    done = start(folder, "train", "plan.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    return Run(folder / "run", done.stdout)


@pytest.fixture
def own_run(trained, tmp_path) -> Path:
    """Copy of the finished run, which a test may change."""
    return Path(shutil.copytree(trained.folder, tmp_path / "run"))
