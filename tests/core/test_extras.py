"""Optional packages: errors name the missing extra, and core functions need none."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from turnout.core.installation import install_line
from turnout.core.optional import EXTRAS, unavailable

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

BLOCKED = """
import sys

class Blocked:
    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

"""
"""A finder of modules that finds none of some packages."""


def without(packages: tuple[str, ...], script: str, *arguments: object) -> tuple[int, str, str]:
    """How a script ends in an interpreter without these packages: its code, stdout and stderr."""
    begin = f"{BLOCKED}sys.meta_path.insert(0, Blocked(*{packages!r}))\n"
    command = [sys.executable, "-c", begin + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


COMMAND = "from turnout.cli.main import main; main(sys.argv[1:])"
SCHEME = ("--scheme", "check-in", "--window", "20", "--noise-multiplier", "1", "--delta", "1e-5")
SCHEME += ("--relation", "add-remove")
JOIN = ("join", "https://example.org", "--token", "x", "--data", "x.npz")
FLEET = ("fleet", "https://example.org", "--tokens", "x")


@pytest.mark.parametrize(
    ("package", "name", "extras", "arguments"),
    [
        ("torch", "PyTorch", "train", ("train", "plan.toml", "--out", "run")),
        ("jinja2", "jinja2", "train", ("train", "plan.toml", "--out", "run")),
        ("matplotlib", "matplotlib", "train", ("train", "--resume", "run")),
        ("torch", "PyTorch", "service,train", ("serve", "plan.toml")),
        ("uvicorn", "uvicorn", "service,train", ("serve", "plan.toml")),
        ("apsw", "apsw", "service", ("witness", "--db", "x")),
        ("apsw", "apsw", "service", ("enrol", "3", "--db", "x")),
        ("apsw", "apsw", "service", ("ledger", "export", "--db", "x")),
        ("cryptography", "cryptography", "device", ("ledger", "verify", __file__)),
        ("httpx", "httpx", "device", JOIN),
        ("httpx", "httpx", "device,train", FLEET),
        ("ray", "Ray", "ray", ("train", "plan.toml", "--out", "run", "--engine", "ray")),
    ],
)
def test_the_error_of_a_command_names_its_missing_extra(package, name, extras, arguments):
    code, _, said = without((package,), COMMAND, *arguments)
    words = " ".join(arguments[: 2 if arguments[0] == "ledger" else 1])
    assert said == f"turnout: turnout {words} needs {name}: {install_line(extras)}\n"
    assert code == 2


def test_the_error_of_the_picture_option_names_its_missing_extra():
    arguments = ("account", *SCHEME, "--explain", "--picture", "x.svg")
    code, said, error = without(("matplotlib",), COMMAND, *arguments)
    assert (code, said) == (2, "")
    assert error == f"turnout: --picture needs matplotlib: {install_line('plots')}\n"


@pytest.mark.parametrize(
    ("package", "extra", "script"),
    [
        ("torch", "train", "import turnout\nturnout.train('plan.toml', 'run')"),
        (
            "matplotlib",
            "plots",
            "import turnout as tn\n"
            "scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.EveryStep(1), relation='add-remove')\n"
            "tn.price(scheme, delta=1e-5).plot()",
        ),
        (
            "dp_accounting",
            "dp-accounting",
            "from turnout.accounting import PrivacyCurve\n"
            "PrivacyCurve.to_dp_accounting(object.__new__(PrivacyCurve))",
        ),
    ],
)
def test_the_error_of_a_function_names_its_missing_extra(package, extra, script):
    code, _, error = without((package,), script)
    last = error.splitlines()[-1]
    assert last.startswith("turnout.core.errors.MissingExtraError: ")
    assert last.endswith(install_line(extra))
    assert code == 1


@pytest.mark.parametrize(
    "module", ["assignment", "sklearn", "release_ledger", "jax_privacy", "dp_accounting"]
)
def test_adapters_of_other_libraries_are_imported_without_pytorch(module):
    code, _, error = without(("torch",), f"import turnout.integrations.{module}")
    assert (code, error) == (0, "")


@pytest.mark.parametrize(
    ("module", "package", "name", "extra"),
    [
        ("batches", "torch", "PyTorch", "opacus"),
        ("dp_accounting", "dp_accounting", "dp-accounting", "dp-accounting"),
        ("flower", "flwr", "Flower", "flower"),
        ("opacus", "opacus", "Opacus", "opacus"),
        ("ray", "ray", "Ray", "ray"),
        ("sklearn", "sklearn", "scikit-learn", "sklearn"),
    ],
)
def test_the_error_of_an_integration_names_its_missing_extra(module, package, name, extra):
    code, _, error = without((package,), f"import turnout.integrations.{module}")
    kind, needs = "turnout.core.errors.MissingExtraError", f"turnout.integrations.{module} needs"
    expected = f"{kind}: {needs} {name}: {install_line(extra)}"
    assert (code, error.splitlines()[-1]) == (1, expected)


def test_the_error_of_an_integration_names_other_missing_packages():
    lost = ModuleNotFoundError("No module named 'filelock'", name="filelock")
    assert unavailable(lost, "turnout.integrations.ray", "ray") is lost


def test_the_listed_extras_equal_those_declared_in_pyproject():
    declared = PROJECT["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        names = {re.split(r"[\[>;]", each)[0].replace("-", "_") for each in declared[extra]}
        imported = {"pillow": "PIL", "scikit_learn": "sklearn"}
        assert {imported.get(name, name) for name in names} == set(packages)
    assert set(declared) == {*EXTRAS, "all", "dev"}
    together = sorted(set(EXTRAS) - {"flower"})
    assert declared["all"] == [f"turnout[{','.join(together)}]"]


OPTIONAL = tuple(sorted({package for packages in EXTRAS.values() for package in packages}))


ESTIMATE = ("--model", "local", "--epsilon", "1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("account", *SCHEME, "--explain"),
        ("calibrate", *SCHEME[:4], *SCHEME[6:], "--epsilon", "1"),
        ("compare", *SCHEME[2:], "--against", "windows", "--from", "1", "--to", "2"),
        ("estimate", "frequencies", "{}", "--size", "3", *ESTIMATE),
        ("estimate", "mean", "{}", "--norm", "linf", "--radius", "2", *ESTIMATE),
        ("refine", "encode", "{}", "--size", "3", "--epsilon", "1", "2", "--out", "{}.out"),
    ],
)
def test_core_functions_need_no_optional_package(arguments, tmp_path):
    values = tmp_path / "values.csv"
    values.write_text("value\n" + "0\n1\n2\n" * 50)
    filled = [each.format(values) for each in arguments]
    code, said, error = without(OPTIONAL, COMMAND, *filled)
    assert (code, error) == (0, "")
    assert said


POSIX = ("fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios", "tty", "uvloop")
"""Modules that Windows lacks; ``posix`` is loaded by then, and stays."""

IMPORTS = """
import os, signal
from importlib import import_module
from pkgutil import walk_packages

for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "fchmod", "fork", "geteuid", "setsid"):
    delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "setitimer", "pthread_kill"):
    delattr(signal, name)
import turnout
from turnout.core.errors import MissingExtraError
for module in walk_packages(turnout.__path__, "turnout."):
    try:
        import_module(module.name)
    except MissingExtraError as error:
        assert error.extras == ("flower",)  # it has an environment of its own
    print(module.name)
"""


def test_every_module_is_importable_without_posix():
    theirs = (
        "anyio, apsw, click, dp_accounting.pld, hypothesis, opacus, psycopg, pytest, ray, "
        "sklearn, tempfile, torch, uvicorn"
    )
    before = f"import {theirs}\nfor name in {POSIX!r}: sys.modules.pop(name, None)\n"
    begin = f"{BLOCKED}{before}sys.meta_path.insert(0, Blocked(*{POSIX!r}))\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + IMPORTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 300


GRAPH_TESTS = Path(__file__).parents[1] / "service" / "test_graph_updates.py"


def test_a_device_runs_an_onnx_graph_with_the_packages_of_one_extra():
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    held = set(EXTRAS["device-graph"])
    others = sorted({package for extra in EXTRAS.values() for package in extra} - held)
    node = f"{GRAPH_TESTS}::test_a_device_downloads_the_onnx_graph_and_sends_an_update"
    script = "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    code, said, _ = without(tuple(others), script, "-q", "-p", "no:cacheprovider", node)
    assert "1 passed" in said
    assert code == 0
