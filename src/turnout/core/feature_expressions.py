"""Names that plans and charters give to features and to a user's own code.

`feature_stages` parses a plan's ``features`` into stages of names. `is_reference` distinguishes a
reference to a user's own code (``module:name``) from a built-in name.
"""

from __future__ import annotations

from turnout.core.errors import ParameterError


def is_reference(text: str) -> bool:
    """True if a text has the form "module:name"."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in f"{module}.{name}".split("."))


FEATURES = ("pixels", "standardized", "deskewed", "scattering", "hog", "hog-cells")
"""Names of the built-in feature functions."""

THEN, BESIDE = "|", "+"

MOST_NAMES = 16
"""Largest number of names in an expression; it limits the work of a device that runs a plan."""


def feature_stages(text: str) -> tuple[tuple[str, ...], ...]:
    """Stages of a feature expression, each a tuple of names of functions of the same input.

    Args:
        text: built-in names, or "module:name" of a user's function. The sign ``|`` separates
            stages, which are applied one after the other. The sign ``+`` separates the names of a
            stage, whose functions are applied to the same input and whose results are joined.

    Raises:
        ParameterError: a name is unknown or missing, or there are too many names.

    >>> feature_stages("deskewed | scattering + hog")
    (('deskewed',), ('scattering', 'hog'))
    """
    stages = tuple(
        tuple(name.strip() for name in stage.split(BESIDE)) for stage in text.split(THEN)
    )
    names = [name for stage in stages for name in stage]
    if len(names) > MOST_NAMES:
        raise ParameterError("features", text, f"at most {MOST_NAMES} names")
    for name in names:
        if name not in FEATURES and not is_reference(name):
            expected = (
                f"{', '.join(FEATURES)} or module:function, joined by + (applied to the same "
                "input) or by | (applied one after the other)"
            )
            raise ParameterError("features", text, expected)
    return stages


def names_code(text: str) -> bool:
    """True if an expression refers to a user's own code."""
    return any(is_reference(name) for stage in feature_stages(text) for name in stage)
