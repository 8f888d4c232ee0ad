"""Install command of turnout, the same in messages, pages and unit files.

The project's name is not registered at a package index. So the command does not install by name:
anyone who registers the name could run code on the machines of users.
`pip wheel --no-deps .` in a copy of the repository builds the file that the command installs, and
``python tests/meta/install_lines.py`` writes the command into all pages.
"""

from __future__ import annotations

WHEEL = "./turnout-0.1.0-py3-none-any.whl"
"""Path of the file to install. If it does not exist, pip ends without a query to an index."""


def install_line(*extras: str) -> str:
    """Command that installs turnout with the given extras.

    >>> install_line("service", "train")
    "pip install './turnout-0.1.0-py3-none-any.whl[service,train]'"
    """
    return f"pip install '{WHEEL}[{','.join(extras)}]'" if extras else f"pip install {WHEEL}"
