"""Lines of docs/coming-from.md, which the tests of other packages run in their environments."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"


def lines_of(section: str, sign: str) -> str:
    """Code of a section's first block of lines that begin with a sign, without the signs."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    block = next(block for block in blocks if block.startswith(sign))
    return "".join(f"{line.removeprefix(sign)}\n" for line in block.splitlines())
