"""The base of what the verbs return: text, JSON, a table in a notebook, equality."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = 100


class Result(ABC):
    """An answer; two of the same kind that say the same are equal, running times apart."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values: what the command line prints with ``--json``."""

    @abstractmethod
    def table(self) -> RenderableType:
        """The table that the command line prints, for rich to print."""

    def to_json(self, indent: int | None = 2) -> str:
        """Everything as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def _repr_html_(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=_COLUMNS, record=True)
        console.print(self.table(), highlight=False)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, others = self.to_dict(), other.to_dict()
        return {**mine, "seconds": None} == {**others, "seconds": None}

    __hash__ = None  # pyright: ignore[reportAssignmentType]
