"""Command line in the process of the test: exit codes, imports, help texts, repeated options."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from turnout.cli import PURPOSES
from turnout.cli import main as command_line
from turnout.cli.main import EXIT_CODES, main, turnout
from turnout.core import errors


def kinds(base: type) -> list[type]:
    return [base, *(kind for child in base.__subclasses__() for kind in kinds(child))]


def raised(kind: type[BaseException]) -> BaseException:
    if kind is errors.ParameterError:
        return kind("window", 0, "a whole number of at least 1")
    if kind is errors.BudgetExceededError:
        return kind(3.0, 1.0)
    return kind("two\nlines")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ParameterError, 2),
        (errors.UnsupportedError, 2),
        (errors.BudgetExceededError, 2),
        (errors.TurnoutError, 2),
        (errors.NumericalError, 3),
        (errors.InputFileError, 2),
        (errors.StorageError, 4),
        (errors.ProtocolError, 5),
        (errors.LocalProtocolError, 5),
        (errors.RemoteProtocolError, 5),
        (KeyboardInterrupt, 130),
        (click.Abort, 130),
        (click.UsageError, 2),
    ],
)
def test_each_kind_of_error_prints_one_line_and_sets_its_exit_code(monkeypatch, capsys, kind, code):
    def fail(**_: object) -> None:
        raise raised(kind)

    monkeypatch.setattr(turnout, "main", fail)
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("turnout: ")
    assert printed.err.count("\n") == 1


def test_every_error_class_of_the_package_has_an_exit_code():
    tree = [kind for kind in kinds(errors.TurnoutError) if kind.__module__.startswith("turnout.")]
    assert len(tree) >= 9
    for kind in tree:
        assert any(issubclass(kind, known) for known in EXIT_CODES)


def test_unexpected_errors_keep_their_traceback(monkeypatch):
    def fail(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(turnout, "main", fail)
    with pytest.raises(ZeroDivisionError):
        main([])


def test_every_command_and_every_option_has_a_help_text():
    context = click.Context(turnout)
    assert tuple(turnout.list_commands(context)) == tuple(sorted(PURPOSES))
    for name in PURPOSES:
        command = turnout.get_command(context, name)
        assert command is not None
        assert command.help
        for parameter in command.get_params(context):
            assert isinstance(parameter, click.Argument) or parameter.help, parameter.name


def test_help_imports_no_large_package():
    heavy = "{'torch', 'numpy', 'scipy', 'pydantic', 'matplotlib', 'dp_accounting', 'rich'}"
    script = (
        "import sys\nfrom turnout.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"loaded = {heavy} & set(sys.modules)\nassert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_main_command_is_named_turnout():
    assert command_line.turnout.name == "turnout"


def leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    """All commands that are not groups, each with the words that call it."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    return [
        leaf
        for name in command.list_commands(context)
        for leaf in leaves(command.get_command(context, name), (*path, name))  # type: ignore[arg-type]
    ]


LEAVES = leaves(turnout)


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_an_option_of_one_value_is_refused_if_it_is_given_twice(path, command, capsys):
    single = [
        option
        for option in command.get_params(click.Context(command))
        if isinstance(option, click.Option) and not option.multiple and "--help" not in option.opts
    ]
    assert single or path == ("completion",)
    for option in single:
        words = [option.opts[-1]] if option.is_flag else [option.opts[-1], "1"]
        with pytest.raises(SystemExit) as end:
            main([*path, *words, *words])
        assert end.value.code == 2
        assert (
            f"{option.opts[-1]} is given 2 times: expected at most once" in capsys.readouterr().err
        )


def test_refine_encode_accepts_several_privacy_levels():
    encode = dict(LEAVES)["refine", "encode"]
    epsilon = next(option for option in encode.params if option.name == "epsilons")
    assert epsilon.multiple
