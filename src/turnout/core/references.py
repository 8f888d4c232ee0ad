"""Names of code of the user's own, as plans and charters give them."""

from __future__ import annotations


def is_reference(text: str) -> bool:
    """Whether a text has the form "module:name"."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in f"{module}.{name}".split("."))
