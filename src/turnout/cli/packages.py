"""What the commands of the service need beside the package itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnout.core.errors import UnsupportedError


@contextmanager
def service_packages() -> Iterator[None]:
    """Says how to get a package of the service that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("turnout"):
            raise
        raise UnsupportedError(
            f"this needs the package {error.name}: pip install 'turnout[service]'"
        ) from None
