"""Install command of turnout, in messages, pages and unit files alike.

The project's name is not registered at a package index. Nothing is installed by name, since anyone
who registered it could run code on the machines of users. `pip wheel --no-deps .` in a copy of the
repository builds the file, and ``python tests/meta/install_lines.py`` writes it into all pages.
"""

from __future__ import annotations

WHEEL = "./turnout-0.1.0-py3-none-any.whl"
"""What is installed: a path. With no such file pip ends, and asks no index for it."""


def install_line(*extras: str) -> str:
    """Command that installs turnout with the given extras.

    >>> install_line("service", "train")
    "pip install './turnout-0.1.0-py3-none-any.whl[service,train]'"
    """
    return f"pip install '{WHEEL}[{','.join(extras)}]'" if extras else f"pip install {WHEEL}"
