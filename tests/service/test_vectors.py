"""Test vectors of docs/device-protocol.md, compared with the code and the page.

``python tests/service/test_vectors.py`` rewrites them.
"""

import base64
import hashlib
import json
import math
import struct
import sys
from fractions import Fraction
from pathlib import Path

import message_vectors
import numpy as np
import pytest
import update_vectors
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from device_world import Chosen
from fake_coordinator import charter_of, invitation

from turnout.core.errors import RemoteProtocolError, StorageError
from turnout.protocol.lattice import Lattice
from turnout.protocol.messages import CLIENT_TABLE, Fault
from turnout.schemes import CheckIn, FixedAssignment, KSubset, SlidingWindow
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head, Record, SigningKey
from turnout.service.contract.wire import (
    ENROLMENT_FORMAT,
    STATUS_CODES,
    UPDATE_FORMAT,
    Invitation,
    SignedHead,
    SignedRequest,
    WireAnswer,
    WireReceipt,
    check_ins_path,
    dummy_traffic_path,
    enrolments_path,
    head_bytes,
    requests_path,
    updates_path,
)
from turnout.service.device import drawn_slots

PLACE = Path(__file__).parents[1] / "vectors" / "device-protocol.json"
PAGE = Path(__file__).parents[2] / "docs" / "device-protocol.md"
COORDINATOR, DEVICE = SigningKey(bytes(range(32))), SigningKey(bytes(range(32, 64)))
CHARTER = charter_of(CheckIn(4, 2), dimension=4, plan="# a plan's TOML text\n")
LATTICE = Lattice(step=0.25, clip_norm=1.1, dimension=4)


# -- out of the code -------------------------------------------------------------------------


def vectors():
    invited = invitation(CHARTER)
    records = _records()
    heads = [Head(0, bytes.fromhex(CHARTER.task)), *(record.head for record in records)]
    signed = [SignedHead(h, COORDINATOR.sign(head_bytes(CHARTER.task, h))) for h in heads]
    return {
        "keys": {
            name: {"private": key.private.hex(), "public": key.public.hex()}
            for name, key in (("coordinator", COORDINATOR), ("device", DEVICE))
        },
        "charter": {"body": CHARTER.canonical().decode(), "task": CHARTER.task},
        "invitation": {
            "token": invited.encoded(),
            "task": invited.task,
            "key": invited.coordinator_key.hex(),
            "client": invited.client,
            "population": invited.population,
            "law": invited.law,
            "secret": invited.secret.hex(),
        },
        "draws": _draws(),
        "records": [
            {"body": record.canonical().decode(), "digest": record.digest.hex()}
            for record in records
        ],
        "heads": [
            {"signed": head_bytes(CHARTER.task, s.head).decode(), "text": str(s)} for s in signed
        ],
        "requests": _requests(str(signed[-1]), invited),
        "receipts": _receipts(),
        "formats": _formats(),
        "telling": {
            "path": "/v1/heads",
            "body": str(signed[-1]),
            "answer": '{"answer":"accepted"}',
        },
        "updates": update_vectors.vectors(),
        "lattice": _lattice(),
        "messages": message_vectors.vectors(),
        "client_table": {
            state.value: {
                event.value: "refuse" if isinstance(cell, Fault) else cell.value
                for event, cell in row.items()
            }
            for state, row in CLIENT_TABLE.items()
        },
    }


def _draws():
    """Steps that each participation derives from given uniform draws."""
    cases = [
        (CheckIn(4, 2), 3, [(4, 2), (4, 1)]),
        (FixedAssignment(3, 2), 3, [(3, 1)]),
        (SlidingWindow(4, 20), 8, [(4, 3)]),
        (SlidingWindow(4, 20), 0, [(4, 1)]),
        (KSubset(4, 2), 3, [(3, 0), (4, 3)]),
    ]
    made = []
    for participation, client, draws in cases:
        invited = invitation(charter_of(participation), client)
        source = Chosen(*(drawn for _, drawn in draws))
        slots = drawn_slots(invited, source)
        if isinstance(participation, KSubset):
            slots = sorted(slots)
        made.append(
            {
                "law": invited.law,
                "client": client,
                "drawn": [{"below": n, "gives": value} for n, value in draws],
                "slots": slots,
            }
        )
    return made


def _records():
    first = Record(
        CHARTER.task, 0, bytes([1]) * 32, bytes([2]) * 32, 2.5, 1e-5, bytes.fromhex(CHARTER.task)
    )
    second = Record(CHARTER.task, 1, bytes([3]) * 32, bytes([4]) * 32, 2.5, 1e-5, first.digest)
    return [first, second]


def _requests(head, invited):
    fields = {
        "client": invited.client,
        "public_key": DEVICE.public.hex(),
        "secret": invited.secret.hex(),
    }
    enrolment = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    update = CHARTER.encoding.encode(np.array([1, -2, 300, 0], np.int32))
    cases = [
        (enrolments_path(), "", enrolment),
        (updates_path(2), head, update),
        (check_ins_path(2), head, b""),
        (requests_path(2), head, b""),
        (dummy_traffic_path(2), head, bytes(range(16))),
    ]
    made = []
    for index, (path, seen, body) in enumerate(cases):
        nonce = bytes([index]) * 16
        told = ENROLMENT_FORMAT if not index else UPDATE_FORMAT if body else ""
        request = SignedRequest.posting(
            CHARTER.task, path, invited.client, nonce, body, format=told, head=seen
        )
        signature = DEVICE.sign(request.canonical())
        made.append(
            {
                "path": path,
                "body": body.hex(),
                "signed": request.canonical().decode(),
                "headers": request.headers(signature),
            }
        )
    return made


def _receipts():
    about = CHARTER.task, 3, 2
    cases = [
        WireReceipt(WireAnswer.ACCEPTED, *about, digest=bytes([7]) * 32),
        WireReceipt(WireAnswer.ACCEPTED, *about, asked=True),
        WireReceipt(WireAnswer.LATE, *about, detail="this step is over"),
        WireReceipt(WireAnswer.EARLY, *about),
        WireReceipt(WireAnswer.CONFLICT, *about, detail="another update is stored"),
        WireReceipt(WireAnswer.REFUSED, *about, detail="an update has 3 bytes, not 16"),
        WireReceipt(WireAnswer.UNKNOWN),
    ]
    return [{"status": STATUS_CODES[r.answer], "body": r.encoded().decode()} for r in cases]


def _formats():
    """Place of each format name in the charter, and a name that is refused there."""
    places = [
        ["format"],
        ["model", "format"],
        ["model", "architecture", "format"],
        ["model", "features", "format"],
        ["client", "format"],
        *(["messages", name, "format"] for name in json.loads(CHARTER.canonical())["messages"]),
    ]
    made = []
    for place in places:
        inner = json.loads(CHARTER.canonical())
        for key in place:
            inner = inner[key]
        kind, version = inner.rsplit("-", 1)
        made.append({"place": place, "known": inner, "refused": f"{kind}-{int(version) + 7}"})
    return made


def _lattice():
    updates = [
        [0.0, 0.0, 0.0, 0.0],
        [0.6, -0.79, 0.0, 0.24],
        [-0.25, 0.25, 0.5, -0.5],
        [1.1, 0.0, 0.0, 0.0],
        [0.55, 0.55, 0.55, 0.55],
    ]
    bad = {
        "one byte short": bytes(15),
        "one byte more": bytes(17),
        "norm above the limit": struct.pack("<4i", 4, 2, 0, 0),
        "the smallest int32": struct.pack("<4i", -(2**31), 0, 0, 0),
    }
    return {
        "step": LATTICE.step.hex(),
        "clip_norm": LATTICE.clip_norm.hex(),
        "dimension": LATTICE.dimension,
        "norm_squared_limit": LATTICE.norm_squared_limit,
        "updates": [_quantised(np.array(update)) for update in updates],
        "refused": {why: body.hex() for why, body in bad.items()},
    }


def _quantised(update):
    q = LATTICE.quantise(update)
    return {
        "update": [float(x).hex() for x in update],
        "quantised": q.tolist(),
        "body": LATTICE.encode(q).hex(),
    }


def test_the_published_test_vectors_equal_newly_computed_ones():
    told, made = json.loads(PLACE.read_text()), vectors()
    pairs = list(zip(told.pop("updates"), made.pop("updates"), strict=True))
    assert told == made, "run: python tests/service/test_vectors.py"
    for one, other in pairs:
        assert update_vectors.equal_but_for_rounding(one, other), one["name"]
        wrong = other | {"quantised": [q + 2 for q in other["quantised"]]}
        assert not update_vectors.equal_but_for_rounding(one, wrong)


# -- as the document says, without turnout ---------------------------------------------------

VECTORS = json.loads(PLACE.read_text()) if PLACE.exists() else {}


def unhexed(value):
    """Float from the wire notation ``{"float": …}``."""
    return float.fromhex(value["float"])


def test_keys_and_signatures_in_the_test_vectors_are_standard_ed25519():
    for pair in VECTORS["keys"].values():
        private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(pair["private"]))
        assert private.public_key().public_bytes_raw().hex() == pair["public"]
    device = Ed25519PrivateKey.from_private_bytes(
        bytes.fromhex(VECTORS["keys"]["device"]["private"])
    )
    for request in VECTORS["requests"]:
        signature = device.sign(request["signed"].encode("ascii"))
        assert signature.hex() == request["headers"]["Turnout-Signature"]


def test_signed_requests_in_the_test_vectors_follow_the_documented_lines():
    for request in VECTORS["requests"]:
        headers = request["headers"]
        body = bytes.fromhex(request["body"])
        assert headers["Turnout-Digest"] == hashlib.sha256(body).hexdigest()
        assert ("Turnout-Format" in headers) == bool(body)
        named = {
            "task": VECTORS["charter"]["task"],
            "method": "POST",
            "path": request["path"],
            "client": headers["Turnout-Client"],
            "nonce": headers["Turnout-Nonce"],
            "head": headers.get("Turnout-Head"),
            "format": headers.get("Turnout-Format"),
            "digest": headers["Turnout-Digest"],
        }
        lines = [f"{name}: {value}" for name, value in named.items() if value is not None]
        assert request["signed"] == "\n".join(["turnout-request-1", *lines])
    assert len({len(r["path"]) for r in VECTORS["requests"] if r["path"][-4:] in ("ates", "ered")})


def test_the_task_in_the_test_vectors_is_the_digest_of_its_charter():
    body = VECTORS["charter"]["body"].encode("ascii")
    assert hashlib.sha256(body).hexdigest() == VECTORS["charter"]["task"]
    fields = json.loads(body)
    assert fields["format"] == "turnout-charter-1"
    assert json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii") == body
    assert fields["coordinator_key"] == VECTORS["keys"]["coordinator"]["public"]
    assert unhexed(fields["timing"]["step_seconds"]) == 8.0
    update = fields["messages"]["update"]
    assert {name: said["format"] for name, said in fields["messages"].items()} == {
        "enrolment": "enrolment-1",
        "head": "turnout-head-1",
        "record": "record-1",
        "request": "turnout-request-1",
        "update": "int32-lattice-1",
    }
    step, norm = (unhexed(update[name]) for name in ("step", "clip_norm"))
    assert math.log2(step) == int(math.log2(step))
    assert norm == 0.5


def test_an_invitation_token_is_json_in_base64():
    token = VECTORS["invitation"]["token"]
    kind, payload = token.split(".")
    assert kind == "turnout1"
    fields = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert fields | {"token": token} == VECTORS["invitation"]
    charter = json.loads(VECTORS["charter"]["body"])
    assert fields["law"]["window"] == charter["scheme"]["participation"]["window"]


def test_participation_draws_match_the_documented_test_vectors():
    for case in VECTORS["draws"]:
        participation, drawn = case["law"], [draw["gives"] for draw in case["drawn"]]
        if participation["is"] == "CheckIn":
            slots = [k * participation["window"] + u for k, u in enumerate(drawn)]
        elif participation["is"] == "FixedAssignment":
            slots = [
                epoch * participation["window"] + drawn[0]
                for epoch in range(participation["epochs"])
            ]
        elif participation["is"] == "SlidingWindow":
            step = (
                case["client"] // participation["clients_per_slot"]
                + drawn[0]
                - (participation["window"] - 1)
            )
            steps = participation["slots"] - participation["window"] + 1
            slots = [step] if 0 <= step < steps else []
        else:
            assert participation["is"] == "KSubset"
            chosen = set()
            for top, value in zip(
                range(participation["window"] - participation["picks"], participation["window"]),
                drawn,
                strict=True,
            ):
                chosen.add(top if value in chosen else value)
            slots = sorted(chosen)
        assert slots == case["slots"]


def test_ledger_heads_in_the_test_vectors_are_signed_and_follow_from_the_records():
    key = Ed25519PublicKey.from_public_bytes(
        bytes.fromhex(VECTORS["keys"]["coordinator"]["public"])
    )
    task, previous = VECTORS["charter"]["task"], VECTORS["charter"]["task"]
    for steps, head in enumerate(VECTORS["heads"]):
        if steps:
            record = VECTORS["records"][steps - 1]
            fields = json.loads(record["body"])
            assert (fields["task"], fields["step"]) == (task, steps - 1)
            assert fields["previous"] == previous
            assert float.fromhex(fields["epsilon"]) == 2.5
            previous = hashlib.sha256(record["body"].encode("ascii")).hexdigest()
            assert record["digest"] == previous
        told, digest, signature = head["text"].split(":")
        assert (told, digest) == (str(steps), previous)
        message = f"turnout-head-1\n{task}\n{told}:{digest}"
        assert head["signed"] == message
        key.verify(bytes.fromhex(signature), message.encode("ascii"))
        with pytest.raises(InvalidSignature):
            key.verify(bytes.fromhex(signature), (message + "0").encode("ascii"))


def test_encoded_updates_are_truncated_toward_zero_and_little_endian():
    lattice = VECTORS["lattice"]
    step, norm = float.fromhex(lattice["step"]), float.fromhex(lattice["clip_norm"])
    limit = math.floor((Fraction(norm) / Fraction(step)) ** 2)
    assert limit == lattice["norm_squared_limit"]
    for case in lattice["updates"]:
        update = [float.fromhex(x) for x in case["update"]]
        q = [math.trunc(x / step) for x in update]
        while (exact := sum(x * x for x in q)) > limit:
            q = [math.trunc(x * (math.sqrt(limit / exact) * (1 - 2.0**-40))) for x in q]
        assert q == case["quantised"]
        assert struct.pack(f"<{len(q)}i", *q).hex() == case["body"]
    for why, body in lattice["refused"].items():
        with pytest.raises(RemoteProtocolError):
            LATTICE.decode(bytes.fromhex(body))
        assert why


def test_charters_with_unknown_formats_are_refused():
    for case in VECTORS["formats"]:
        document = json.loads(VECTORS["charter"]["body"])
        *inside, last = case["place"]
        inner = document
        for key in inside:
            inner = inner[key]
        assert inner[last] == case["known"]
        inner[last] = case["refused"]
        changed = json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")
        with pytest.raises(StorageError, match=case["refused"]):
            Charter.from_canonical(changed)


def test_reporting_a_newer_ledger_head_is_documented_and_signed():
    assert VECTORS["telling"]["body"] == VECTORS["heads"][-1]["text"]
    assert VECTORS["telling"]["path"] in PAGE.read_text()
    assert VECTORS["telling"]["answer"] in PAGE.read_text()


def test_the_package_parses_its_published_test_vectors():
    charter = Charter.from_canonical(VECTORS["charter"]["body"].encode())
    assert charter.task == VECTORS["charter"]["task"]
    assert Invitation.decoded(VECTORS["invitation"]["token"]).client == 3
    for receipt in VECTORS["receipts"]:
        decoded = WireReceipt.decoded(receipt["body"].encode())
        assert STATUS_CODES[decoded.answer] == receipt["status"]


# -- the document ----------------------------------------------------------------------------


def test_the_device_protocol_page_lists_every_path_header_and_answer():
    page = PAGE.read_text()
    for path in ("enrolments", "steps/{step}/updates", "steps/{step}/check-ins", "status",
                 "steps/{step}/requests", "steps/{step}/covered", "charter", "records?from={step}",
                 "models/{steps}"):  # fmt: skip
        assert f"/v1/{path}" in page, path
    for header in VECTORS["requests"][1]["headers"]:
        assert header in page
    for answer, code in STATUS_CODES.items():
        assert f"| {code} | `{answer.value}` |" in page
    for state, row in VECTORS["client_table"].items():
        words = [cell if cell == "refuse" else f"→ {cell}" for cell in row.values()]
        cells = " | ".join("stays" if word == f"→ {state}" else word for word in words)
        assert f"| {state} | {cells} |" in page, (state, cells)
    assert all(len(line) <= 100 or "|" in line for line in page.splitlines())


if __name__ == "__main__":
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n")
    sys.exit()
