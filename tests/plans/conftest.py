"""A small valid plan, which tests change."""

from __future__ import annotations

import pytest

SMALL = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = 10
windows = 3
[privacy]
relation = "add-remove"
delta = 1e-4
epsilon = 3.0
[optimizer]
learning_rate = 0.5
"""


@pytest.fixture
def small_plan() -> str:
    return SMALL
