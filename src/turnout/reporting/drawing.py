"""Figures as PNG, SVG and PDF, with the same colour, marker and words for a subject everywhere.

A `Look` defines how a subject, such as a method or a trust model, is drawn in all pictures, and
`LOOKS` contains all looks. A `Picture` is a figure; `Picture.inline_svg` returns SVG in the text
colour of the surrounding page.

No two subjects in a picture share a colour, and no two share both marker and kind of line, so that
they can be told apart in greyscale as well. References, such as a target or the chance level, have
the colour of the text, called ink. A solid line is the guarantee in question. A dashed line is
a bound for another relation, not certified, or published without a sound proof. A dotted line is no
guarantee.
"""

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

SOLID, DASHED, DOTTED = "-", "--", ":"
# Okabe and Ito's colours and Paul Tol's muted ones: they stay apart for colour-blind readers.
_VERMILION, _BLUE, _GREEN, _PINK = "#d55e00", "#0072b2", "#009e73", "#cc79a7"
_SKY, _ORANGE, _INDIGO, _FOREST = "#56b4e9", "#e69f00", "#332288", "#117733"
_TEAL, _WINE, _OLIVE, _ROSE = "#44aa99", "#882255", "#8f8f2e", "#cc6677"
_VIOLET, _BROWN, _GREY, _SLATE = "#9b3fa0", "#8c510a", "#7f7f7f", "#3f4f63"


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, marker and legend text of one subject in pictures.

    Attributes:
        colour: colour in the form #rrggbb.
        marker: marker of Matplotlib; empty for the thick line of the picture's subject.
        words: text in the legend, in the reader's terms, with a theorem's name in brackets.
    """

    colour: str
    marker: str = ""
    words: str = ""

    def line(self, kind: str = SOLID) -> dict[str, Any]:
        """Matplotlib's keyword arguments of a line of the kind `SOLID`, `DASHED` or `DOTTED`.

        Without a marker the line is thick and below all others; with a marker it is thin.
        """
        if not self.marker:
            return {"color": self.colour, "linestyle": kind, "linewidth": 3.6, "zorder": 2}
        return {
            **{"color": self.colour, "linestyle": kind, "linewidth": 1.2, "zorder": 3},
            **{
                "marker": self.marker,
                "markersize": 9 if self.marker in "|_" else 5,
                "markerfacecolor": "none",
            },
        }


LOOKS = {
    # ε by analysis: check-ins
    "turnout": Look(_VERMILION, words="turnout's ε upper bound"),
    "check-in": Look(_VERMILION, words="random check-ins, exact distribution (turnout)"),
    "Poisson": Look(_BLUE, "o", "Poisson sampling at the same rate"),
    "Poisson RDP": Look(_TEAL, "s", "Poisson sampling by Rényi divergences"),
    "shuffling": Look(_GREEN, "^", "shuffled messages, each with its own noise"),
    "RDP 4.6": Look(_PINK, "D", "check-ins by Rényi divergences (allocation, Theorem 4.6)"),
    "alloc. 3.2": Look(_SKY, "v", "check-ins by a higher sampling rate (allocation, Theorem 3.2)"),
    "alloc. variance": Look(_INDIGO, "<", "the same by variance (Theorem 3.2 with Bernstein)"),
    "alloc. 4.1": Look(
        _FOREST, "P", "check-ins by Poisson given participation (allocation, Theorem 4.1)"
    ),
    "Dong": Look(_WINE, "X", "several check-ins by Rényi divergences (Dong et al. 2025)"),
    "k windows": Look(_ORANGE, "d", "k windows of t/k steps (allocation, Lemma 3.11)"),
    "check-ins 3.2": Look(_OLIVE, "X", "check-ins, one client a step (check-ins, Theorem 3.2)"),
    "no amplif.": Look(_GREY, ">", "no amplification: the steps are known"),
    # ε by analysis: shuffled messages
    "adaptive": Look(_VERMILION, words="shuffled, any adaptive randomizers (turnout)"),
    "non-adaptive": Look(_INDIGO, "|", "shuffled, any one non-adaptive randomizer (turnout)"),
    "attained": Look(_SLATE, "x", "ε lower bound for any such randomizers (attained)"),
    "binary RR": Look(_BLUE, "o", "binary randomized response (turnout)"),
    "Hadamard": Look(_SKY, "v", "Hadamard response (turnout)"),
    "clones": Look(_GREEN, "^", "clones, numerical (Feldman et al. 2021, Theorem 3.1)"),
    "clones KOV": Look(_TEAL, "s", "clones, composed from (ε, δ) (Kairouz et al. 2015)"),
    "clones 2023": Look(_FOREST, "P", "stronger clones (Feldman et al. 2023)"),
    "clones form": Look(_OLIVE, "<", "clones, closed form (Feldman et al. 2021, Theorem 3.1)"),
    "blanket": Look(_PINK, "D", "privacy blanket (Balle et al. 2019)"),
    "check-ins": Look(_BROWN, "X", "check-ins' bound for shuffling (check-ins, Theorem 5.1)"),
    "EFM19": Look(_WINE, "*", "first bound for shuffling (Erlingsson et al. 2019)"),
    "RDP 5.3.1": Look(_ROSE, "h", "Rényi divergence, smaller (Girgis, Theorem 5.3.1)"),
    "RDP 5.3.2": Look(_VIOLET, "p", "Rényi divergence, simpler (Girgis, Theorem 5.3.2)"),
    "RDP 5.4.1": Look(_ORANGE, "8", "Rényi divergence, sampled (Girgis, Theorem 5.4.1)"),
    "RDP below": Look(_SKY, "v", "Rényi divergence of binary response (Girgis, 5.3.3, 5.4.2)"),
    "no shuffler": Look(_GREY, ">", "no shuffler"),
    # Randomizers, keys and their errors
    "Laplace": Look(_GREY, ">", "Laplace noise, one message"),
    "central": Look(_BROWN, "D", "Laplace noise of a trusted coordinator"),
    "printed": Look(_FOREST, "P", "as printed"),
    "printed 2": Look(_TEAL, "s", "as printed, 2 levels"),
    "printed 3": Look(_INDIGO, "<", "as printed, 3 levels"),
    "printed 4": Look(_WINE, "X", "as printed, 4 levels"),
    "ours": Look(_VERMILION, words="turnout"),
    "ours, less": Look(_ORANGE, "d", "turnout, fewer messages"),
    "rotation": Look(_GREEN, "^", "a rotation"),
    "rotation, less": Look(_OLIVE, "*", "a rotation, fewer messages"),
    "rotation, bits": Look(_BROWN, "D", "a rotation, separate bits"),
    "PrivUnit": Look(_SLATE, "x", "PrivUnit"),
    "Kashin": Look(_BLUE, "o", "Kashin's representation"),
    "SQKR": Look(_VIOLET, "p", "SQKR"),
    "directions": Look(_SKY, "v", "a code over public directions (turnout)"),
    "RAPPOR": Look(_BROWN, "D", "RAPPOR, a bit an item"),
    "one bit": Look(_VERMILION, words="one-bit Hadamard response (turnout)"),
    "value": Look(_GREY, ">", "the value itself, log₂ k bits"),
    "k-ary": Look(_GREEN, "^", "k-ary randomized response"),
    "Hadamard message": Look(_BLUE, "o", "Hadamard response"),
    "Hadamard key": Look(_SKY, "v", "Hadamard response with a key"),
    "projective key": Look(_WINE, "X", "projective planes with a key"),
    "least key": Look(_PINK, "*", "the smallest key that recovers the value"),
    "separate": Look(_FOREST, "P", "a message for each analyst"),
    "first key": Look(_BLUE, "o", "the first analyst's key"),
    "public": Look(_GREY, ">", "the last level alone"),
    # Bandits
    "bandit none": Look(_SLATE, "x", "without privacy"),
    "bandit central": Look(_BROWN, "D", "trusted learner, noisy sums (central)"),
    "bandit shuffled": Look(_GREEN, "^", "shuffled bits"),
    "bandit local": Look(_BLUE, "o", "each client's bit randomized alone (local)"),
    "core set": Look(_VERMILION, words="a core set is pulled (turnout)"),
    "all actions": Look(_ORANGE, "d", "all actions are pulled (turnout)"),
    "printed core set": Look(_FOREST, "P", "a core set is pulled (Algorithm 6.3.1 as printed)"),
    "printed all actions": Look(_TEAL, "s", "all actions are pulled (as printed)"),
    # What an attacker can do
    "scheme": Look(_VERMILION, words="this scheme: no attacker does better"),
    "Gaussian DP": Look(_INDIGO, "<", "Gaussian differential privacy"),
    "remove": Look(_BLUE, "o", "remove: did the client take part?"),
    "add": Look(_ORANGE, "d", "add: can the client be ruled out?"),
    "replace": Look(_VIOLET, "p", "replace: this record, or another?"),
    "audit": Look(_BLUE, "o", "counted in the trials of an audit"),
    # A run
    "accuracy": Look(_GREEN),
    "baseline": Look(_SLATE, words="without noise and clipping"),
    "clipped": Look(_BROWN),
    "signal": Look(_VIOLET),
    "accuracy, all": Look(_PINK, "D", "every phone always available"),
    "ε": Look(_VERMILION),
    "came": Look(_BLUE, words="clients who checked in"),
    "available": Look(_TEAL),
    # One task by several ways
    "one way: command line": Look(_GREY, "s", "turnout train"),
    "one way: Python": Look(_BLUE, "x", "turnout.train (Python)"),
    "one way: Ray": Look(_ORANGE, "|", "turnout.train on Ray"),
    "one way: Flower": Look(_GREEN, "o", "Flower, nodes that check in"),
    # Estimates
    "estimate": Look(_VERMILION, "o", "estimate"),
    "population": Look(_BLUE, "_"),
    "these clients": Look(_SKY, "|"),
    # Privacy levels of one release, the largest ε first
    "level 1": Look(_VERMILION, "o"),
    "level 2": Look(_BLUE, "s"),
    "level 3": Look(_GREEN, "^"),
    "level 4": Look(_VIOLET, "D"),
    "level 5": Look(_ORANGE, "v"),
    "level 6": Look(_SLATE, "P"),
    "level 7": Look(_PINK, "X"),
    "level 8": Look(_BROWN, "h"),
    # Settings and grids of the accounting
    "setting 1": Look(_BLUE, "s"),
    "setting 2": Look(_VERMILION, "o"),
    "setting 3": Look(_TEAL, "^"),
    "setting 4": Look(_VIOLET, "D"),
    "upper distribution": Look(
        _VERMILION, "o", "moved to neighbouring points: larger in convex order"
    ),
    "lower distribution": Look(_BLUE, "D", "gathered in cell means: smaller in convex order"),
    "rounded up": Look(_GREY, "s", "rounded up"),
    "rounded down": Look(_TEAL, "v", "rounded down"),
}
"""Looks by meaning; for `turnout compare`, by the name of the method."""


FORMATS = (".svg", ".png", ".pdf")
"""File name endings of the supported picture formats."""
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
    """Path of a picture's file, after a check of its ending.

    Raises:
        ParameterError: the ending is none of `FORMATS`.
    """
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        raise ParameterError("--picture", file, f"a file that ends in {', '.join(FORMATS)}")
    return path


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of one or more panels.

    Attributes:
        name: name of the figure's files, without ending.
        title: title above the panels; it states the figure's content without any context.
        text: text alternative for readers who cannot see the figure.
        draw: function that draws into the axes of all panels. Its second argument is the ink, the
            colour of everything that is not data.
        panels: number of panels.
        columns: number of panels in a row.
    """

    name: str
    title: str
    text: str
    draw: Callable[[list[Axes], str], None]
    panels: int = 1
    columns: int = 1

    def png(self) -> bytes:
        """Bytes of the figure as PNG, with a white background."""
        return self._saved(_INK, "png", "white")

    def svg(self) -> str:
        """Text of the figure as SVG, with a white background."""
        return self._saved(_INK, "svg", "white").decode()

    def write(self, path: str | Path) -> None:
        """Write the picture, with a white background, in the format of the file name's ending.

        Raises:
            StorageError: the file cannot be written.
        """
        file = Path(path)
        write(file, self._saved(_INK, file.suffix.lower()[1:], "white"))

    _repr_svg_ = svg

    def inline_svg(self) -> str:
        """SVG element for an HTML page: transparent, in the page's text colour."""
        # Draw in a colour that no data have, and replace it by the colour of the page.
        text = self._saved(_PAGE_INK, "svg", "none").decode()
        text = text[text.index("<svg") :].replace(_PAGE_INK, "currentColor")
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
        # Make ids unique in the page, and let the page set the size.
        text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{self.name}-", text)
        text = re.sub(r'\s(width|height)="[\d.]+pt"', "", text, count=2)
        label = self.text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)

    def figure(self, ink: str = _INK) -> Figure:
        """Matplotlib figure of the panels, without the title."""
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
        """Bytes of the figure in the file format ``kind``, with the background ``ground``.

        A transparent figure ("none") has no title, since the page around it shows the title.
        """
        figure, file = self.figure(ink), io.BytesIO()
        style: dict[Any, Any] = {**_STYLE, "text.color": ink}
        with rc_context(style):
            if ground != "none":
                figure.suptitle(self.title, x=0.01, ha="left", fontsize=11, weight="bold")
            fixed = {{"svg": "Date", "pdf": "CreationDate"}.get(kind, "Software"): None}
            figure.set_dpi(150 if kind == "png" else 72)
            figure.set_facecolor(ground)
            # `savefig` would draw the figure twice, the first time only for the layout. Printing
            # through the canvas computes the layout first and writes the same file.
            canvas: Any = get_registered_canvas_class(kind)(figure)
            getattr(canvas, f"print_{kind}")(file, metadata=fixed)
        return file.getvalue()


def _legend(figure: Figure) -> None:
    """Add one legend for all panels, below the panels."""
    # Collect every label once, with one handle.
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= zip(labels, handles, strict=True)
    if not entries:
        return
    # Enlarge the figure by the rows of the legend.
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
