"""The API reference builds without a warning and has every public name."""

import re
import subprocess
import sys

from pages import ROOT

import turnout


def test_the_api_reference_has_every_public_name(tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    (arguments,) = re.findall(r"-m sphinx (.*) \$\(REFERENCE_OUT\)", makefile)
    command = [sys.executable, "-m", "sphinx", *arguments.split(), str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    page = (tmp_path / "index.html").read_text()
    assert {f'id="turnout.{name}"' for name in dir(turnout)} <= set(re.findall(r'id="[^"]*"', page))
