"""Import of packages that only benchmarks need, with a one-line error for a missing package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnout.core.optional import missing_extra


@contextmanager
def named_packages() -> Iterator[None]:
    """Exit with the package's name and install command if an import in the block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        script = Path(sys.argv[0]).name
        known = missing_extra(error, script)
        sys.exit(str(known or f"{script} needs the package {error.name}, which is not installed"))
