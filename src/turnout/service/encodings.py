"""The formats of an update in a charter, by name, and the encodings that they stand for.

Each document says all that a client in another language needs, derived numbers included, so that
no two of them can round differently: a charter whose numbers are not those worked out here does
not read back as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turnout.core.errors import UnsupportedError
from turnout.protocol.lattice import Lattice
from turnout.service.wire import UPDATE_FORMAT

if TYPE_CHECKING:
    from turnout.protocol.randomized import MessageEncoding, UpdateEncoding

Document = dict[str, Any]
SEEDED_CODE, SAMPLED_BIT, HADAMARD_BIT = "seeded-code-1", "sampled-bit-1", "hadamard-bit-1"
_CODE = ("directions", "preferred", "seed_bits", "public_seed")


def encoding_of(document: Document) -> UpdateEncoding:
    """The encoding that a charter's ``messages.update`` names, its format known.

    Raises:
        ParameterError: a value outside its domain.
        KeyError, TypeError: other fields than the format has.
    """
    fields = {key: value for key, value in document.items() if key != "format"}
    return _READERS[document["format"]](fields)


def document_of(encoding: UpdateEncoding) -> Document:
    """The charter's ``messages.update``; `encoding_of` reads it.

    Raises:
        UnsupportedError: messages that no format stands for.
    """
    if isinstance(encoding, Lattice):
        return {
            "format": UPDATE_FORMAT,
            "step": encoding.step,
            "clip_norm": encoding.clip_norm,
            "dimension": encoding.dimension,
        }
    from turnout.protocol.randomized import MessageEncoding

    assert isinstance(encoding, MessageEncoding)
    document = _message_document(encoding)
    if encoding_of(document) != encoding:
        raise UnsupportedError(
            f"no format of a charter stands for {encoding.randomizer}: a randomizer of devices is "
            "one of a plan's, none of them as printed"
        )
    return document


def _message_document(encoding: MessageEncoding) -> Document:
    from turnout.randomizers.vectors import L1Randomizer, LInfRandomizer, SeededCode

    randomizer = encoding.randomizer
    common = {
        "clip_norm": float(randomizer.radius),
        "dimension": randomizer.dimension,
        "message_bits": randomizer.message_bits,
    }
    match randomizer:
        case SeededCode():
            own = {key: getattr(randomizer, key) for key in _CODE}
            common |= own | {"preference": float(randomizer.preference), "format": SEEDED_CODE}
        case LInfRandomizer():
            common |= {"flip": randomizer.flips[0], "format": SAMPLED_BIT}
        case L1Randomizer():
            common |= {"flip": randomizer.flip, "format": HADAMARD_BIT}
        case _:
            kind = type(randomizer).__name__
            raise UnsupportedError(f"no format of a charter stands for {kind}")
    return common | {"epsilon": float(randomizer.epsilon)}


def _seeded_code(fields: Document) -> UpdateEncoding:
    from turnout.randomizers.vectors import SeededCode

    _taken(fields, *_CODE, "preference")
    return _messages(SeededCode(*_common(fields), **{key: fields[key] for key in _CODE}))


def _sampled_bit(fields: Document) -> UpdateEncoding:
    from turnout.randomizers.vectors import LInfRandomizer

    _taken(fields, "flip")
    return _messages(LInfRandomizer(*_common(fields)))


def _hadamard_bit(fields: Document) -> UpdateEncoding:
    from turnout.randomizers.vectors import L1Randomizer

    _taken(fields, "flip")
    return _messages(L1Randomizer(*_common(fields)))


def _common(fields: Document) -> tuple[int, float, float]:
    """What every randomizer is made of: d, ε₀ as asked for, C."""
    return fields["dimension"], fields["epsilon"], fields["clip_norm"]


def _taken(fields: Document, *own: str) -> None:
    """Refuses other fields than these and those of every message.

    Raises:
        KeyError: there are others, or one is missing.
    """
    due = {"dimension", "epsilon", "clip_norm", "message_bits", *own}
    if set(fields) != due:
        raise KeyError(", ".join(sorted(set(fields) ^ due)))


def _messages(randomizer: Any) -> UpdateEncoding:
    from turnout.protocol.randomized import MessageEncoding

    return MessageEncoding(randomizer)


_READERS: dict[str, Callable[[Document], UpdateEncoding]] = {
    UPDATE_FORMAT: lambda fields: Lattice(**fields),
    SEEDED_CODE: _seeded_code,
    SAMPLED_BIT: _sampled_bit,
    HADAMARD_BIT: _hadamard_bit,
}
UPDATE_FORMATS = tuple(_READERS)
"""All that a charter may name."""
