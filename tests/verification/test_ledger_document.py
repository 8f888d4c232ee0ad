"""docs/ledger.md: its example equals what the service writes, its codes those of the command."""

from __future__ import annotations

import re
from pathlib import Path

from ledger_samples import FakeTransaction, charter, exported

from turnout.schemes import CheckIn, GaussianNoise, Relation, Scheme
from turnout.verification import VerificationOutcome, verify

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()


def example() -> bytes:
    """Ledger whose bytes do not depend on the tightness of the accountant."""
    scheme = Scheme(GaussianNoise(4.0), CheckIn(3), Relation.ADD_REMOVE)
    terms = charter(scheme, charged_steps=(0, 1, 3), charged=(0.0, 1.25, 1.5), target=2.0)
    return exported(FakeTransaction(terms, released=2))


def test_the_documented_example_ledger_is_reproduced_and_verifies():
    shown = PAGE.split("```json\n")[1].split("```")[0].encode("ascii")
    assert shown == example()
    verdict = verify(shown)
    assert verdict.outcome is VerificationOutcome.GOOD
    assert verdict.steps == 2
    assert verdict.epsilon == 1.5


def test_the_documented_exit_codes_equal_those_of_the_verify_command():
    told = set(map(int, re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)))
    assert told == {outcome.value for outcome in VerificationOutcome} | {2}
