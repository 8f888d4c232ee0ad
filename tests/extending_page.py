"""Examples of docs/extending.md, and a plan that uses its participation, for tests."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
PLAN = """
[data]
name = "digits"
clients = 60
[model]
name = "logistic"
[participation]
law = "rested"
window = 3
pairs = 2
[privacy]
relation = "add-remove"
delta = 1e-4
epsilon = 3.0
[optimizer]
learning_rate = 0.5
"""


def example(marker: str) -> str:
    """Code block of docs/extending.md that follows the comment ``marker``."""
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```python\n(.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    return found[1]
