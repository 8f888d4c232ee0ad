"""Shakespeare's roles: one client per role, and its text as records of characters."""

from __future__ import annotations

import os
import zipfile
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

CHARACTERS = "\n !',-.:;?abcdefghijklmnopqrstuvwxyz"
"""Public vocabulary: other characters are removed, capitals become small letters."""

LENGTH, MOST = 48, 32
"""Characters per record, and largest number of records of a role."""


def roles() -> list[tuple[str, str]]:
    """Name and text of each role of the eight plays, in the order of the file."""
    folder = Path(os.environ.get("TURNOUT_DATA", "data")) / "shakespeare"
    texts: dict[str, list[str]] = defaultdict(list)
    with zipfile.ZipFile(folder / "nltk-shakespeare-8plays.zip") as file:
        for name in sorted(file.namelist()):
            if name.endswith(".xml"):
                for speech in ElementTree.fromstring(file.read(name)).iter("SPEECH"):
                    lines = ["".join(line.itertext()) for line in speech.iter("LINE")]
                    role = f"{Path(name).stem}: {speech.findtext('SPEAKER')}"
                    texts[role].append("\n".join(lines))
    return [(role, "\n".join(parts)) for role, parts in texts.items()]


def records(text: str) -> NDArray[np.int64]:
    """Text of a role as rows of LENGTH + 1 tokens; −1 after its end."""
    place = {character: k for k, character in enumerate(CHARACTERS)}
    tokens = [place[one] for one in text.lower() if one in place]
    count = min(MOST, -(-(len(tokens) - 1) // LENGTH))
    rows = np.full((max(count, 0), LENGTH + 1), -1, np.int64)
    for row in range(len(rows)):
        part = tokens[row * LENGTH : (row + 1) * LENGTH + 1]
        rows[row, : len(part)] = part
    return rows
