"""Replace-one for check-in windows: exact, or as tight as is proved."""

from turnout.accounting.laws.replace_one.blocks import (
    Closeness,
    LocalReplacementBlock,
    ReplacementBlock,
    under_replacement,
)

__all__ = ["Closeness", "LocalReplacementBlock", "ReplacementBlock", "under_replacement"]
