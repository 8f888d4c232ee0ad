"""Table ``[data]`` of a plan: the name of a data set, or a file with the roles of its columns.

`DataSection` is the table. Its validators convert texts to the form in which records are compared
(`turnout.core.values`), and its checks raise errors for keys that exclude or require each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from turnout.core import checks
from turnout.core.errors import ParameterError
from turnout.core.values import canonical
from turnout.plans.sections import Count, Section

_OWN = (
    "client",
    "inputs",
    "label",
    "target",
    "test",
    "classes",
    "categories",
    "scaling",
    "missing",
)
_OWN_KEYS = (*_OWN, "vocabulary", "length")
_BOUGHT = "if it is computed from private data, it costs ε (see turnout estimate)"


def _names(value: Any) -> Any:
    """Names of columns as a tuple, from one name or a list of names."""
    if value is None:
        return None
    names = _texts((value,) if isinstance(value, str) else value)
    if not names:
        raise ParameterError("value", value, "the name of a column, or a list of different names")
    return names


def _name(value: Any) -> Any:
    """Name of a column in Unicode's normal form C; a value that is no text is unchanged."""
    return canonical(value) if isinstance(value, str) else value


def _texts(value: object) -> tuple[str, ...]:
    """Texts of a list in Unicode's normal form C.

    The result is empty if the value is not a list, or if a text is empty or occurs twice.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        return ()
    texts = tuple(map(canonical, value))
    return texts if len(set(texts)) == len(texts) and "" not in texts else ()


def _classes(value: Any) -> Any:
    """Number of classes, or a tuple of their names; None if not given."""
    names = _texts(value)
    if value is None or len(names) >= 2:
        return names or None
    expected = (
        f"the number of classes, at least 2, or the list of their names; both are public: {_BOUGHT}"
    )
    return _count_or(value, 2, expected)


def _vocabulary(value: Any) -> Any:
    """Number of tokens, or a text of all characters; None if not given."""
    if isinstance(value, str) and len(set(value)) == len(value) >= 2:
        return value
    if value is None:
        return None
    expected = f"the number of tokens, or a text of all characters; both are public: {_BOUGHT}"
    return _count_or(value, 2, expected)


def _count_or(value: Any, least: int, expected: str) -> int:
    """The value, a whole number of at least ``least``; other values raise a ParameterError."""
    try:
        checks.count(least, value=value)
    except ParameterError:
        raise ParameterError("value", value, expected) from None
    return int(value)


def _categories(value: Any) -> Any:
    """For each column name the tuple of permitted texts; None if not given."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(map(_texts, value.values())):
        raise ParameterError("value", value, f"a public list of texts for each column: {_BOUGHT}")
    return {canonical(str(column)): _texts(words) for column, words in value.items()}


def _scaling(value: Any) -> Any:
    """For each column name the values that are mapped to 0 and 1; None if not given."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(map(_is_range, value.values())):
        expected = f"{{column = [low, high]}} with public numbers, low below high: {_BOUGHT}"
        raise ParameterError("value", value, expected)
    ranges = ((canonical(str(column)), pair) for column, pair in value.items())
    return {column: (float(low), float(high)) for column, (low, high) in ranges}


def _constants(value: Any) -> Any:
    """For each column name the text or number that replaces missing values; None if not given."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(map(_is_constant, value.values())):
        expected = f"{{column = a public text or number}}: {_BOUGHT}"
        raise ParameterError("value", value, expected)
    return {canonical(str(column)): _name(constant) for column, constant in value.items()}


def _is_constant(value: object) -> bool:
    """Whether a value is a text that is not empty, or a finite number."""
    if isinstance(value, str | bool):
        return value != ""
    try:
        checks.number(value=value)
    except ParameterError:
        return False
    return True


def _is_range(value: object) -> bool:
    """Whether a value is a list of two numbers, the lower one first."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    try:
        checks.positive(width=value[1] - value[0])
    except (ParameterError, TypeError):
        return False
    return not any(isinstance(one, bool) for one in value)


def _test(value: Any) -> Any:
    """Test set as a fraction of the clients, a column name or a path; None if not given."""
    if value is None or (isinstance(value, str) and value):
        return value  # unchanged, as it may be the path of a file
    try:
        checks.open_unit(value=value)
    except ParameterError:
        expected = "a share of the clients between 0 and 1, a column of true and false, or a file"
        raise ParameterError("value", value, expected) from None
    return float(value)


class DataSection(Section):
    """Data of the clients: a data set by name, or the user's own file or folder."""

    name: Literal["digits", "mnist", "fashion-mnist"] | None = Field(
        None, description="name of a data set that turnout has"
    )
    path: str | None = Field(
        None,
        description="in place of `name`: a .parquet, .csv or .npz file, or a folder of .npy "
        "files, of a Hugging Face data set, or of images; relative to the plan",
    )
    client: Annotated[str | None, BeforeValidator(_name)] = Field(
        None,
        description="with `path`: the column with the client of a record; unset: records belong to "
        "no client and are dealt",
    )
    inputs: Annotated[tuple[str, ...] | None, BeforeValidator(_names)] = Field(
        None, description="with `path`: the columns that a model sees, or one column of arrays"
    )
    label: Annotated[tuple[str, ...] | None, BeforeValidator(_names)] = Field(
        None,
        description="with `path`: the column to predict, or several columns of numbers or tags; "
        "unset with target = 'tokens': the next token",
    )
    target: Literal["class", "tags", "numbers", "tokens"] | None = Field(
        None,
        description="the kind of label; unset: 'class' with `classes`, else by the column's type "
        "where only one kind fits it",
    )
    test: Annotated[float | str | None, BeforeValidator(_test)] = Field(
        None,
        description="with `path`: the test records, which no ε covers: a share of "
        "the clients (by a hash of their ids), a column of true and false, or a file",
    )
    classes: Annotated[int | tuple[str, ...] | None, BeforeValidator(_classes)] = Field(
        None,
        description="with target = 'class': number of classes, or a list of their names; public",
    )
    categories: Annotated[dict[str, tuple[str, ...]] | None, BeforeValidator(_categories)] = Field(
        None, description="for each input column of text the list of its values; public"
    )
    scaling: Annotated[dict[str, tuple[float, float]] | None, BeforeValidator(_scaling)] = Field(
        None,
        description="for each column of numbers that is scaled: the values that become 0 and 1; "
        "public",
    )
    missing: Annotated[dict[str, float | str] | None, BeforeValidator(_constants)] = Field(
        None,
        description="for each column of inputs or labels in which a value may be missing: the text "
        "or number that replaces it (an array with a missing value is replaced as a whole); "
        "public; unset: a missing value is an error",
    )
    vocabulary: Annotated[int | str | None, BeforeValidator(_vocabulary)] = Field(
        None,
        description="with tokens as inputs: number of different tokens, or a text of all "
        "characters; public",
    )
    length: Count | None = Field(
        None,
        description="with a vocabulary of characters: tokens of a record; longer texts are cut",
    )
    clients: Count | None = Field(
        None,
        description="number of clients to whom records are dealt; unset: one for each record, or "
        "one for each phone of the availability trace",
    )
    dealing: Literal["shuffled", "by-label"] = Field(
        "shuffled",
        description="how records are dealt to clients: like shuffled cards, or sorted by label "
        "first, so that most clients see one label only",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Raise an error if keys conflict, such as the name of a data set and keys of a file."""
        given = [key for key in _OWN_KEYS if getattr(self, key) is not None]
        if self.name is not None:
            for key in (*(("path",) if self.path is not None else ()), *given):
                expected = f"no value with name = {self.name!r}"
                raise ParameterError(key, getattr(self, key), expected)
        elif given or self.path is not None:
            _check_own(self)
        return self

    @property
    def title(self) -> str:
        """Short name of the data set for titles."""
        if self.name is not None:
            return self.name
        return "own data" if self.path is None else PurePath(self.path).name

    @property
    def stated_target(self) -> str | None:
        """Kind of label that the plan's keys determine; None if it depends on the label column."""
        if self.target is None and self.classes is not None:
            return "class"
        return "tokens" if self.target is None and self.label is None else self.target

    def provenance(self) -> dict[str, str]:
        """Text about the test set and the public constants; empty for a named data set."""
        if self.name is not None or self.inputs is None:
            return {}
        rows = {"test set": f"{_test_text(self.test)}; no ε covers it"}
        public = [key for key in ("classes", "vocabulary") if getattr(self, key) is not None]
        for key in ("categories", "scaling", "missing"):
            columns = getattr(self, key)
            public += [f"{key} of {', '.join(columns)}"] if columns else []
        if public:
            rows["public constants"] = f"{'; '.join(public)}: public, from the plan"
        return rows


def _test_text(test: float | str | None) -> str:
    """Text that describes how the test records are chosen."""
    if isinstance(test, float):
        return f"{100 * test:g} % of the clients, by a hash of their ids"
    return "given with the training data" if test is None else f"{test!r}, as the plan says"


def _check_own(data: DataSection) -> None:
    """Raise an error if a required key of the user's data is missing, or if keys conflict."""
    # Required keys. Data of tokens need no label, since the next token is predicted.
    needed = {
        "inputs": "the columns that a model sees",
        "test": "a share of the clients such as 0.2, a column of true and false, or a file",
        "label": "the column to predict",
    }
    for key, what in needed.items():
        # Without a path, training and test data are arguments of a Python function.
        optional = key == "label" and "tokens" in (data.target, data.stated_target)
        optional = optional and data.vocabulary is not None
        optional = optional or (key == "test" and data.path is None)
        if getattr(data, key) is None and not optional:
            raise ParameterError(key, None, what)
    # If a column names the client of each record, records cannot be dealt to clients.
    if data.client is not None and (data.clients is not None or data.dealing != "shuffled"):
        key = "dealing" if data.clients is None else "clients"
        raise ParameterError(key, getattr(data, key), f"no value with client = {data.client!r}")
    # Each column has one role, and keys for single columns must name known columns.
    _check_roles(data)
    _check_target(data)
    _check_columns("categories", data.categories, data.inputs or ())
    _check_columns("scaling", data.scaling, (*(data.inputs or ()), *(data.label or ())))
    _check_columns("missing", data.missing, (*(data.inputs or ()), *(data.label or ())))
    _check_missing(data)
    _check_tokens(data)


def _check_missing(data: DataSection) -> None:
    """Raise an error if a text that replaces missing values is not permitted in the column."""
    known = dict(data.categories or {})
    if isinstance(data.classes, tuple):
        known |= dict.fromkeys(data.label or (), data.classes)
    for column, constant in (data.missing or {}).items():
        if column in known and constant not in known[column]:
            raise ParameterError(
                f"missing.{column}", constant, f"one of {', '.join(known[column])}"
            )


def _check_roles(data: DataSection) -> None:
    """Raise an error for a column with two roles: input, label, client or test set."""
    roles = {"label": data.label or (), "client": (data.client,), "test": (_name(data.test),)}
    for role, columns in roles.items():
        for key, names in (("inputs", data.inputs or ()), ("label", data.label or ())):
            both = [name for name in names if name in columns and key != role]
            if both:
                expected = f"columns without another role, but {both[0]!r} is the {role}"
                raise ParameterError(key, list(names), expected)
    if data.client is not None and data.client == _name(data.test):
        raise ParameterError("test", data.test, "a column other than the column of clients")


def _check_target(data: DataSection) -> None:
    """Raise an error if the kind of label excludes the given classes or several label columns."""
    target = data.stated_target
    if target != "class" and data.classes is not None:
        raise ParameterError("classes", data.classes, f"no value with target = {target!r}")
    if target == "class" and data.classes is None:
        expected = f"the number of classes, or the list of their names; both are public: {_BOUGHT}"
        raise ParameterError("classes", None, expected)
    if target in ("class", "tokens") and data.label is not None and len(data.label) > 1:
        raise ParameterError("label", list(data.label), f"one column with target = {target!r}")


def _check_columns(key: str, given: Mapping[str, object] | None, known: Sequence[str]) -> None:
    """Raise an error if a value is given for an unknown column."""
    for column in given or ():
        if column not in known:
            raise ParameterError(f"{key}.{column}", column, f"one of {', '.join(known)}")


def _check_tokens(data: DataSection) -> None:
    """Raise an error if keys conflict with a vocabulary, or if tokens have no vocabulary."""
    # Tokens require a vocabulary, and a vocabulary requires a single column of inputs.
    if data.stated_target == "tokens" and data.vocabulary is None:
        raise ParameterError(
            "vocabulary", None, f"the number of tokens, or a text of all characters: {_BOUGHT}"
        )
    if data.vocabulary is not None and len(data.inputs or ()) != 1:
        raise ParameterError("inputs", list(data.inputs or ()), "one column with a vocabulary")
    # A vocabulary of characters requires a length, and excludes a label: the model predicts the
    # next character.
    texts = isinstance(data.vocabulary, str)
    if texts != (data.length is not None):
        expected = (
            "the number of tokens of a record"
            if texts
            else "no value without a text of all characters"
        )
        raise ParameterError("length", data.length, expected)
    if texts and data.stated_target != "tokens":
        raise ParameterError("target", data.stated_target, "'tokens' with a text of all characters")
    if texts and data.label is not None:
        raise ParameterError("label", list(data.label), "no value: the next character is predicted")
