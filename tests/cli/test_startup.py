"""Modules that `turnout account` imports."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from turnout.cli.main import main

try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0
loaded = set(sys.modules)
import numpy as np

assert np.ma.masked_invalid([1.0, np.nan]).sum() == 1.0  # deferred modules load at their first use
assert np.polynomial.Polynomial([0, 1])(2.0) == 2.0
print(json.dumps(sorted(loaded)), file=sys.stderr)
"""
SCHEME = "--window 1000 --noise-multiplier 1 --delta 1e-6"


def loaded(command):
    """Modules that a command loads."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_account_of_check_ins_imports_no_code_of_other_analyses():
    modules = loaded(f"account --scheme check-in {SCHEME} --relation add-remove")
    assert "turnout.accounting.participation.check_ins" in modules
    unneeded = {
        "numpy.f2py.crackfortran",
        "turnout.accounting.participation.k_subset",
        "turnout.accounting.participation.replace_one",
        "turnout.accounting.shuffling",
        "turnout.learning",
        "turnout.plans.plan",
        "turnout.service",
    }
    assert not modules & unneeded
    replaced = loaded(f"account --scheme check-in {SCHEME} --relation replace-one")
    assert replaced & unneeded == {"turnout.accounting.participation.replace_one"}
