"""Figures as PNG, as SVG, and as SVG that takes its ink from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turnout.core.errors import ParameterError
from turnout.reporting.folder import write

FORMATS = (".svg", ".png", ".pdf")
"""Endings of a picture's file."""
_PAGE_INK = "#123456"  # stands for the page's text colour until the SVG is written
_WIDTH_INCHES, _PANEL_INCHES = 7.2, 2.5
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "turnout",
}
_INKED = (
    "text.color",
    "axes.labelcolor",
    "axes.edgecolor",
    "axes.titlecolor",
    "xtick.color",
    "ytick.color",
    "legend.labelcolor",
)


def check_format(file: str) -> Path:
    """The file's path."""
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        raise ParameterError("--picture", file, f"a file that ends in {', '.join(FORMATS)}")
    return path


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours that differ in lightness too; ``ink`` is for everything that is not data."""

    ink: str
    first: str = "#3b82c4"
    second: str = "#d9822b"


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure.

    Attributes:
        name: of its files.
        title: what it shows, in a few words.
        text: what a reader who cannot see it should know.
        draw: fills the axes of ``panels`` panels.
    """

    name: str
    title: str
    text: str
    draw: Callable[[list[Axes], Palette], None]
    panels: int = 1

    def png(self) -> bytes:
        """As pixels on white."""
        return self._saved(Palette("#222222"), "png", "white")

    def svg(self) -> str:
        """As a drawing on white."""
        return self._saved(Palette("#222222"), "svg", "white").decode()

    def write(self, path: Path) -> None:
        """Puts it into a file, in the format of its ending, on white.

        Raises:
            StorageError: the file system refuses.
        """
        write(path, self._saved(Palette("#222222"), path.suffix.lower()[1:], "white"))

    _repr_svg_ = svg

    def inline_svg(self) -> str:
        """As an element of a page: no ground of its own, ink in the page's text colour."""
        text = self._saved(Palette(_PAGE_INK), "svg", "none").decode()
        text = text[text.index("<svg") :].replace(_PAGE_INK, "currentColor")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
        text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{self.name}-", text)
        text = re.sub(r'\s(width|height)="[\d.]+pt"', "", text, count=2)
        label = self.text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)

    def figure(self) -> Figure:
        """As a figure of matplotlib, to be changed or saved."""
        return self._drawn(Palette("#222222"))

    def _drawn(self, palette: Palette) -> Figure:
        with rc_context(_style(palette)):
            size = (_WIDTH_INCHES, _PANEL_INCHES * self.panels + 0.4)
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            axes = [figure.add_subplot(self.panels, 1, i + 1) for i in range(self.panels)]
            for axis in axes:
                axis.patch.set_alpha(0)
                axis.grid(color=palette.ink, alpha=0.15, linewidth=0.6)
            self.draw(axes, palette)
        return figure

    def _saved(self, palette: Palette, kind: str, ground: str) -> bytes:
        """The figure in a file format."""
        figure, file = self._drawn(palette), io.BytesIO()
        fixed = {{"svg": "Date", "pdf": "CreationDate"}.get(kind, "Software"): None}
        with rc_context(_style(palette)):
            figure.savefig(file, format=kind, dpi=150, facecolor=ground, metadata=fixed)
        return file.getvalue()


def _style(palette: Palette) -> dict[Any, Any]:
    return {**_STYLE, **dict.fromkeys(_INKED, palette.ink)}
