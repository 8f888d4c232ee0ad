"""Help of the command line: groups, examples that run, pages, defaults, and completed values."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from turnout.cli import GROUPS, PURPOSES
from turnout.cli.examples import HELP
from turnout.cli.main import turnout
from turnout.cli.options import Word, folded

ROOT = Path(__file__).parents[2]
RUN = {
    "account": (2, 3),
    "budget open": (0, 1),
    "budget charge": (0, 1),
    "budget show": (0, 1),
    "completion": (1,),
    "estimate frequencies": (0, 2),
    "estimate mean": (0, 1, 2),
    "estimate user-mean": (1,),
    "new": (0, 1),
    "plugins": (0, 1),
    "refine encode": (0, 1),
    "refine decode": (0, 1),
    "refine limited": (0, 1),
}
"""Numbers of the examples that are run, in this order; others take long, serve or read a run."""


def commands(group: click.Group, path: str = "") -> dict[str, click.Command]:
    """All commands and groups below a group, by the words that call them."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = f"{path} {name}".strip()
        found[words] = command
        if isinstance(command, click.Group):
            found |= commands(command, words)
    return found


COMMANDS = commands(turnout)


def printed(*words: str) -> str:
    return CliRunner().invoke(turnout, words, catch_exceptions=False).stdout


def test_the_help_lists_every_command_once_below_a_topic():
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(PURPOSES)
    text = printed("--help")
    assert re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE) == ["Options", *GROUPS]


def test_every_command_has_help_examples_and_a_documentation_page():
    assert HELP.keys() == COMMANDS.keys()


@pytest.mark.parametrize("words", HELP)
def test_the_help_of_a_command_shows_two_examples_and_a_documentation_page(words):
    found = HELP[words]
    text = printed(*words.split(), "--help")
    assert len(set(found.examples)) == len(found.examples) >= 2
    unfolded = re.sub(r" \\\n\s+", " ", text)
    assert all(f"\n  {example}\n" in unfolded for example in found.examples)
    shown = text.partition("\nExamples:\n")[2].splitlines()
    assert max(map(len, shown)) <= 80
    *_, last = text.splitlines()
    repository, site = re.fullmatch(
        r"Documentation: (\S+) \(on the site: (\S+)\.html\)", last
    ).groups()
    assert (ROOT / repository).exists()
    assert repository == ("README.md" if site == "index" else f"docs/{site}.md")


def parsed(example: str) -> tuple[click.Command, list[str]]:
    """Command of an example, and its arguments; a redirection of the output is left out."""
    program, *words = shlex.split(example.partition(" > ")[0])
    assert program == "turnout"
    command: click.Command = turnout
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    return command, words


EXAMPLES = sorted({example for found in HELP.values() for example in found.examples})


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_options_of_a_help_example_are_accepted_by_its_command(example):
    command, words = parsed(example)
    with patch.object(click.Path, "convert", lambda _, value, *__: value):
        command.make_context("turnout", words)


def files(folder: Path) -> None:
    """Write the files that the examples read."""
    draws = np.random.default_rng(1)
    np.save(folder / "ages.npy", draws.integers(0, 120, 2000))
    np.save(folder / "vectors.npy", draws.normal(size=(500, 3)) / 10)
    rows = zip(("Bonn", "Trier") * 300, draws.integers(18, 90, 600), strict=True)
    lines = [f"{town},{age},{age + 90}" for town, age in rows]
    (folder / "survey.csv").write_text("\n".join(["town,age,height", *lines]))
    (folder / "towns.txt").write_text("Bonn\nTrier\n")
    days = "\n".join(f"{a},{b}" for a, b in draws.integers(5, 90, (3000, 2)))
    (folder / "days.csv").write_text(f"monday,tuesday\n{days}\n")


def test_help_examples_that_need_no_coordinator_run(tmp_path, monkeypatch):
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words, numbers in RUN.items():
        for number in numbers:
            example = HELP[words].examples[number]
            arguments = shlex.split(example.partition(" > ")[0])[1:]
            done = CliRunner().invoke(turnout, arguments)
            assert (done.exit_code, done.stderr) == (0, ""), (example, done.output, done.exception)


def test_a_help_example_on_several_lines_is_one_shell_command():
    line = "turnout account --scheme check-in --window 1000 --json --delta 1e-6 words"
    lines = folded(line, 30)
    assert len(lines) == 4
    assert max(map(len, lines)) <= 30
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == line.split()


def options() -> list[tuple[str, click.Option]]:
    return [
        (words, option)
        for words, command in COMMANDS.items()
        for option in command.get_params(click.Context(command))
        if isinstance(option, click.Option) and not option.is_flag
    ]


def test_the_help_of_an_option_shows_its_default():
    for words, option in options():
        default = option.get_default(click.Context(COMMANDS[words]))
        if isinstance(default, str | int | float | Path) and default != "":
            text = (option.help or "").lower()
            assert option.show_default or "default" in text, (words, option.opts)


def test_the_help_of_an_option_lists_its_possible_values():
    chosen = [(words, option) for words, option in options() if isinstance(option.type, Word)]
    assert len(chosen) > 15
    for words, option in chosen:
        assert isinstance(option.type, Word)
        known = [word for word in option.type.look_up() if word != "noise"]
        missing = [word for word in known if word not in (option.help or "")]
        assert not missing or (words, option.opts[0]) == ("audit", "--example"), (words, missing)


def completions(*words: str) -> list[str]:
    """Words that a shell offers for the last of some words."""
    *before, last = words
    kind = BashComplete(turnout, {}, "turnout", "_TURNOUT_COMPLETE")
    return [each.value for each in kind.get_completions(before, last)]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("acc",), ["account"]),
        (("budget", ""), ["charge", "left", "open", "show"]),
        (("account", "--scheme", "ch"), ["check-in"]),
        (("account", "--randomizer", "lap"), ["laplace"]),
        (("account", "--relation", "add"), ["add-remove"]),
        (("account", "--sampler", "f"), ["fixed-size"]),
        (("calibrate", "--solve-for", "wi"), ["window", "windows"]),
        (("compare", "--against", "r"), ["rounds"]),
        (("train", "--example", "mnist-sh"), ["mnist-shuffled"]),
        (("train", "--engine", "r"), ["ray"]),
        (("estimate", "frequencies", "survey.csv", "--column", "t"), ["town"]),
        (("estimate", "mean", "survey.csv", "--column", ""), ["town", "age", "height"]),
        (("fleet", "http://127.0.0.1:8000", "--data", "f"), ["fashion-mnist"]),
    ],
    ids=" ".join,
)
def test_a_shell_completes_the_possible_values_of_an_option(words, offered, tmp_path, monkeypatch):
    (tmp_path / "survey.csv").write_text("town,age,height\nBonn,30,180\n")
    monkeypatch.chdir(tmp_path)
    assert completions(*words) == offered


def test_every_option_that_takes_a_file_completes_file_names():
    """An option whose value is called FILE, DB, DIR or PLAN has the type of a path."""
    named = [
        each for each in options() if each[1].metavar in ("FILE", "DB", "DIR", "FOLDER", "DATA")
    ]
    assert len(named) > 40
    assert all(isinstance(option.type, click.Path) for _, option in named)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_printed_for_each_shell(shell):
    text = printed("completion", shell)
    assert f"_TURNOUT_COMPLETE={shell}_complete" in text


def test_the_installed_command_answers_completion_requests_of_the_shell():
    environment = {
        **os.environ,
        "_TURNOUT_COMPLETE": "bash_complete",
        "COMP_WORDS": "turnout ledger ver",
        "COMP_CWORD": "2",
    }
    program = str(Path(sys.executable).with_name("turnout"))
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "plain,verify\n"
