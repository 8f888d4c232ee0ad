"""A test run lists its skipped tests, and on CI a skipped test is a failure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed import PACKAGES

CONFTEST = Path(__file__).parents[1] / "conftest.py"
ALONE = {
    **os.environ,
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONPATH": str(CONFTEST.parent),  # of the modules that conftest.py imports
}
TESTS = {
    "nothing": "def test_that_runs(): pass",
    "data": "import pytest\ndef test_it(): pytest.skip('set TURNOUT_DATA to a folder')",
    "browser": "import pytest\n@pytest.mark.parametrize('n', [1, 2])\n"
    "def test_it(n): pytest.skip('needs Chromium')\n",
    "file": "import pytest\npytest.importorskip('no_such_package', reason='needs a package')",
}


@pytest.mark.parametrize(
    ("chosen", "line", "code"),
    [
        ("nothing", "Nothing was skipped.", 0),
        ("nothing data", "Not run: 1 test (set TURNOUT_DATA to a folder).", 0),
        (
            "nothing browser file",
            "Not run: 2 tests (needs Chromium), 1 test (test_file.py: needs a package).",
            1,
        ),
    ],
)
def test_the_last_line_of_a_test_run_lists_skipped_tests(tmp_path, chosen, line, code):
    shutil.copy(CONFTEST, tmp_path)
    for name in chosen.split():
        (tmp_path / f"test_{name}.py").write_text(TESTS[name])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = ALONE | {"CI": "true", "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.splitlines()[-1] == line
    assert done.returncode == code


def test_outside_ci_a_skipped_test_is_no_failure(tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_browser.py").write_text(TESTS["browser"])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {name: value for name, value in ALONE.items() if name != "CI"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.splitlines()[-1] == "Not run: 2 tests (needs Chromium)."
    assert done.returncode == 0


def test_ci_installs_every_program_that_a_test_needs():
    """Tests look for programs only through `installed.program`, so that CI can list them."""
    lines = (CONFTEST.parents[1] / ".ci" / "run").read_text()
    for name, package in PACKAGES.items():
        asked = re.search(rf"command -v {name} .*missing\+=\((.*)\)", lines)
        assert asked, name
        assert package in asked[1].split()
    asking = {file for file in CONFTEST.parent.rglob("*.py") if "shutil.which(" in file.read_text()}
    assert {file.name for file in asking} == {"installed.py", "conftest.py", Path(__file__).name}
