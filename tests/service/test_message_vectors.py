"""Messages computed by the rules of docs/device-protocol.md, compared with vectors and code."""

import json

import pytest
from fake_coordinator import charter_of
from message_vectors import CASES, DRAWN, message_of
from test_vectors import PAGE, PLACE

from turnout.core.errors import RemoteProtocolError
from turnout.schemes import CheckIn

VECTORS = {v["name"]: v for v in json.loads(PLACE.read_text()).get("messages", [])}


def test_the_message_vectors_cover_every_randomizer():
    assert list(VECTORS) == [name for name, *_ in CASES]


@pytest.mark.parametrize("name", [name for name, *_ in CASES])
def test_messages_computed_as_documented_equal_the_message_vectors(name):
    vector = VECTORS[name]
    assert len(vector["messages"]) == DRAWN
    for told in vector["messages"]:
        numbers, body = message_of(vector, told["drawn"])
        assert numbers == told["numbers"]
        assert body.hex() == told["body"]


@pytest.mark.parametrize(("name", "randomizer"), [case[:2] for case in CASES])
def test_invalid_bodies_in_the_message_vectors_are_refused(name, randomizer):
    encoding = charter_of(CheckIn(2), dimension=randomizer.dimension, messages=randomizer).encoding
    vector = VECTORS[name]
    for told in vector["messages"]:
        assert encoding.decode(bytes.fromhex(told["body"])).tolist() == told["numbers"]
    assert len(vector["refused"]) >= 2
    for wrong in vector["refused"]:
        with pytest.raises(RemoteProtocolError):
            encoding.decode(bytes.fromhex(wrong))


def without_flips(vector, drawn):
    """Message computed as if the last Bernoulli draw were always 0."""
    changed = [dict(each) for each in drawn]
    for each in changed:
        if each["below"] == str(1 << 62):
            each["gives"] = str((1 << 62) - 1)
    return message_of(vector, changed)[1]


def test_messages_with_a_wrong_encoding_norm_or_seed_differ_from_the_vectors():
    """Negative controls: no randomized sign, another norm, another public seed."""
    turned = clipped = seeded = False
    for vector in VECTORS.values():
        told, update = vector["update_format"], vector["update_format"]
        for each in vector["messages"]:
            body = each["body"]
            if told["format"] != "seeded-code-1":
                turned |= without_flips(vector, each["drawn"]).hex() != body
                continue
            other = vector | {"update_format": update | {"public_seed": 1}}
            seeded |= message_of(other, each["drawn"])[1].hex() != body
        if told["format"] == "sampled-bit-1":
            norm = sum(x * x for x in vector["update"]) ** 0.5
            factor = min(1.0, float.fromhex(told["clip_norm"]["float"]) / norm)
            shorter = vector | {"update": [factor * x for x in vector["update"]]}
            for each in vector["messages"]:
                try:
                    clipped |= message_of(shorter, each["drawn"])[1].hex() != each["body"]
                except (AssertionError, IndexError):  # another number of draws
                    clipped = True
    assert turned
    assert clipped
    assert seeded


def test_the_device_protocol_page_documents_every_message_format():
    page = PAGE.read_text()
    for vector in VECTORS.values():
        for field in vector["update_format"]:
            assert f"`{field}`" in page, field
        assert f"`{vector['update_format']['format']}`" in page
