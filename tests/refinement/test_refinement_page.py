"""The page about refinement: its commands run, and print what it shows but for chance."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "refinement.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def words(text):
    """Words alone: estimates differ from run to run."""
    return re.findall(r"[^\s\d.,]+", text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[0], {})
    return tmp_path


def test_the_commands_of_the_page_run(folder):
    program = str(Path(sys.executable).with_name("turnout"))
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    (shown,) = blocks("console")
    parts = re.findall(r"\$ (turnout .*)\n((?:(?!\$ ).*\n)*)", shown)
    assert len(parts) == 3
    for command, output in parts:
        done = subprocess.run(
            [program, *shlex.split(command)[1:]],
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            check=True,
        )
        assert done.stderr == ""
        assert words(done.stdout) == words(output)


def test_the_python_of_the_page_runs(folder, capsys):
    exec(blocks("python")[1], {})
    assert capsys.readouterr().out == "4.0 0.5\n"


def test_pictures_of_the_page_are_there():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 6
    for picture in pictures:
        assert (Path(__file__).parents[2] / "docs" / picture).exists()
