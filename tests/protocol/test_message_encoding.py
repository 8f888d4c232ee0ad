"""Messages as bytes: which messages are refused, and the distribution of what is sent."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from turnout.core.errors import LocalProtocolError, ParameterError, RemoteProtocolError
from turnout.protocol import randomized
from turnout.protocol.randomized import HistogramEncoding, MessageEncoding, Randomized
from turnout.randomizers.interface import level_above
from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode, SphericalCode
from turnout.randomness import OSRandomness, SimulationStreams
from turnout.testing import assert_frequencies, assert_rejects, enumerate_outputs

KINDS = {
    "seeded-code": SeededCode(300, 2.0, 0.5),
    "sampled-bit": LInfRandomizer(300, 2.0, 0.5),
    "hadamard-bit": L1Randomizer(300, 2.0, 0.5),
}


def bodies_of(randomizer, count, seed=1):
    updates = np.random.default_rng(seed).standard_normal((count, randomizer.dimension))
    source = SimulationStreams(seed).source("message")
    encoding = MessageEncoding(randomizer)
    return [encoding.packed(update, source) for update in updates]


@pytest.mark.parametrize("kind", KINDS)
def test_encoded_messages_are_decoded_and_summed_unchanged(kind, mutate):
    randomizer = KINDS[kind]
    encoding, bodies = MessageEncoding(randomizer), bodies_of(randomizer, 10)
    assert {len(body) for body in bodies} == {encoding.encoded_size}
    assert 8 * encoding.encoded_size < randomizer.message_bits + 8
    rows = np.array([encoding.decode(body) for body in bodies])
    expected = Randomized(randomizer, 1.0).summed(rows)
    for at_once in (3, 10, 1 << 14):
        mutate(randomized, "_AT_ONCE", at_once)
        total = encoding.summed(iter(bodies))
        assert np.array_equal(total.total, expected.total)
        assert (total.count, total.noised) == (10, 10)
    nobody = encoding.summed(())
    assert (nobody.count, nobody.total.any()) == (0, False)


@pytest.mark.parametrize("kind", KINDS)
def test_message_bodies_that_encode_no_valid_message_are_refused(kind):
    """Every changed byte is either refused or decodes to another valid message of the task."""
    randomizer = KINDS[kind]
    encoding, (body,) = MessageEncoding(randomizer), bodies_of(randomizer, 1)
    for wrong in (b"", body[:-1], body + b"\0", body * 2):
        with pytest.raises(RemoteProtocolError, match=f"bytes, not {len(body)}"):
            encoding.decode(wrong)
    refused = 0
    for place in range(len(body)):
        for byte in range(256):
            other = body[:place] + bytes([byte]) + body[place + 1 :]
            try:
                row = encoding.decode(other)
            except RemoteProtocolError:
                refused += 1
            else:
                assert (row < randomizer.radices).all()
                assert randomizer.pack(row[None]) == other
    # 37 bits in 40; 300 coordinates of 512; 1,024 numbers in 10 bits of 16.
    assert refused > 0


def test_a_message_with_a_symbol_out_of_range_is_refused():
    encoding = MessageEncoding(KINDS["sampled-bit"])
    largest = (2 * 300 - 1).to_bytes(2, "little")
    assert encoding.decode(largest).tolist() == [599]
    with pytest.raises(RemoteProtocolError, match="numbers below"):
        encoding.decode((2 * 300).to_bytes(2, "little"))


def test_an_update_of_a_wrong_shape_is_not_encoded():
    encoding = MessageEncoding(KINDS["sampled-bit"])
    for wrong in (np.zeros(299), np.zeros((1, 300))):
        with pytest.raises(LocalProtocolError, match="not \\(300,\\)"):
            encoding.packed(wrong, OSRandomness())


def test_randomizers_with_public_randomness_cannot_be_encoded():
    with pytest.raises(ParameterError, match="public randomness"):
        MessageEncoding(SphericalCode(300, 2.0, 0.5))


# -- the distribution of the bytes -----------------------------------------------------------

SMALL = LInfRandomizer(2, 1.0, 0.5)
BEYOND = np.array([2.0, 0.3])
"""Update whose ℓ∞ clipping differs from its ℓ2 clipping."""


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_exact_distribution_of_message_bytes_has_the_epsilon_of_the_scheme(dimension):
    """By enumeration of all draws, the largest probability ratio of two updates equals e^ε₀."""
    randomizer = LInfRandomizer(dimension, 1.0, 0.5)
    encoding = MessageEncoding(randomizer)
    distributions = [
        enumerate_outputs(lambda source, x=x: encoding.packed(x, source))
        for x in (np.full(dimension, 9.0), np.full(dimension, -9.0))
    ]
    assert all(sum(distribution.values()) == 1 for distribution in distributions)
    largest = max(distributions[0][body] / distributions[1][body] for body in distributions[0])
    assert level_above(largest) == randomizer.priced_as.epsilon0
    bare = {body: Fraction(1, dimension) for body in list(distributions[0])[:dimension]}
    # An update that is sent without randomization reveals the update: some bytes are impossible.
    assert set(bare) != set(distributions[1])


class Bare(LInfRandomizer):
    """Faulty encoding that sends the bit of the clipped update without randomizing the bit."""

    @property
    def flips(self):
        return (0.0,)


class ClipsInAnotherNorm(MessageEncoding):
    def packed(self, update, source):
        length = np.linalg.norm(update)
        return super().packed(update * min(1.0, self.clip_norm / length), source)


class SameSeed(MessageEncoding):
    def packed(self, update, source):
        return super().packed(update, SimulationStreams(4).source("message"))


DRAWS = 8_000


def counts(encoding):
    """Number of times that each message is sent, for an update that must be clipped."""
    source = OSRandomness()
    found = Counter(encoding.packed(BEYOND, source)[0] for _ in range(DRAWS))
    return [found[message] for message in range(4)]


def test_message_bytes_depend_only_on_the_clipped_update():
    expected = SMALL.probabilities(SMALL.constrained(BEYOND[None])[0])

    def has_distribution(seen):
        assert_frequencies(seen, expected)

    has_distribution(counts(MessageEncoding(SMALL)))
    assert_rejects(
        has_distribution,
        {
            "the bit as it is": counts(MessageEncoding(Bare(2, 1.0, 0.5))),
            "clipped in ℓ2": counts(ClipsInAnotherNorm(SMALL)),
            "the same seed every time": counts(SameSeed(SMALL)),
            "ε₀ half as large again": counts(MessageEncoding(LInfRandomizer(2, 1.5, 0.5))),
        },
    )


@pytest.mark.parametrize("kind", KINDS)
def test_several_messages_of_a_client_are_encoded_as_one_histogram(kind):
    randomizer = KINDS[kind]
    encoding, single = HistogramEncoding(randomizer, 4), MessageEncoding(randomizer)
    update = np.linspace(-1.0, 1.0, 300)
    body = encoding.packed(update, SimulationStreams(1).source("message"))
    rows = randomizer.encode_updates(
        np.repeat(update[None], 4, axis=0), SimulationStreams(1).source("message")
    )
    assert len(body) == encoding.encoded_size <= 4 * single.encoded_size
    assert sorted(map(tuple, encoding.decode(body))) == sorted(map(tuple, rows))
    assert sorted(encoding.singles(body)) == sorted(randomizer.pack(row[None]) for row in rows)
    total = encoding.summed([body, body])
    expected = 2 * randomizer.total(rows)
    assert np.allclose(total.total, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    assert (total.count, total.noised) == (2, 2)
    for wrong in (b"", body[:-1], body + b"\0"):
        with pytest.raises(RemoteProtocolError, match=f"bytes, not {len(body)}"):
            encoding.decode(wrong)
    with pytest.raises(RemoteProtocolError, match="invalid messages: expected"):
        encoding.decode(b"\xff" * len(body))
    with pytest.raises(LocalProtocolError, match="shape"):
        encoding.packed_records(np.zeros((3, 300)), SimulationStreams(1).source("message"))
