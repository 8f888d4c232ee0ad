"""Files that settings name: secrets in a first line, and certificates."""

from __future__ import annotations

from pathlib import Path

from turnout.core.errors import ParameterError


def secret_of(
    path: Path, option: str, what: str, shortest: int, *, encoding: str = "utf-8-sig"
) -> str:
    """The secret in a file's first line.

    Raises:
        ParameterError: no such file, or too short a secret; it is not shown.
    """
    try:
        text = path.read_text(encoding).partition("\n")[0].strip()
    except (OSError, ValueError):
        readable = "a readable file" + (", in ASCII" if encoding == "ascii" else "")
        raise ParameterError(option, str(path), readable) from None
    if len(text) < shortest:
        expected = f"a file with a {what} of at least {shortest} characters"
        raise ParameterError(option, str(path), expected)
    return text


def tls_files(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Certificate and key; None without TLS."""
    if certificate is None and key is None:
        return None
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        if path is None or not path.is_file():
            raise ParameterError(name, None if path is None else str(path), "a file (PEM)")
    assert certificate is not None
    assert key is not None
    return certificate, key
