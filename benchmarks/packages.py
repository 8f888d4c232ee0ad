"""Packages of benchmarks that turnout does without: one that is missing is named in a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnout.core.optional import missing_extra


@contextmanager
def named_packages() -> Iterator[None]:
    """Ends the process where an import inside fails, with the package and how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        script = Path(sys.argv[0]).name
        known = missing_extra(error, script)
        sys.exit(str(known or f"{script} needs the package {error.name}, which is not installed"))
