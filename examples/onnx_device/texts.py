"""Hashed and signed texts: canonical JSON, digests, signatures, invitations, ledger heads."""

import base64
import hashlib
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class ProtocolError(Exception):
    """The coordinator violates the protocol."""


class SetBackError(ProtocolError):
    """The coordinator's ledger is older than the known ledger, or a different one."""


def require(holds, message, kind=ProtocolError):
    """Raise an error unless a condition holds."""
    if not holds:
        raise kind(message)


def sha256(data):
    """Hexadecimal SHA-256 digest."""
    return hashlib.sha256(data).hexdigest()


def canonical(value):
    """JSON with sorted keys and no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def plain(value):
    """Value with numbers in place of {"float": hexadecimal}."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float.fromhex(value["float"])
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def invitation_of(token):
    """Fields of an invitation token."""
    require(token.startswith("turnout1."), "the token is no invitation", ValueError)
    text = token.removeprefix("turnout1.")
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def new_key():
    """Private key, hexadecimal."""
    return Ed25519PrivateKey.generate().private_bytes_raw().hex()


def public_key(private):
    """Public key of a private key, hexadecimal."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    return key.public_key().public_bytes_raw().hex()


def signed_headers(memory, path, nonce, body, body_format):
    """Headers of a POST request, with the device's signature."""
    head = memory["head"]
    # The signed text has one line for each part of the request, in a fixed order.
    lines = [
        "turnout-request-1",
        f"task: {memory['task']}",
        "method: POST",
        f"path: {path}",
        f"client: {memory['client']}",
        f"nonce: {nonce}",
        *([f"head: {head}"] if head else []),
        *([f"format: {body_format}"] if body_format else []),
        f"digest: {sha256(body)}",
    ]
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(memory["private"]))
    # The same parts as headers; empty parts have no header.
    headers = {
        "Turnout-Client": str(memory["client"]),
        "Turnout-Nonce": nonce,
        "Turnout-Head": head,
        "Turnout-Format": body_format,
        "Turnout-Digest": sha256(body),
        "Turnout-Signature": key.sign("\n".join(lines).encode()).hex(),
    }
    return {name: value for name, value in headers.items() if value}


def require_newer(memory, signed):
    """Steps and digest of a signed ledger head that is not older than the known head."""
    steps, digest, signature = signed.split(":")
    text = f"turnout-head-1\n{memory['task']}\n{steps}:{digest}".encode()
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(memory["key"]))
        key.verify(bytes.fromhex(signature), text)
    except InvalidSignature:
        raise ProtocolError("the ledger head has no valid signature of the coordinator") from None
    steps = int(steps)
    require(steps > 0 or digest == memory["task"], "the ledger does not start at the charter")
    seen, known, _ = (memory["head"] or "0:: ").split(":")
    behind = steps < int(seen) or (steps == int(seen) and known not in ("", digest))
    require(not behind, f"the coordinator was set back from {seen} to {steps}", SetBackError)
    return steps, digest


def followed(task, steps, digest, record):
    """Steps and digest of the ledger after a record that continues it."""
    fields = {"task", "step", "sum", "model", "epsilon", "delta", "previous"}
    require(set(record) == fields, "a ledger record has an unknown format")
    follows = (record["task"], record["step"], record["previous"]) == (task, steps, digest)
    require(follows, "the ledger does not continue the ledger that this device knows", SetBackError)
    return steps + 1, sha256(canonical(record))
