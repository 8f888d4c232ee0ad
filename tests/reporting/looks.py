"""Style rules that every picture must satisfy, checked on the Matplotlib figure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from turnout.reporting.drawing import Picture

INK = "#010203"  # a colour without meaning
OLD_WORDS = re.compile(
    r"\b(she|hers?|proved|at least|coin|ours|reach|leak|call|put|strike|spread|outdone|dearer)\b"
    r"|^(alloc\.|no amplif\.|RDP [\d.]+|adaptive|one fixed)",
    re.IGNORECASE,
)


def faults(picture: Picture) -> list[str]:
    """Violations of the style rules in a picture; an empty list if there is none."""
    axes = picture.figure(INK).axes
    found = [
        f"no name of the {side} axis of {axis.get_title('left')!r}"
        for axis in axes
        for side in _bare(axis)
    ]
    found += [
        f"no title of a panel of {picture.name}" for axis in axes if not axis.get_title("left")
    ]
    meanings: dict[str, set[str]] = defaultdict(set)
    for axis in axes:
        labels = _labelled(axis)
        for label, colour, _ in labels:
            meanings[colour].add(label)
        for kind, alike in _grouped((look, label) for label, _, look in labels).items():
            found += [f"{kind} twice: {sorted(alike)}"] * (len(alike) > 1)
    meanings.pop(INK, None)
    found += [
        f"{colour} twice: {sorted(said)}" for colour, said in meanings.items() if len(said) > 1
    ]
    colours = _grouped((label, colour) for colour, said in meanings.items() for label in said)
    found += [f"{label!r} in {sorted(of)}" for label, of in colours.items() if len(of) > 1]
    words = {*(label for said in meanings.values() for label in said), *_texts(axes)}
    found += [f"old word: {text!r}" for text in sorted(words) if OLD_WORDS.search(text)]
    return found


def legends(picture: Picture) -> set[str]:
    """Legend entries of a picture."""
    return {text.get_text() for entry in picture.figure().legends for text in entry.get_texts()}


def _labelled(axis: Axes) -> list[tuple[str, str, Any]]:
    """Label, colour, marker and line style of each artist that has a legend entry."""
    return [(label, _colour(drawn), _look(drawn)) for drawn, label in _entries(axis)]


def _entries(axis: Axes) -> Iterable[tuple[Any, str]]:
    return zip(*axis.get_legend_handles_labels(), strict=True)


def _colour(drawn: Any) -> str:
    """Colour of a line, a collection or bars."""
    for getter in ("get_color", "get_facecolor"):
        if hasattr(drawn, getter):
            colours = getattr(drawn, getter)()
            return to_hex(colours[0] if getattr(colours, "ndim", 1) == 2 else colours)
    return to_hex(drawn.patches[0].get_facecolor())


def _look(drawn: Any) -> Any:
    """Line style that distinguishes an artist without colour; kind and width for other artists."""
    if hasattr(drawn, "get_marker"):
        return drawn.get_marker(), drawn.get_linestyle(), drawn.get_linewidth() > 3
    width = drawn.get_linewidth()[0] if hasattr(drawn, "get_linewidth") else 0
    return type(drawn).__name__, float(width)


def _grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, set[str]]:
    groups: dict[Any, set[str]] = defaultdict(set)
    for key, value in pairs:
        groups[key].add(value)
    return groups


def _bare(axis: Axes) -> list[str]:
    return [side for side in "xy" if not getattr(axis, f"get_{side}label")()]


def _texts(axes: Iterable[Axes]) -> set[str]:
    return {
        text
        for axis in axes
        for text in (axis.get_title("left"), axis.get_xlabel(), axis.get_ylabel())
    }
