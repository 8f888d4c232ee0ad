"""Test vectors of messages under local trust, from the code and from the documented rules."""

import hashlib
import json
import math

import numpy as np
from fake_coordinator import charter_of

from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode
from turnout.randomness import SimulationStreams, Source
from turnout.schemes import CheckIn

CASES = (
    ("a coordinate's bit", LInfRandomizer(6, 2.0, 0.5), [0.1, -2.0, 0.3, 0.0, 0.45, -0.2]),
    ("a bit of the only coordinate", LInfRandomizer(1, 0.25, 4.0), [3.0]),
    ("a row's bit", L1Randomizer(6, 1.5, 0.5), [0.1, -0.2, 0.3, 0.0, 0.4, -0.2]),
    ("a row's bit, not clipped", L1Randomizer(5, 3.0, 8.0), [0.5, -1.0, 0.25, 0.0, 2.0]),
    ("a word", SeededCode(6, 2.0, 0.5, directions=4), [0.1, -0.2, 0.3, 0.0, 0.4, -0.2]),
    ("a word, not clipped", SeededCode(5, 3.0, 8.0, directions=4, preferred=3), [0.5, -1, 2, 0, 1]),
    ("a word of many folds", SeededCode(300, 2.0, 1.0, directions=4, seed_bits=40),
     [round(math.sin(3 * i), 3) for i in range(300)]),
    ("not a number: the zero vector", SeededCode(4, 2.0, 0.5, directions=4), [math.nan, 1, 1, 1]),
)  # fmt: skip
DRAWN = 6
"""Number of messages of each case."""


class Noted(Source):
    """Random source that records its draws."""

    secure = False

    def __init__(self, source):
        self._source, self.noted = source, []

    def below(self, n, size):
        drawn = self._source.below(n, size)
        self.noted += [(n, int(value)) for value in drawn]
        return drawn


def vectors():
    """All message vectors, from the code; draws are text, since some exceed 2⁵³."""
    made = []
    for name, randomizer, update in CASES:
        encoding = charter_of(CheckIn(2), dimension=len(update), messages=randomizer).encoding
        drawn = []
        for i in range(DRAWN):
            source = Noted(SimulationStreams(i).source("vectors", name))
            body = encoding.packed(np.array(update), source)
            drawn.append(
                {
                    "drawn": [{"below": str(n), "gives": str(value)} for n, value in source.noted],
                    "numbers": [int(number) for number in encoding.decode(body)],
                    "body": body.hex(),
                }
            )
        made.append(
            {
                "name": name,
                "update_format": _format(randomizer),
                "update": [None if math.isnan(x) else x for x in update],
                "messages": drawn,
                "refused": [wrong.hex() for wrong in _refused(encoding, randomizer)],
            }
        )
    return made


def _format(randomizer):
    charter = charter_of(CheckIn(2), dimension=randomizer.dimension, messages=randomizer)
    return json.loads(charter.canonical())["messages"]["update"]


def _refused(encoding, randomizer):
    """Invalid bodies: one byte short, one byte long, and with wrong symbols or trailing bits."""
    size = encoding.encoded_size
    yield from (bytes(size - 1), bytes(size + 1))
    if randomizer.message_bits % 8:
        yield bytes(size - 1) + bytes([0x80])
    if len(randomizer.radices) == 1 and randomizer.radices[0] < 1 << randomizer.message_bits:
        yield randomizer.radices[0].to_bytes(size, "little")


# -- by the page's words ----------------------------------------------------------------------

WORD = (1 << 64) - 1


def number(told):
    """Float from its notation in a charter."""
    return float.fromhex(told["float"])


class Draws:
    """Uniform draws u(n) from the recorded draws of a vector."""

    def __init__(self, drawn):
        self._left = [(int(each["below"]), int(each["gives"])) for each in drawn]

    def u(self, n):
        below, gives = self._left.pop(0)
        assert below == n
        return gives

    def coin(self, p):
        """True with probability exactly p."""
        return self.u(1 << 62) < int(p * 2**62)

    def about(self, chance):
        """1 with approximately the given probability, otherwise 0."""
        threshold = round(min(max(chance, 0.0), 1.0) * 2**32)
        if threshold in (0, 1 << 32):
            return int(threshold > 0)
        return int(self.u(1 << 32) < threshold)

    def all_used(self):
        return not self._left


def clipped(vector):
    """Vector clipped in the norm of its message format."""
    told = vector["update_format"]
    clip, x = number(told["clip_norm"]), [math.nan if v is None else v for v in vector["update"]]
    if not all(map(math.isfinite, x)):
        return [0.0] * len(x)
    if told["format"] == "sampled-bit-1":
        return [min(max(v, -clip), clip) for v in x]
    power = 2 if told["format"] == "seeded-code-1" else 1
    norm = sum(abs(v) ** power for v in x) ** (1 / power)
    return [v * min(1.0, clip / norm) if norm else v for v in x]


def message_of(vector, drawn):
    """Numbers and body of a message, computed as documented."""
    told, x, draws = vector["update_format"], clipped(vector), Draws(drawn)
    numbers, widths = {
        "sampled-bit-1": _sampled_bit,
        "hadamard-bit-1": _hadamard_bit,
        "seeded-code-1": _seeded_code,
    }[told["format"]](told, x, draws)
    assert draws.all_used()
    packed, at = 0, 0
    for each, width in zip(numbers, widths, strict=True):
        packed |= each << at
        at += width
    assert at == told["message_bits"]
    return numbers, packed.to_bytes(-(-at // 8), "little")


def _sampled_bit(told, x, draws):
    j = draws.u(len(x))
    bit = draws.about((1 + x[j] / number(told["clip_norm"])) / 2)
    bit ^= draws.coin(number(told["flip"]))
    return [2 * j + bit], [(2 * len(x) - 1).bit_length()]


def _hadamard_bit(told, x, draws):
    rows = 1 << (len(x) - 1).bit_length()
    j = draws.u(rows)
    inner = sum(v * (-1) ** (i & j).bit_count() for i, v in enumerate(x))
    bit = draws.about((1 + inner / number(told["clip_norm"])) / 2)
    bit ^= draws.coin(number(told["flip"]))
    return [2 * j + bit], [(2 * rows - 1).bit_length()]


def _seeded_code(told, x, draws):
    k, t, bits = (told[name] for name in ("directions", "preferred", "seed_bits"))
    length = math.sqrt(sum(v * v for v in x)) / number(told["clip_norm"])
    sign = 2 * draws.about(1.0 if length > 1 - 1e-5 else (1 + length) / 2) - 1
    seed = draws.u(1 << bits)
    folds = -(-len(x) // k)
    public = public_signs(told["public_seed"], seed % min(64, 1 << bits), folds * k)
    own = bits_as_signs(seed_words(seed, -(-folds // 64)), folds)
    summed = [0.0] * k
    for i, v in enumerate(x):
        summed[i % k] += own[i // k] * public[i] * v
    scores = [
        sign * sum(y * (-1) ** (i & j).bit_count() for j, y in enumerate(summed)) for i in range(k)
    ]
    order = sorted(range(k), key=lambda i: -abs(scores[i]))  # among equals the lower first
    ranked = [2 * i + (scores[i] < 0) for i in order]
    favoured = draws.coin(number(told["preference"]))
    inside, outside = draws.u(t), t + draws.u(2 * k - t)
    place = inside if favoured else outside
    word = ranked[place] if place < k else ranked[place - k] ^ 1
    return [seed, word], [bits, (2 * k - 1).bit_length()]


def bits_as_signs(words, count):
    """Sign of each bit, lowest first: +1 for 0 and −1 for 1."""
    return [1 - 2 * (words[i // 64] >> (i % 64) & 1) for i in range(count)]


def mixed(word):
    """Output function of SplitMix64."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return word ^ word >> 31


def seed_words(seed, count):
    odd = 0x9E3779B97F4A7C15
    start = mixed((seed + 1) * odd & WORD)
    return [mixed((start + odd * i) & WORD) for i in range(1, count + 1)]


def public_signs(public_seed, chosen, width):
    """Signs of one of the 64 classes of public randomness."""
    text = b"%d|seeded signs" % public_seed
    key = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")
    blocks = -(-width // 256)
    words = [word for i in range(blocks) for word in philox(1 + chosen * blocks + i, key)]
    return bits_as_signs(words, width)


def philox(counter, key):
    """Four 64-bit words of Philox 4×64 with ten rounds for a counter."""
    c, k = [counter, 0, 0, 0], [key & WORD, key >> 64]
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [b >> 64 ^ c[1] ^ k[0], b & WORD, a >> 64 ^ c[3] ^ k[1], a & WORD]
        k = [k[0] + 0x9E3779B97F4A7C15 & WORD, k[1] + 0xBB67AE8584CAA73B & WORD]
    return c
