"""Charters under local trust define the message exactly; other charters are refused."""

import json
from dataclasses import replace

import pytest
from fake_coordinator import charter_of
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError, StorageError, UnsupportedError
from turnout.protocol.lattice import Lattice
from turnout.protocol.randomized import MessageEncoding, Randomized
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode
from turnout.schemes import CheckIn, ReleaseRule, TrustModel
from turnout.service.contract.charter import Charter
from turnout.verification.document import DamagedError, decode_terms

DIMENSION = 20
KINDS = {
    "seeded-code-1": SeededCode(DIMENSION, 2.3, 0.5, directions=8, preferred=3, seed_bits=20),
    "sampled-bit-1": LInfRandomizer(DIMENSION, 2.3, 0.5),
    "hadamard-bit-1": L1Randomizer(DIMENSION, 2.3, 0.5),
}


def charter_with(name="seeded-code-1", **changes):
    charter = charter_of(CheckIn(3, 2), dimension=DIMENSION, messages=KINDS[name])
    return replace(charter, **changes) if changes else charter


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


@pytest.mark.parametrize("name", KINDS)
def test_a_charter_under_local_trust_round_trips(name):
    charter = charter_with(name)
    read = Charter.from_canonical(charter.canonical())
    assert read == charter
    assert read.encoding.randomizer == KINDS[name]
    assert isinstance(read.mechanism, Randomized)
    update = json.loads(charter.canonical())["messages"]["update"]
    assert update["format"] == name == charter.update_format
    assert update["message_bits"] == KINDS[name].message_bits
    terms = decode_terms(charter.canonical())
    assert (terms.dimension, terms.scheme.trust) == (DIMENSION, TrustModel.LOCAL)


def test_the_charter_contains_exact_probabilities_of_random_draws():
    """A client need not compute an exponential function with the same rounding."""
    code = KINDS["seeded-code-1"]
    update = json.loads(charter_with().canonical())["messages"]["update"]
    assert float.fromhex(update["preference"]["float"]) == code.preference
    for name in ("sampled-bit-1", "hadamard-bit-1"):
        update = json.loads(charter_with(name).canonical())["messages"]["update"]
        flip = float.fromhex(update["flip"]["float"])
        assert flip * 2**62 == int(flip * 2**62)
        assert flip == getattr(KINDS[name], "flip", None) or (flip,) == KINDS[name].flips


DERIVED = {"preference", "flip", "epsilon", "message_bits", "directions", "seed_bits"}


@pytest.mark.parametrize("name", KINDS)
def test_a_charter_with_inconsistent_derived_numbers_is_refused(name):
    document = json.loads(charter_with(name).canonical())
    update = document["messages"]["update"]
    for key in DERIVED & set(update):
        said = update[key]
        number = float.fromhex(said["float"]) * 0.5 if isinstance(said, dict) else said + 1
        update[key] = {"float": number.hex()} if isinstance(said, dict) else number
        with pytest.raises(StorageError, match="damaged"):
            Charter.from_canonical(canonical(document))
        update[key] = said
    for wrong in (update | {"more": 1}, {k: v for k, v in update.items() if k != "epsilon"}):
        document["messages"]["update"] = wrong
        with pytest.raises(StorageError, match="damaged"):
            Charter.from_canonical(canonical(document))


TEXT = charter_with().canonical()


@given(st.data())
def test_a_changed_byte_of_a_local_trust_charter_is_refused_or_changes_its_task(data):
    place = data.draw(st.integers(0, len(TEXT) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != TEXT[place]))
    changed = TEXT[:place] + bytes([byte]) + TEXT[place + 1 :]
    try:
        other = Charter.from_canonical(changed)
    except (StorageError, ParameterError, UnsupportedError):
        return
    assert other.task != charter_with().task


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"encoding": Lattice.for_noise(1.0, 0.5, DIMENSION)}, "under local trust"),
        ({"encoding": MessageEncoding(replace(KINDS["seeded-code-1"], epsilon=2.2))}, "randomizer"),
        ({"minibatch": 2}, "minibatch = 2: expected 1"),
        ({"expected_check_ins": None}, "expected_check_ins"),
        ({"scheme": charter_of().scheme}, "under central trust"),
    ],
)
def test_a_charter_with_contradicting_terms_is_refused(changes, why):
    with pytest.raises(ParameterError, match=why):
        charter_with(**changes)


def test_charters_with_shuffled_trust_or_other_release_rules_are_refused():
    scheme = charter_with().scheme
    with pytest.raises(UnsupportedError, match="shuffler"):
        charter_with(scheme=replace(scheme, trust=TrustModel.SHUFFLED))
    with pytest.raises(UnsupportedError, match="one-client"):
        charter_with(scheme=replace(scheme, release=ReleaseRule.ONE_CLIENT))


def test_a_randomizer_without_a_message_format_is_refused():
    printed = LInfRandomizer(DIMENSION, 2.3, 0.5, variant="as-printed")
    with pytest.raises(UnsupportedError, match="in its default encoding"):
        charter_of(CheckIn(3, 2), dimension=DIMENSION, messages=printed).canonical()


@pytest.mark.parametrize(
    ("said", "instead"),
    [('"value":"local"', '"value":"central"'), ('"seeded-code-1"', '"int32-lattice-1"')],
)
def test_the_verifier_refuses_messages_under_another_trust_model(said, instead):
    text = charter_with().canonical().decode()
    assert text.count(said) == 1
    with pytest.raises(DamagedError, match="not sent under"):
        decode_terms(text.replace(said, instead).encode())
