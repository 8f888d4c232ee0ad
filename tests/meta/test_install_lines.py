"""No file installs turnout by package name, and all install commands equal the configured one."""

import tomllib
from pathlib import Path

import pytest
from install_lines import ROOT, by_name, rewritten, texts

from turnout import __version__
from turnout.core.installation import WHEEL, install_line

TEXTS = texts()


def test_install_commands_name_no_package_index():
    assert {path: by_name(path, text) for path, text in TEXTS.items() if by_name(path, text)} == {}


def test_every_documented_install_command_equals_the_configured_one():
    """If this test fails, run python tests/meta/install_lines.py."""
    assert [path for path, text in TEXTS.items() if rewritten(text) != text] == []
    installing = [path.name for path, text in TEXTS.items() if WHEEL in text]
    assert {"service.md", "deployment.md", "witness.md", "installation.py"} <= set(installing)


def test_the_configured_install_command_names_the_built_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"./{project['name']}-{__version__}-py3-none-any.whl" == WHEEL
    assert "version" in project["dynamic"]
    assert install_line() == f"pip install {WHEEL}"
    assert "*.whl" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", "$ pip install 'turnout[service]'"),
        ("page.md", "with `pip install --upgrade turnout`, or"),
        ("page.md", "a code span that goes on (`pip install\n'turnout[device,train]'`)"),
        ("page.md", "$ pip install --quiet \\\n    numpy turnout==0.1.0"),
        ("page.md", "It needs `turnout[device-graph]`."),
        ("page.md", "uvx turnout account"),
        ("page.md", "pipx install turnout"),
        ("page.md", "uv add turnout-device"),
        ("page.md", "npm install turnout-device"),
        ("turnout.service", "ExecStartPre=/opt/turnout/bin/pip install -U turnout"),
        ("message.py", "raise Missing(f\"pip install 'turnout[{extra}]'\")"),
        ("pyproject.toml", '[project]\ndependencies = ["turnout>=0.1"]'),
        ("requirements.txt", "numpy\nturnout==0.1.0"),
        ("package.json", '{"dependencies": {"turnout-device": "^1.0.0"}}'),
    ],
)
def test_an_install_command_by_package_name_is_detected(name, text):
    assert by_name(Path(name), text)


@pytest.mark.parametrize(
    "text",
    [
        install_line("service"),
        "pip install '.[train]'",
        "`pip install .` installs `turnout`",
        "docker build -t turnout -f Containerfile .",
        "pip wheel --no-deps .\nturnout account",
    ],
)
def test_an_install_command_with_a_path_is_accepted(text):
    assert not by_name(Path("page.md"), text)


def test_the_configured_install_command_is_written_into_pages():
    former = "./turnout-0.0.9-py3-none-any.whl"
    before = f"`pip install --upgrade 'turnout[data]'`, `pip install {former}`"
    after = f"`pip install --upgrade '{WHEEL}[data]'`, `pip install {WHEEL}`"
    assert rewritten(before) == after
