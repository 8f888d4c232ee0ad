"""The file format of a release and its keys: a line of text, a header, the bits, a checksum.

A line ``turnout refinement KIND 1`` · length of the header (8 bytes, little-endian) · header (JSON,
keys sorted) · payload · SHA-256 of everything before it. One content has one such form, and no
byte of it can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from turnout.core.errors import StorageError

VERSION = 1
_DIGEST_BYTES = 32


def packed(kind: str, header: dict[str, Any], payload: bytes) -> bytes:
    """The bytes of a file."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    body = _first_line(kind, VERSION) + len(text).to_bytes(8, "little") + text + payload
    return body + hashlib.sha256(body).digest()


def unpacked(kind: str, data: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """Header and payload of a file.

    Raises:
        StorageError: it is another kind of file, from a newer version, or damaged.
    """
    line = data[: data.find(b"\n") + 1] if b"\n" in data[:64] else b""
    if line != _first_line(kind, VERSION):
        raise StorageError(f"{name}: {_complaint(kind, line)}")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    start = len(line) + 8
    if len(body) < start or hashlib.sha256(body).digest() != digest:
        raise StorageError(f"{name}: damaged or cut short (its checksum does not fit)")
    end = start + int.from_bytes(body[len(line) : start], "little")
    try:
        header = json.loads(body[start:end])
    except ValueError:
        raise StorageError(f"{name}: its header cannot be read") from None
    if end > len(body) or not isinstance(header, dict):
        raise StorageError(f"{name}: its header cannot be read")
    return header, body[end:]


def _first_line(kind: str, version: int) -> bytes:
    return f"turnout refinement {kind} {version}\n".encode()


def _complaint(kind: str, line: bytes) -> str:
    words = line.decode(errors="replace").split()
    if words[:2] != ["turnout", "refinement"] or len(words) != 4:
        return f"not a {kind} of turnout refine, or damaged"
    if words[2] != kind:
        return f"a {words[2]}, where a {kind} is needed"
    return f"format {words[3]}, but this version reads format {VERSION}"
