"""Types that a type checker infers for the public functions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import turnout as tn

scheme = tn.Scheme(tn.GaussianNoise(1.0), tn.CheckIn(window=1000), relation="add-remove")
reveal_type(tn.price(scheme, delta=1e-6).epsilon.upper)
reveal_type(tn.calibrate(scheme, epsilon=1, delta=1e-6).noise_multiplier)
reveal_type(tn.PrivacyCurve.of(scheme).delta(1.0).upper)
reveal_type(tn.shuffled(tn.PureRandomizer(1.0), clients=10))
tn.price(scheme)
"""
UNSEEN = [
    "torch",
    "matplotlib",
    "scipy",
    "pandas",
    "starlette",
    "rich",
    "jinja2",
    "pyarrow",
    "polars",
    "httpx",
]
MYPY = "[mypy]\n" + "\n".join(f"[mypy-{name}.*]\nfollow_imports = skip" for name in UNSEEN)
"""Settings under which other packages, which take mypy most of its time, are not looked into."""

CHECKERS = {
    "pyright": [str(Path(sys.executable).with_name("pyright")), "--pythonpath", sys.executable],
    "mypy": [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir"],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_type_checkers_infer_the_types_of_public_results(checker, tmp_path):
    file = tmp_path / "user.py"
    file.write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(MYPY)
    cache = [str(tmp_path / "cache")] if checker == "mypy" else []
    done = subprocess.run(
        [*CHECKERS[checker], *cache, str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    seen = re.findall(r'(?:type is| is) "([\w.]+)"', done.stdout)
    assert [name.rpartition(".")[2] for name in seen] == ["float", "float", "float", "Scheme"]
    errors = re.findall(r":(\d+)(?::\d+)?[ :-]+error: (.*)", done.stdout)
    assert [line for line, _ in errors] == ["9"]
    assert "delta" in errors[0][1]
