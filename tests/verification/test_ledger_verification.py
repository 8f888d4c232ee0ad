"""An unmodified ledger verifies; any modification is refused with the number of its step."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_samples import (
    KEY,
    OTHER_KEY,
    SCHEME,
    WINDOWS,
    FakeTransaction,
    charter,
    curve,
    exported,
    forged,
    parameters,
)

from turnout.core.errors import ParameterError
from turnout.schemes import (
    AvailabilityCheckIn,
    CheckIn,
    GaussianNoise,
    LaplaceNoise,
    Relation,
    Scheme,
)
from turnout.service.coordinator.export import export_models
from turnout.verification import KnownHead, VerificationOutcome, verify

HONEST = exported(FakeTransaction())
TOO_LITTLE = replace(SCHEME, randomizer=GaussianNoise(0.01))
LINES = HONEST.splitlines(keepends=True)


def joined(lines: list[bytes]) -> bytes:
    return b"".join(lines)


def told(data: bytes, **arguments) -> str:
    """All faults, one per line; the verdict must report each of them."""
    verdict = verify(data, **arguments)
    assert (verdict.outcome is VerificationOutcome.BAD) == bool(verdict.faults)
    return "\n".join(map(str, verdict.faults))


def edited(change) -> bytes:
    return forged(HONEST, change)


def record(step: int, /, **fields):
    """Change to one ledger record, for `forged`."""

    def change(lines):
        lines[1 + step] |= fields

    return change


def term(name: str, value):
    """Change to one term of the charter, for `forged`."""

    def change(lines):
        lines[0]["charter"][name] = value

    return change


def known(data: bytes) -> KnownHead:
    return KnownHead.parsed(json.loads(data.splitlines()[-1])["head"])


# Valid ledgers


@pytest.mark.parametrize("scheme", [SCHEME, WINDOWS], ids=["every step", "windows"])
def test_an_unmodified_ledger_verifies(scheme):
    terms = charter(scheme)
    data = exported(FakeTransaction(terms))
    verdict = verify(data, known(data))
    assert verdict.outcome is VerificationOutcome.GOOD
    assert verdict.faults == ()
    assert verdict.steps == 8
    assert verdict.epsilon == terms.spent(8)
    assert verdict.task == terms.task
    assert verdict.costs[-1].lower <= verdict.costs[-1].claimed
    # Claims between charged steps are those of the next one, so the last may be loose.
    assert [cost.steps for cost in verdict.costs] == [3, 6, 8]


@pytest.mark.parametrize("released", [0, 1, 12])
def test_a_ledger_cut_after_any_number_of_steps_verifies(released):
    verdict = verify(exported(FakeTransaction(released=released)))
    assert verdict.outcome is VerificationOutcome.GOOD
    assert verdict.steps == released


def test_a_ledger_that_continues_an_older_known_head_verifies():
    for released in (0, 1, 5):
        assert told(HONEST, known=known(exported(FakeTransaction(released=released)))) == ""


def test_a_claimed_epsilon_above_the_upper_bound_is_allowed_and_noted():
    generous = charter(charged=tuple(1.5 * e for e in curve(SCHEME, (0, 3, 6, 9, 12))))
    verdict = verify(exported(FakeTransaction(generous, 6)))
    assert verdict.outcome is VerificationOutcome.GOOD
    assert "safe side" in verdict.remarks[0]
    assert verdict.costs[-1].loose


# Changed ledgers


def without_record_3() -> bytes:
    return joined(LINES[:4] + LINES[5:])


def swapped() -> bytes:
    return joined([*LINES[:4], LINES[5], LINES[4], *LINES[6:]])


def doubled() -> bytes:
    return joined([*LINES[:5], *LINES[4:]])


def dropped_and_forged() -> bytes:
    return edited(lambda lines: lines.pop(4))


def charter_byte() -> bytes:
    return HONEST.replace(b"linear", b"lineal", 1)


def signed_by_another() -> bytes:
    return forged(HONEST, lambda lines: None, OTHER_KEY)


def longer_head() -> bytes:
    head = json.loads(LINES[-1])
    return joined([*LINES[:7], *LINES[8:]]).replace(
        head["head"].encode(), f"7:{head['head'][2:]}".encode()
    )


def beyond_the_run() -> bytes:
    whole = exported(FakeTransaction(released=12))

    def more(lines):
        lines.insert(-1, lines[-2] | {"step": 12})

    return forged(whole, more)


def above_the_target() -> bytes:
    def lower(lines):
        lines[0]["charter"]["target"] = (charter().spent(6) - 0.01).hex()

    return edited(lower)


MUTANTS = {
    "dropped": (without_record_3, r"^step 3: is missing"),
    "dropped, digests anew": (dropped_and_forged, r"^step 3: is missing"),
    "reordered": (swapped, r"^step 3: is missing: the next record is of step 4"),
    "reordered, said of both": (swapped, r"^step 3: is out of order: expected .* of step 5"),
    "a number for a record": (
        lambda: joined([*LINES[:3], b"5\n", *LINES[4:]]),
        r"^step 2: .*not a JSON object",
    ),
    "epsilon as a whole number": (
        lambda: edited(record(4, epsilon=1)),
        r"^step 4: .*1: expected a text in the format of float\.hex",
    ),
    "doubled": (doubled, r"^step 3: is in the ledger more than once"),
    "record of another task": (
        lambda: HONEST.replace(f'"task":"{charter().task}'.encode(), b'"task":"' + b"0" * 64, 1),
        r"^step 0: belongs to the task 0000",
    ),
    "epsilon lowered": (
        lambda: edited(record(2, epsilon=(0.01).hex())),
        r"^step 2: epsilon = 0\.01, the charter charges",
    ),
    "epsilon raised": (
        lambda: edited(record(2, epsilon=(9.0).hex())),
        r"^step 2: epsilon = 9\.0 is above the target",
    ),
    "epsilon falls": (
        lambda: edited(record(5, epsilon=(0.0).hex())),
        r"^step 5: epsilon falls from",
    ),
    "epsilon negative": (
        lambda: edited(record(0, epsilon=(-1.0).hex())),
        r"^step 0: epsilon falls",
    ),
    "epsilon above the target all along": (above_the_target, r"^step 3: epsilon = .* target"),
    "epsilon NaN": (lambda: edited(record(4, epsilon="nan")), r"^step 4: .*nan: .* finite number"),
    "epsilon infinite": (lambda: edited(record(4, epsilon="inf")), r"^step 4: .*finite number"),
    "epsilon beyond float64": (
        lambda: edited(record(4, epsilon="0x1p+9999")),
        r"^step 4: .*'0x1p\+9999': expected a text in the format",
    ),
    "epsilon in decimal": (lambda: edited(record(4, epsilon="1.5")), r"^step 4: .*float\.hex"),
    "epsilon as a JSON number": (lambda: edited(record(4, epsilon=0.5)), r"^step 4: .*float\.hex"),
    "epsilon NaN as JSON": (
        lambda: edited(record(4, epsilon=float("nan"))),
        r"^step 4: .*expected a finite float",
    ),
    "delta raised": (lambda: edited(record(6, delta=(0.1).hex())), r"^step 6: delta = 0\.1"),
    "a record has more": (lambda: edited(record(1, note="x")), r"^step 1: .*the fields are"),
    "step as a word": (lambda: edited(record(1, step="1")), r"^step 1: .*whole number"),
    "step true": (lambda: edited(record(1, step=True)), r"^step 1: .*whole number"),
    "spaces": (
        lambda: HONEST.replace(b'"step":3', b'"step": 3'),
        r"^step 3: .*not canonical JSON",
    ),
    "a key twice": (
        lambda: HONEST.replace(b'"step":3', b'"step":3,"step":3'),
        r"^step 3: .*not canonical JSON",
    ),
    "capital digits": (
        lambda: edited(record(2, sum="AB" * 32)),
        r"^step 2: .*lower-case",
    ),
    "charter byte": (charter_byte, r"^step 0: belongs to the task"),
    "sum's digest": (
        lambda: HONEST.replace(hashlib.sha256(b"sum 4").hexdigest().encode(), b"0" * 64),
        r"^step 5: does not hold the digest of the record before",
    ),
    "last sum's digest": (
        lambda: HONEST.replace(hashlib.sha256(b"sum 7").hexdigest().encode(), b"0" * 64),
        r"^step 7: the head has another digest",
    ),
    "another key": (signed_by_another, r"^step 7: the head is not signed"),
    "signature of another head": (longer_head, r"^step \d: the head"),
    "head says more": (
        lambda: joined(LINES[:6] + LINES[-1:]),
        r"^step 5: the head states 8 released steps, but the ledger has 5",
    ),
    "no head": (lambda: joined(LINES[:6]), r"cut off"),
    "cut within a line": (lambda: HONEST[:-40], r"cut off"),
    "DOS lines": (lambda: HONEST.replace(b"\n", b"\r\n"), r"not a"),
    "empty": (lambda: b"", r"at least a charter"),
    "no charter": (lambda: joined(LINES[1:]), r"first line is not a charter"),
    "steps beyond the run": (beyond_the_run, r"^step 12: the run ends after 12 steps"),
    "charged falls": (
        lambda: edited(term("charged", [e.hex() for e in (0.0, 0.5, 0.4, 1.0, 1.0)])),
        r"charged: expected values of at least 0 that do not decrease",
    ),
    "charged NaN": (
        lambda: edited(term("charged", ["nan"] * 5)),
        r"charter is damaged: nan: expected a finite number",
    ),
    "no delta": (lambda: edited(term("delta", (0.0).hex())), r"delta = 0\.0"),
    "an unknown term": (lambda: edited(term("more", 1)), r"the fields are not those of"),
    "another format": (lambda: edited(term("format", "turnout-charter-3")), r"the format or"),
    "a scheme of another class": (
        lambda: edited(term("scheme", {"is": "Fraction"})),
        r"expected a participation, or another class",
    ),
    "a scheme that is a participation": (
        lambda: edited(term("scheme", {"is": "EveryStep", "steps": 12})),
        r"'scheme' is not a Scheme of turnout",
    ),
    "no target": (lambda: edited(term("target", (0.0).hex())), r"target and dimension"),
    "charged steps fall": (
        lambda: edited(term("charged_steps", [0, 6, 3, 9, 12])),
        r"charged_steps: expected ascending",
    ),
    "charged to another end": (
        lambda: edited(term("charged_steps", [0, 3, 6, 9, 11])),
        r"charged_steps ends at 11: expected the run's 12 steps",
    ),
    "a trace of numbers": (
        lambda: edited(term("scheme", {"is": "array", "type": "int64", "values": [[1]]})),
        r"an array of a scheme has entries that are not booleans",
    ),
    "no steps": (lambda: edited(term("charged_steps", [])), r"charged"),
    "a nest of lists": (
        lambda: HONEST.replace(b'"charged":[', b'"charged":' + b"[" * 5000),
        r"charter is damaged",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_changed_ledger_is_refused_with_the_step_of_the_change(name):
    build, message = MUTANTS[name]
    data = build()
    assert data != HONEST
    faults = told(data)
    assert re.search(message, faults, re.MULTILINE), faults


def test_a_change_of_any_byte_of_a_ledger_is_detected():
    for place in range(len(HONEST)):
        changed = bytearray(HONEST)
        changed[place] ^= 1
        assert verify(bytes(changed)).outcome is VerificationOutcome.BAD, place


@settings(max_examples=300)
@given(
    st.binary(max_size=200)
    | st.tuples(st.integers(0, len(HONEST)), st.binary(max_size=20), st.integers(0, 40)).map(
        lambda cut: HONEST[: cut[0]] + cut[1] + HONEST[cut[0] + cut[2] :]
    )
)
def test_the_verifier_raises_no_exception_for_any_file(data):
    assert data == HONEST or verify(data).outcome is VerificationOutcome.BAD


# Forgeries with the coordinator's key


CHEATS = {
    "less noise than was charged": (
        replace(WINDOWS, randomizer=GaussianNoise(1.45)),
        r"^step 7: claims too little",
    ),
    "shorter windows": (replace(WINDOWS, participation=CheckIn(4, 3)), r"claims too little"),
    "a stronger relation": (replace(WINDOWS, relation=Relation.REPLACE_ONE), r"claims too little"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_ledger_that_claims_too_little_epsilon_is_refused(name):
    """All digests and the signature are valid: only recomputing ε detects the fault."""
    scheme, message = CHEATS[name]
    data = exported(FakeTransaction(charter(scheme, charged=curve(SCHEME, (0, 3, 6, 9, 12)))))
    assert verify(data, known(data)).costs
    assert re.search(message, told(data), re.MULTILINE), told(data)


def test_a_claimed_epsilon_that_is_too_small_is_reported_at_its_step():
    zero, three, _, nine, twelve = curve(WINDOWS, (0, 3, 6, 9, 12))
    data = exported(FakeTransaction(charter(WINDOWS, charged=(zero, three, 1.18, nine, twelve))))
    assert told(data).startswith("step 5: claims too little")


# Known heads


def test_a_ledger_older_than_a_known_head_is_refused():
    assert "step 5: this ledger is older" in told(
        exported(FakeTransaction(released=5)), known=known(HONEST)
    )


def test_a_ledger_that_forks_from_a_known_head_is_refused():
    fork = edited(record(6, sum="00" * 32))
    assert told(fork) == ""
    assert told(fork, known=known(exported(FakeTransaction(released=6)))) == ""
    assert "step 7: this ledger forks" in told(fork, known=known(HONEST))
    assert "forks" in told(fork, known=KnownHead(0, bytes(32)))


@pytest.mark.parametrize("text", ["", "8", "8:ab", "-1:" + "00" * 32, "08:" + "00" * 32, "x:y"])
def test_an_invalid_known_ledger_head_is_refused(text):
    with pytest.raises(ParameterError, match="expected STEPS:DIGEST, a number of steps"):
        KnownHead.parsed(text)


def test_a_known_ledger_head_is_accepted_with_its_signature():
    digest = "00" * 32
    assert KnownHead.parsed(f"3:{digest}:{'ff' * 64}") == KnownHead(3, bytes(32))


# Models


@pytest.fixture
def models(tmp_path):
    export_models(FakeTransaction(), tmp_path)  # type: ignore[arg-type]
    return tmp_path


def test_the_verifier_compares_the_released_model_files(models):
    assert told(HONEST, models=models) == ""
    assert verify(HONEST, models=models).models == 9


def test_a_flipped_byte_in_a_model_file_is_detected(models):
    path = models / "step-000004.f32"
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    assert told(HONEST, models=models).startswith("step 4: step-000004.f32 is not the model")


def test_missing_model_files_and_files_beyond_the_ledger_are_reported(models):
    (models / "step-000002.f32").rename(models / "step-000008.f32")
    faults = told(HONEST, models=models)
    assert "step 2: its model file step-000002.f32 is missing" in faults
    assert "step 8: step-000008.f32 was released, but is not in the ledger" in faults


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (np.full(5, np.nan, "<f4").tobytes(), "step 3: .* NaN or infinite"),
        (bytes(16), "step 3: .* has 16 bytes"),
    ],
)
def test_a_malformed_model_with_a_correct_digest_is_detected(tmp_path, broken, message):
    transaction = FakeTransaction(model=lambda step: broken if step == 3 else parameters(step))
    export_models(transaction, tmp_path)  # type: ignore[arg-type]
    assert re.search(message, told(exported(transaction), models=tmp_path))


# Costs that the verifier cannot recompute


@pytest.mark.parametrize(
    "scheme",
    [
        replace(SCHEME, participation=AvailabilityCheckIn(np.ones((20, 12), bool), 6)),
        Scheme(LaplaceNoise(2.0), CheckIn(6, 2), Relation.ADD_REMOVE),
        TOO_LITTLE,
    ],
    ids=["trace", "Laplace", "hardly any noise"],
)
def test_the_verifier_reports_a_cost_that_it_cannot_recompute(scheme):
    terms = charter(scheme, charged=(0.0, 1.0, 2.0, 3.0, 4.0))
    verdict = verify(exported(FakeTransaction(terms)))
    assert verdict.outcome is VerificationOutcome.COST_NOT_RECOMPUTED
    assert verdict.not_recomputed
    assert verdict.costs == ()


def test_a_ledger_of_a_plugin_that_is_not_installed_is_not_checked():
    def name_a_plugin(lines):
        named = {"name": "absent-package", "version": "1.2", "digest": "00" * 32}
        lines[0]["charter"]["plugins"] = [named]

    verdict = verify(forged(exported(FakeTransaction()), name_a_plugin))
    assert verdict.outcome is VerificationOutcome.NOT_CHECKED
    assert verdict.outcome.value == 4
    expected = "the charter needs the plug-in absent-package 1.2, which is not installed here"
    assert verdict.document()["not_checked"] == expected
    assert verdict.faults == ()


def test_a_changed_ledger_is_refused_even_if_its_cost_cannot_be_recomputed():
    terms = charter(TOO_LITTLE, charged=(0.0, 1.0, 2.0, 3.0, 4.0))
    data = exported(FakeTransaction(terms))
    assert verify(data.replace(b'"step":3', b'"step":4')).outcome is VerificationOutcome.BAD
    assert KEY.public == terms.coordinator_key
