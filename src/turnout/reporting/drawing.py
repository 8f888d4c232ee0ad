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
from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turnout.core.errors import ParameterError
from turnout.core.files import write

FORMATS = (".svg", ".png", ".pdf")
"""Endings of a picture's file."""
_PAGE_INK = "#123456"  # stands for the page's text colour until the SVG is written
_WIDTH_INCHES, _PANEL_INCHES = 7.2, 2.5
_INK = "#222222"  # everything that is not data
_LEGEND_SIZE, _ROW_INCHES = 8, 0.19
_LONG_WORDS = 62  # letters that leave no room beside a legend's entry
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
class Picture:
    """One figure.

    Attributes:
        name: of its files.
        title: what it shows, for a reader who sees nothing else; it stands above a file's panels.
        text: what a reader who cannot see it should know.
        draw: fills the axes of ``panels`` panels; its other argument is the ink of what is not
            data.
        columns: panels side by side.
    """

    name: str
    title: str
    text: str
    draw: Callable[[list[Axes], str], None]
    panels: int = 1
    columns: int = 1

    def png(self) -> bytes:
        """As pixels on white."""
        return self._saved(_INK, "png", "white")

    def svg(self) -> str:
        """As a drawing on white."""
        return self._saved(_INK, "svg", "white").decode()

    def write(self, path: str | Path) -> None:
        """Puts it into a file, in the format of its ending, on white.

        Raises:
            StorageError: the file system refuses.
        """
        file = Path(path)
        write(file, self._saved(_INK, file.suffix.lower()[1:], "white"))

    _repr_svg_ = svg

    def inline_svg(self) -> str:
        """As an element of a page: no ground of its own, ink in the page's text colour."""
        text = self._saved(_PAGE_INK, "svg", "none").decode()
        text = text[text.index("<svg") :].replace(_PAGE_INK, "currentColor")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
        text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{self.name}-", text)
        text = re.sub(r'\s(width|height)="[\d.]+pt"', "", text, count=2)
        label = self.text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)

    def figure(self, ink: str = _INK) -> Figure:
        """The panels, drawn; without the title."""
        style: dict[Any, Any] = {**_STYLE, **dict.fromkeys(_INKED, ink)}
        with rc_context(style):
            rows = -(-self.panels // self.columns)
            size = (_WIDTH_INCHES, _PANEL_INCHES * rows + 0.4)
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            axes = [figure.add_subplot(rows, self.columns, i + 1) for i in range(self.panels)]
            for axis in axes:
                axis.patch.set_alpha(0)
                axis.grid(color=ink, alpha=0.15, linewidth=0.6)
            self.draw(axes, ink)
            _legend(figure)
        return figure

    def _saved(self, ink: str, kind: str, ground: str) -> bytes:
        """The figure in a file format; a page has the title beside it."""
        figure, file = self.figure(ink), io.BytesIO()
        style: dict[Any, Any] = {**_STYLE, "text.color": ink}
        with rc_context(style):
            if ground != "none":
                figure.suptitle(self.title, x=0.01, ha="left", fontsize=11, weight="bold")
            fixed = {{"svg": "Date", "pdf": "CreationDate"}.get(kind, "Software"): None}
            figure.set_dpi(150 if kind == "png" else 72)
            figure.set_facecolor(ground)
            # `savefig` draws a figure twice, the first time for its layout, which is found before
            # anything is drawn: the files are the same.
            canvas: Any = get_registered_canvas_class(kind)(figure)
            getattr(canvas, f"print_{kind}")(file, metadata=fixed)
        return file.getvalue()


def _legend(figure: Figure) -> None:
    """One legend of all panels below them, for which the figure grows."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= zip(labels, handles, strict=True)
    if not entries:
        return
    columns = 1 if max(map(len, entries)) > _LONG_WORDS else 2
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _ROW_INCHES * -(-len(entries) // columns))
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower left",
        ncols=columns,
        fontsize=_LEGEND_SIZE,
    )
