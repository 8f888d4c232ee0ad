"""Charter, ledger and wire formats round-trip, and other bytes are refused."""

import json
from dataclasses import replace

import pytest
from fake_coordinator import charter_of as terms_of
from hypothesis import given
from hypothesis import strategies as st
from world_scenes import SCENES, charter_of

from turnout.core.errors import (
    BudgetExceededError,
    ParameterError,
    StorageError,
    UnsupportedError,
)
from turnout.schemes import ReleaseRule
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.computation import features_expression, features_format
from turnout.service.contract.ledger import Head, Record, SigningKey, require_chain, verified
from turnout.service.contract.wire import (
    Invitation,
    SignedHead,
    SignedRequest,
    WireAnswer,
    WireReceipt,
    dummy_traffic_path,
    updates_path,
)
from turnout.verification.document import DamagedError, decode_terms

CHARTER = charter_of(*SCENES[0])


@pytest.mark.parametrize("scene", SCENES)
def test_a_charter_round_trips(scene):
    charter = charter_of(*scene)
    assert Charter.from_canonical(charter.canonical()) == charter
    assert len({charter_of(*s).task for s in SCENES}) == len(SCENES)


@given(st.data())
def test_a_changed_byte_of_a_charter_is_refused_or_changes_its_task(data):
    text = CHARTER.canonical()
    place = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != text[place]))
    changed = text[:place] + bytes([byte]) + text[place + 1 :]
    try:
        other = Charter.from_canonical(changed)
    except (StorageError, ParameterError, UnsupportedError):
        return
    assert other != CHARTER
    assert other.task != CHARTER.task


def test_a_charter_with_the_averaged_release_rule_is_refused():
    scheme = replace(CHARTER.scheme, release=ReleaseRule.AVERAGED)
    with pytest.raises(UnsupportedError, match="how many clients participated"):
        replace(CHARTER, scheme=scheme)


def test_epsilon_between_two_listed_steps_is_that_of_the_later_listed_step():
    charter = replace(CHARTER, charged_steps=(2, 4, 6), charged=(0.5, 1.0, 1.5))
    assert [charter.spent(s) for s in range(7)] == [0, 0.5, 0.5, 1.0, 1.0, 1.5, 1.5]
    with pytest.raises(ParameterError):
        charter.spent(7)
    with pytest.raises(BudgetExceededError):
        replace(charter, target=1.2).spent(5)
    for wrong in ((0.5, float("nan"), 1.5), (0.5, 0.4, 1.5), (0.5, 1.0)):
        with pytest.raises(ParameterError, match="charged"):
            replace(charter, charged=wrong)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *[("population", wrong) for wrong in (0, "20", 20.0, True, None)],
        *[("minibatch", wrong) for wrong in (0, "1", 1.0, True, None)],
        *[("delta", wrong) for wrong in ("1e-5", 0.0, 1.0, float("nan"), True)],
        *[("target", wrong) for wrong in ("3", 0.0, float("nan"), float("inf"), True)],
        *[("expected_check_ins", wrong) for wrong in (0.0, -1.0, "5", float("nan"), True)],
        *[("charged", (*CHARTER.charged[:-1], wrong)) for wrong in ("3", float("nan"), True)],
        *[("charged", (wrong, *CHARTER.charged[1:])) for wrong in (-0.1, float("nan"), None)],
        *[("charged_steps", (wrong, *CHARTER.charged_steps[1:])) for wrong in (-1, 0.0, "0", True)],
        ("charged", (float("inf"),)),
    ],
)
def test_charter_numbers_outside_their_domain_are_refused(field, wrong):
    changes = {field: wrong}
    if wrong == (float("inf"),):
        changes["charged_steps"] = (CHARTER.steps,)
    with pytest.raises(ParameterError, match=field):
        replace(CHARTER, **changes)


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ('"add-remove"', '"add_remove"'),
        ('{"is":"Relation","value":"add-remove"}', '"add-remove"'),
        ('{"is":"Relation","value":"add-remove"}', '{"is":"TrustModel","value":"central"}'),
        ('{"is":"Relation","value":"add-remove"}', "null"),
        ('"is":"CheckIn"', '"is":"checkin"'),
        ('"is":"CheckIn"', '"is":"SlidingWindow"'),
        ('"windows":', '"Windows":'),
        ('"population":', '"population":1,"population":'),
        ('"value":"client"', '"value":"record"'),
        ('"format":', '"extra":1,"format":'),
    ],
)
def test_a_charter_in_non_canonical_bytes_is_refused(said, instead):
    text = CHARTER.canonical().decode()
    assert said in text
    changed = text.replace(said, instead).encode()
    with pytest.raises(StorageError):
        Charter.from_canonical(changed)
    with pytest.raises(DamagedError):
        decode_terms(changed)


@pytest.mark.parametrize(
    ("place", "known"),
    [
        ((), "turnout-charter-1"),
        (("model",), "float32-le-1"),
        (
            ("model", "architecture"),
            "logistic-1, tanh-cnn-13k-1, tanh-cnn-26k-1, onnx-update-1, onnx-update-2",
        ),
        (
            ("model", "features"),
            "pixels-1, standardized-1, deskewed-1, scattering-1, hog-1, hog-cells-1, "
            "onnx-features-1",
        ),
        (("client",), "gradient-descent-1"),
        (
            ("messages", "update"),
            "int32-lattice-1, seeded-code-1, sampled-bit-1, hadamard-bit-1",
        ),
        (("messages", "enrolment"), "enrolment-1"),
        (("messages", "record"), "record-1"),
        (("messages", "head"), "turnout-head-1"),
        (("messages", "request"), "turnout-request-1"),
    ],
)
def test_unknown_charter_formats_are_refused_by_name(place, known):
    document = json.loads(CHARTER.canonical())
    inner = document
    for key in place:
        inner = inner[key]
    inner["format"] = "signed-by-nobody-7"
    with pytest.raises(StorageError) as refused:
        Charter.from_canonical(canonical(document))
    assert "'signed-by-nobody-7'" in str(refused.value)
    assert f"it knows {known}" in str(refused.value)
    assert ".".join(place) in str(refused.value)


def test_unknown_charter_fields_are_refused():
    """An unknown field could change what a device must do."""
    for place in ((), ("model",), ("model", "features"), ("client",), ("messages", "update")):
        document = json.loads(CHARTER.canonical())
        inner = document
        for key in place:
            inner = inner[key]
        inner["more"] = 1
        with pytest.raises(StorageError):
            Charter.from_canonical(canonical(document))
    document = json.loads(CHARTER.canonical())
    document["messages"]["masks"] = {"format": "masks-1"}
    with pytest.raises(StorageError, match=r"does not know the message 'masks' of the charter"):
        Charter.from_canonical(canonical(document))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("input_shape", ()),
        ("input_shape", (8, 0)),
        ("input_shape", ("8",)),
        ("classes", 1),
        ("classes", True),
        ("steps", 0),
        ("learning_rate", float("nan")),
        ("architecture", "logistic"),
        ("features", "pixels-2"),
        ("features", "hog-1+"),
        ("features", "hog-1|onnx-features-1"),
        ("features", "|".join(["hog-1"] * 17)),
    ],
)
def test_invalid_parts_of_a_charter_computation_are_refused(field, wrong):
    with pytest.raises(ParameterError, match=field):
        replace(CHARTER.computation, **{field: wrong})


def test_feature_expressions_are_converted_to_charter_formats():
    assert features_format("deskewed | scattering + hog") == "deskewed-1|scattering-1+hog-1"
    assert features_expression("deskewed-1|scattering-1+hog-1") == "deskewed|scattering+hog"
    made = replace(CHARTER.computation, features="deskewed-1|hog-1")
    charter = replace(CHARTER, computation=made)
    assert Charter.from_canonical(charter.canonical()).computation == made


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def test_step_durations_shorter_than_their_phases_are_refused():
    assert Timing.of(60.0).check_in_seconds == 45.0
    with pytest.raises(ParameterError, match="step_seconds"):
        Timing(10.0, 8.0, 3.0)
    with pytest.raises(ParameterError, match="compute_seconds"):
        Timing(10.0, 8.0, 2.0, 0.0)


@pytest.mark.parametrize(
    ("rule", "phase"),
    [
        (ReleaseRule.AGGREGATED, "check_in_seconds = 6"),
        (ReleaseRule.ONE_CLIENT, "answer_seconds = 3"),
    ],
)
def test_the_time_for_computing_is_at_most_half_of_the_update_phase(rule, phase):
    longest = float(phase.split()[-1]) / 2
    charter = terms_of(rule=rule)
    held = replace(charter, timing=Timing(10.0, 6.0, 3.0, longest))
    assert Charter.from_canonical(held.canonical()).timing.compute_seconds == longest
    assert Timing(10.0, 6.0, 3.0, None).bounded(asks_one=charter.asks_one).compute_seconds == (
        pytest.approx(2 * longest / 3)
    )
    with pytest.raises(ParameterError, match=f"compute_seconds = .* at most half of {phase}"):
        replace(charter, timing=Timing(10.0, 6.0, 3.0, 1.001 * longest))


def test_a_charter_without_a_time_limit_for_computing_is_refused():
    document = json.loads(terms_of().canonical())
    document["timing"]["compute_seconds"] = None
    with pytest.raises(StorageError, match="compute_seconds = None"):
        Charter.from_canonical(canonical(document))
    del document["timing"]["compute_seconds"]
    with pytest.raises(StorageError, match="damaged"):
        Charter.from_canonical(canonical(document))


GENESIS = bytes.fromhex(CHARTER.task)


def record(step=0, previous=GENESIS, **other):
    fields = {
        "task": CHARTER.task,
        "sum_digest": bytes(32),
        "model_digest": bytes(32),
        "epsilon": 0.25,
        "delta": 1e-5,
    }
    return Record(step=step, previous=previous, **(fields | other))


def test_ledger_records_that_break_the_hash_chain_are_refused():
    before = Head(0, bytes.fromhex(CHARTER.task))
    head = require_chain(CHARTER.task, before, record())
    after = require_chain(CHARTER.task, head, record(1, head.digest))
    assert (after.steps, len(after.digest)) == (2, 32)
    for wrong in (record(1), record(0, bytes(32)), record(task="ab")):
        with pytest.raises(StorageError, match="damaged"):
            require_chain(CHARTER.task, before, wrong)


@pytest.mark.parametrize("field", ["sum_digest", "model_digest", "epsilon", "delta", "previous"])
def test_the_digest_of_a_ledger_record_covers_every_field(field):
    value = 0.5 if field in ("epsilon", "delta") else b"\x01" * 32
    assert replace(record(), **{field: value}).digest != record().digest


@given(st.integers(0, 10**9), st.binary(min_size=32, max_size=32))
def test_signed_ledger_heads_round_trip(steps, digest):
    signed = SignedHead(Head(steps, digest), bytes(64))
    assert SignedHead.parsed(str(signed)) == signed


@pytest.mark.parametrize("text", ["", "1", "1:zz", "-1:" + "00" * 32, "01:" + "00" * 32, "1:00"])
def test_malformed_ledger_heads_are_not_parsed(text):
    with pytest.raises(ValueError, match=r"head|hex|int"):
        Head.parsed(text)
    with pytest.raises(ValueError, match=r"head|hex|int"):
        SignedHead.parsed(text + ":" + "00" * 64)


def test_an_invitation_round_trips_and_its_repr_hides_the_secret():
    invitation = Invitation(CHARTER.task, bytes(32), 3, 6, {"is": "CheckIn"}, b"s" * 32)
    token = invitation.encoded()
    assert Invitation.decoded(token + "\n") == invitation
    for wrong in ("", "turnout1.", "turnout2." + token[9:], token[:-4], token[:40]):
        with pytest.raises(ParameterError, match="invitation") as refused:
            Invitation.decoded(wrong)
        assert wrong[20:] == "" or wrong[20:] not in str(refused.value)


@given(
    st.sampled_from([a for a in WireAnswer if a is not WireAnswer.UNKNOWN]),
    st.integers(0, 100),
    st.one_of(st.none(), st.binary(min_size=32, max_size=32)),
    st.one_of(st.none(), st.booleans()),
)
def test_receipts_round_trip(answer, step, digest, asked):
    receipt = WireReceipt(answer, CHARTER.task, 1, step, digest, "", asked)
    assert WireReceipt.decoded(receipt.encoded()) == receipt


def test_answers_to_unauthenticated_requests_are_identical():
    one = WireReceipt(WireAnswer.UNKNOWN, CHARTER.task, 1, 2, bytes(32), "why")
    assert one.encoded() == WireReceipt(WireAnswer.UNKNOWN).encoded()
    assert json.loads(one.encoded()) == {"answer": "unknown"}


def test_paths_of_dummy_traffic_and_updates_have_equal_length():
    for step in (0, 9, 10, 12345):
        assert len(dummy_traffic_path(step)) == len(updates_path(step))


FIELDS = {
    "task": "cd",
    "method": "GET",
    "path": "/v1/steps/2/updates",
    "client": 4,
    "nonce": b"\x01" * 16,
    "head": "1:" + "00" * 32,
    "format": "int32-lattice-2",
    "digest": bytes(32),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_signature_covers_every_part_of_a_request(field):
    key = SigningKey.new()
    request = SignedRequest.posting("ab", updates_path(1), 3, bytes(16), b"body", format="x-1")
    signature = key.sign(request.canonical())
    assert verified(key.public, signature, request.canonical())
    other = replace(request, **{field: FIELDS[field]})
    assert not verified(key.public, signature, other.canonical())
    assert not verified(None, signature, request.canonical())
    assert not verified(SigningKey.new().public, signature, request.canonical())


def test_the_repr_of_a_signing_key_hides_the_key():
    key = SigningKey.new()
    assert key.private.hex() not in repr(key)
    assert str(list(key.private)) not in repr(key)
