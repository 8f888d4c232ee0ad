"""Shuffled rounds: refusals, and an audit that detects a missing shuffler or randomizer."""

from __future__ import annotations

import random
from functools import cache
from itertools import permutations

import numpy as np
import pytest

import turnout as tn
from turnout.auditing.confidence import rate_bounds
from turnout.core.errors import LocalProtocolError, RemoteProtocolError
from turnout.protocol.randomized import HistogramEncoding, MessageEncoding, Shuffler
from turnout.randomizers.vectors import LInfRandomizer
from turnout.randomness import SimulationStreams
from turnout.schemes.scheme import shuffled
from turnout.testing import assert_rejects
from turnout.testing.frequencies import FALSE_ALARM

RANDOMIZER = LInfRandomizer(1, 2.0)
ENCODING = MessageEncoding(RANDOMIZER)


def test_shuffled_output_does_not_depend_on_the_order_of_arrival():
    bodies = [b"\x01", b"\x00", b"\x01", b"\x00"]
    left = set()
    for order in permutations(range(4)):
        shuffler = Shuffler(ENCODING)
        for client in order:
            shuffler.receive(client, bodies[client])
        left.add(shuffler.released())
    assert left == {(b"\x00", b"\x00", b"\x01", b"\x01")}


def test_malformed_and_second_messages_are_refused_and_not_counted():
    shuffler = Shuffler(ENCODING)
    shuffler.receive(7, b"\x01")
    shuffler.receive(7, b"\x01")  # a copy
    for client, body in ((7, b"\x00"), (8, b"\x02"), (8, b""), (8, b"\x01\x00")):
        with pytest.raises(RemoteProtocolError):
            shuffler.receive(client, body)
    assert shuffler.released() == (b"\x01",)
    for late in (lambda: shuffler.receive(9, b"\x01"), shuffler.released):
        with pytest.raises(LocalProtocolError):
            late()


def test_several_messages_of_one_client_are_shuffled_separately():
    encoding = HistogramEncoding(RANDOMIZER, 2)
    bits = {0: (0, 1), 1: (0, 1), 2: (0, 0), 3: (1, 1)}
    left = set()
    for clients in ((0, 1), (2, 3)):
        shuffler = Shuffler(encoding)
        for client in clients:
            rows = np.array(bits[client])[:, None]
            shuffler.receive(client, RANDOMIZER.pack_histogram(rows))
        left.add(shuffler.released())
    assert left == {(b"\x00", b"\x00", b"\x01", b"\x01")}


# -- an audit: a proved lower bound on ε by attacks, against the price -------------------------

CLIENTS, ROUNDS, DELTA, VICTIM = 100, 1000, 1e-2, 0
PRICE = tn.price(shuffled(RANDOMIZER.priced_as, CLIENTS, 1), delta=DELTA).epsilon.upper


class Quick(MessageEncoding):
    """Message decoder that caches the result for each message."""

    decode = cache(MessageEncoding.decode)


QUICK = Quick(RANDOMIZER)


class KeepsTheOrder(Shuffler):
    """Faulty shuffler that keeps the order of arrival, which is the order of client numbers."""

    def released(self):
        return tuple(self._open().values())


class Reverses(KeepsTheOrder):
    def released(self):
        return super().released()[::-1]


class Rotates(KeepsTheOrder):
    """Faulty shuffler with a publicly known permutation."""

    def released(self):
        bodies = super().released()
        return bodies[7:] + bodies[:7]


class FromASeed(KeepsTheOrder):
    """Faulty shuffler that reuses one seed for the permutation of every round."""

    def released(self):
        bodies = list(super().released())
        random.Random(5).shuffle(bodies)
        return tuple(bodies)


def randomized(signs, source):
    return RANDOMIZER.encode(signs[:, None], source)[:, 0]


def bare(signs, source):
    return (signs > 0).astype(np.int64)


def from_one_seed(signs, source):
    """Faulty randomizer that makes every message of every round from the same random draws."""
    by_sign = [randomized(np.array([x]), SimulationStreams(5).source("m"))[0] for x in (-1.0, 1.0)]
    return np.where(signs > 0, by_sign[1], by_sign[0])


def transcripts(shuffler=Shuffler, message=randomized):
    """Bits that the server receives for victim value +1 and for −1, each of shape (rounds, n)."""
    return [_world(sign, shuffler, message) for sign in (1.0, -1.0)]


def _world(sign, shuffler, message):
    source, seen = SimulationStreams(3 + int(sign)).source("audit"), []
    signs = np.where(np.arange(CLIENTS) % 2, 1.0, -1.0)
    signs[VICTIM] = sign
    for bits in message(np.tile(signs, ROUNDS), source).reshape(ROUNDS, CLIENTS).tolist():
        round_ = shuffler(QUICK)
        for client, bit in enumerate(bits):
            round_.receive(client, bytes([bit]))
        seen.append(b"".join(round_.released()))
    return np.frombuffer(b"".join(seen), np.uint8).reshape(ROUNDS, CLIENTS)


def epsilon_below(seen):
    """Lower bound on ε at δ from the best of several simple attacks.

    It fails with probability at most `FALSE_ALARM`. An event of probability p in one world and q in
    the other proves ε ≥ ln((p − δ)/q).
    """
    attacks = [lambda bits, i=i: bits[:, i] == 1 for i in range(CLIENTS)]
    attacks += [lambda bits, k=k: bits.sum(axis=1) >= k for k in range(CLIENTS + 1)]
    alarm, best = FALSE_ALARM / (8 * len(attacks)), 0.0
    for attack in attacks:
        first, second = (int(attack(bits).sum()) for bits in seen)
        events = (first, second), (second, first)
        for p, q in (*events, *((ROUNDS - p, ROUNDS - q) for p, q in events)):
            low, high = rate_bounds(p, ROUNDS, alarm)[0], rate_bounds(q, ROUNDS, alarm)[1]
            if low > DELTA:
                best = max(best, float(np.log((low - DELTA) / high)))
    return best


def stays_within_epsilon(seen):
    assert epsilon_below(seen) <= PRICE


def test_a_round_of_messages_stays_within_epsilon_only_if_shuffled():
    stays_within_epsilon(transcripts())
    assert_rejects(
        stays_within_epsilon,
        {
            "no shuffle": transcripts(KeepsTheOrder),
            "the other way round": transcripts(Reverses),
            "a permutation that is known": transcripts(Rotates),
            "a seed that is used again": transcripts(FromASeed),
            "messages that are not randomized": transcripts(message=bare),
            "messages from one seed": transcripts(message=from_one_seed),
        },
    )


def test_unshuffled_messages_stay_within_local_epsilon():
    """The lower bound of the audit is never above ε₀ of a single message."""
    assert PRICE < epsilon_below(transcripts(KeepsTheOrder)) <= RANDOMIZER.epsilon0
