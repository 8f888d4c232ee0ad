"""The errors that turnout raises, as one tree.

TurnoutError
├── ParameterError (ValueError)       name, value, expected
├── UnsupportedError                  no sound analysis is known for this combination
├── MissingExtraError (ImportError)   what, package, extras: an optional package is missing
├── NumericalError (ArithmeticError)  a result cannot be certified, so none is returned
├── BudgetExceededError               requested, remaining
├── StorageError                      a file is missing, damaged or has other content
│   └── InputFileError                an input file is missing or has the wrong form
└── ProtocolError
    ├── LocalProtocolError            this endpoint violated the protocol
    └── RemoteProtocolError           the other endpoint violated the protocol
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TurnoutError(Exception):
    """Base class of all errors that turnout raises on purpose; the text is one line."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Form for pickle with the error's attributes; unpickling calls no ``__init__``."""
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[TurnoutError], args: tuple[object, ...], own: dict[str, Any]) -> Any:
    """Error with the class, arguments and attributes of a pickled error."""
    error = kind.__new__(kind, *args)
    vars(error).update(own)
    return error


class ParameterError(TurnoutError, ValueError):
    """Error: a value is outside its domain.

    Attributes:
        name: the parameter or plan key, for example ``privacy.noise_multiplier``.
        value: the value that was given.
        expected: the allowed values, as a phrase that follows the word "expected".
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} = {value!r}: expected {expected}{_meant(value, expected)}")
        self.name = name
        self.value = value
        self.expected = expected


def _meant(value: object, expected: str) -> str:
    """End of the message that suggests the allowed word nearest to an unknown word; or empty."""
    if not isinstance(value, str) or not expected.startswith("one of "):
        return ""
    import re

    from turnout.core.suggestions import nearest

    # The allowed words are in quotes, or plain words between commas.
    listed = expected.removeprefix("one of ")
    plain = [word for word in listed.split(", ") if re.fullmatch(r"[\w.-]+", word)]
    words = re.findall(r"'([^']+)'", listed) or plain
    found = nearest(value, words)
    return f"; did you mean {found!r}?" if found is not None else ""


class UnsupportedError(TurnoutError):
    """Error: no sound analysis is known for this combination, so no number is returned."""


class MissingExtraError(TurnoutError, ImportError):
    """Error: a package that turnout installs only with an extra is missing.

    Attributes:
        what: name of the command or function that needs the package.
        package: name of the missing package.
        extras: names of all extras that this command or function needs.
    """

    def __init__(self, what: str, package: str, extras: Sequence[str]) -> None:
        from turnout.core.installation import install_line

        super().__init__(f"{what} needs {package}: {install_line(*extras)}", name=package)
        self.what = what
        self.package = package
        self.extras = tuple(extras)


class NumericalError(TurnoutError, ArithmeticError):
    """Error: a result cannot be certified to the requested tolerance, so none is returned."""


class BudgetExceededError(TurnoutError):
    """Error: a release needs more than what remains of the privacy budget.

    Attributes:
        requested: ε, or other quantity of the budget, that the release needs.
        remaining: amount of this quantity that is left.
    """

    def __init__(self, requested: float, remaining: float, what: str = "epsilon") -> None:
        super().__init__(f"{what} {requested:.6g} requested, but only {remaining:.6g} remains")
        self.requested = requested
        self.remaining = remaining


class StorageError(TurnoutError):
    """Error: a file or folder is missing, damaged, or already contains other data."""


class InputFileError(StorageError):
    """Error: an input file is missing, or its content has the wrong form."""


class ProtocolError(TurnoutError):
    """Error: an endpoint caused an event that the protocol's state table does not allow."""


class LocalProtocolError(ProtocolError):
    """Error: the program of this endpoint violated the protocol."""


class RemoteProtocolError(ProtocolError):
    """Error: the other endpoint violated the protocol."""
