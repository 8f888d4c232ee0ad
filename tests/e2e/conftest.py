"""`turnout` as a fixture, and a small plan."""

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
    """A finished run and what it printed."""

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
    """A run that many tests look at, and none may change."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "plan.toml").write_text(PLAN)
    done = start(folder, "train", "plan.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    return Run(folder / "run", done.stdout)


@pytest.fixture
def own_run(trained, tmp_path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(trained.folder, tmp_path / "run"))
