"""The [data] table of a plan: whose records are trained on, and how their columns are read."""

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
_BOUGHT = "a statistic of private data costs ε (turnout estimate buys one)"


def _names(value: Any) -> Any:
    """One name or several, as a tuple."""
    if value is None:
        return None
    names = _texts((value,) if isinstance(value, str) else value)
    if not names:
        raise ParameterError("value", value, "the name of a column, or several that differ")
    return names


def _name(value: Any) -> Any:
    return canonical(value) if isinstance(value, str) else value


def _texts(value: object) -> tuple[str, ...]:
    """A list of texts, all different and none empty, as records' texts are compared; () if none."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        return ()
    texts = tuple(map(canonical, value))
    return texts if len(set(texts)) == len(texts) and "" not in texts else ()


def _classes(value: Any) -> Any:
    """A number of classes, or their names."""
    names = _texts(value)
    if value is None or len(names) >= 2:
        return names or None
    expected = f"how many there are, from 2 on, or the list of their names: public, as {_BOUGHT}"
    return _count_or(value, 2, expected)


def _vocabulary(value: Any) -> Any:
    """A number of tokens, or a text of all characters."""
    if isinstance(value, str) and len(set(value)) == len(value) >= 2:
        return value
    if value is None:
        return None
    expected = f"how many tokens there are, or a text of all characters: public, as {_BOUGHT}"
    return _count_or(value, 2, expected)


def _count_or(value: Any, least: int, expected: str) -> int:
    try:
        checks.count(least, value=value)
    except ParameterError:
        raise ParameterError("value", value, expected) from None
    return int(value)


def _categories(value: Any) -> Any:
    """A list of texts for each column."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(map(_texts, value.values())):
        raise ParameterError("value", value, f"a list of texts a column: public, as {_BOUGHT}")
    return {canonical(str(column)): _texts(words) for column, words in value.items()}


def _scaling(value: Any) -> Any:
    """A lowest and a highest value for each column."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(map(_is_range, value.values())):
        expected = f"{{column = [low, high]}}, low below high: public, as {_BOUGHT}"
        raise ParameterError("value", value, expected)
    ranges = ((canonical(str(column)), pair) for column, pair in value.items())
    return {column: (float(low), float(high)) for column, (low, high) in ranges}


def _constants(value: Any) -> Any:
    """A text or a number for each column."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(map(_is_constant, value.values())):
        expected = f"{{column = a text or a number}}: public, as {_BOUGHT}"
        raise ParameterError("value", value, expected)
    return {canonical(str(column)): _name(constant) for column, constant in value.items()}


def _is_constant(value: object) -> bool:
    if isinstance(value, str | bool):
        return value != ""
    try:
        checks.number(value=value)
    except ParameterError:
        return False
    return True


def _is_range(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    try:
        checks.positive(width=value[1] - value[0])
    except (ParameterError, TypeError):
        return False
    return not any(isinstance(one, bool) for one in value)


def _test(value: Any) -> Any:
    """A share, or the name of a column or file."""
    if value is None or (isinstance(value, str) and value):
        return value  # perhaps the path of a file, whose name stays as it is
    try:
        checks.open_unit(value=value)
    except ParameterError:
        expected = "a share of the clients between 0 and 1, a column of true and false, or a file"
        raise ParameterError("value", value, expected) from None
    return float(value)


class DataSection(Section):
    """The clients' data: a data set by name, or a file or folder of one's own."""

    name: Literal["digits", "mnist", "fashion-mnist"] | None = Field(
        None, description="a data set that is known by name"
    )
    path: str | None = Field(
        None,
        description="in place of `name`: a .parquet, .csv or .npz file, or a folder of .npy "
        "files, of a Hugging Face data set, or of images; relative to the plan",
    )
    client: Annotated[str | None, BeforeValidator(_name)] = Field(
        None,
        description="of `path`: the column that says whose record it is; unset: records have no "
        "client of their own and are dealt",
    )
    inputs: Annotated[tuple[str, ...] | None, BeforeValidator(_names)] = Field(
        None, description="of `path`: the columns that a model sees, or one column of arrays"
    )
    label: Annotated[tuple[str, ...] | None, BeforeValidator(_names)] = Field(
        None,
        description="of `path`: the column to predict, or several numbers or tags; unset with "
        "target = 'tokens': the next token",
    )
    target: Literal["class", "tags", "numbers", "tokens"] | None = Field(
        None,
        description="the kind of label; unset: 'class' with `classes`, else by the column's type "
        "where that leaves no doubt",
    )
    test: Annotated[float | str | None, BeforeValidator(_test)] = Field(
        None,
        description="of `path`: the records that judge the model, which no ε covers: a share of "
        "the clients (by a hash of their ids), a column of true and false, or a file",
    )
    classes: Annotated[int | tuple[str, ...] | None, BeforeValidator(_classes)] = Field(
        None, description="of target = 'class': how many, or the list of their names; public"
    )
    categories: Annotated[dict[str, tuple[str, ...]] | None, BeforeValidator(_categories)] = Field(
        None, description="for each input column of text the list of its values; public"
    )
    scaling: Annotated[dict[str, tuple[float, float]] | None, BeforeValidator(_scaling)] = Field(
        None,
        description="for each column of numbers to scale the values that become 0 and 1; public",
    )
    missing: Annotated[dict[str, float | str] | None, BeforeValidator(_constants)] = Field(
        None,
        description="for each column of inputs or labels in which a value may be missing the text "
        "or number that it counts as (all of an array in which one is missing); public; unset: a "
        "missing value is refused",
    )
    vocabulary: Annotated[int | str | None, BeforeValidator(_vocabulary)] = Field(
        None,
        description="inputs are tokens: how many there are, or a text of all characters; public",
    )
    length: Count | None = Field(
        None, description="of a vocabulary of characters: tokens of a record; texts are cut"
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
        given = [key for key in _OWN_KEYS if getattr(self, key) is not None]
        if self.name is not None:
            for key in (*(("path",) if self.path is not None else ()), *given):
                expected = f"none beside name = {self.name!r}"
                raise ParameterError(key, getattr(self, key), expected)
        elif given or self.path is not None:
            _check_own(self)
        return self

    @property
    def title(self) -> str:
        """The data set in a few words, for titles."""
        if self.name is not None:
            return self.name
        return "own data" if self.path is None else PurePath(self.path).name

    @property
    def stated_target(self) -> str | None:
        """The kind of label as far as this table says it."""
        if self.target is None and self.classes is not None:
            return "class"
        return "tokens" if self.target is None and self.label is None else self.target

    def provenance(self) -> dict[str, str]:
        """Where what is not learned under ε comes from; empty for a data set by name."""
        if self.name is not None or self.inputs is None:
            return {}
        rows = {"test set": f"{_test_words(self.test)}; no ε covers it"}
        public = [key for key in ("classes", "vocabulary") if getattr(self, key) is not None]
        for key in ("categories", "scaling", "missing"):
            columns = getattr(self, key)
            public += [f"{key} of {', '.join(columns)}"] if columns else []
        if public:
            rows["public constants"] = f"{'; '.join(public)}: public, from the plan"
        return rows


def _test_words(test: float | str | None) -> str:
    """The words for what is held out."""
    if isinstance(test, float):
        return f"{100 * test:g} % of the clients, by a hash of their ids"
    return "given beside the training data" if test is None else f"{test!r}, as the plan says"


def _check_own(data: DataSection) -> None:
    """Keys of a file of one's own that need each other, or exclude each other."""
    needed = {
        "inputs": "the columns that a model sees",
        "test": "a share of the clients such as 0.2, a column of true and false, or a file",
        "label": "the column to predict",
    }
    for key, what in needed.items():
        optional = key == "label" and "tokens" in (data.target, data.stated_target)
        optional = optional and data.vocabulary is not None
        optional = optional or (key == "test" and data.path is None)
        if getattr(data, key) is None and not optional:
            raise ParameterError(key, None, what)
    if data.client is not None and (data.clients is not None or data.dealing != "shuffled"):
        key = "dealing" if data.clients is None else "clients"
        raise ParameterError(key, getattr(data, key), f"none beside client = {data.client!r}")
    _check_roles(data)
    _check_target(data)
    _check_columns("categories", data.categories, data.inputs or ())
    _check_columns("scaling", data.scaling, (*(data.inputs or ()), *(data.label or ())))
    _check_columns("missing", data.missing, (*(data.inputs or ()), *(data.label or ())))
    _check_missing(data)
    _check_tokens(data)


def _check_missing(data: DataSection) -> None:
    """A missing text counts as one of the public ones of its column."""
    known = dict(data.categories or {})
    if isinstance(data.classes, tuple):
        known |= dict.fromkeys(data.label or (), data.classes)
    for column, constant in (data.missing or {}).items():
        if column in known and constant not in known[column]:
            raise ParameterError(
                f"missing.{column}", constant, f"one of {', '.join(known[column])}"
            )


def _check_roles(data: DataSection) -> None:
    """A column that is the label, says whose a record is or holds it out is no input."""
    roles = {"label": data.label or (), "client": (data.client,), "test": (_name(data.test),)}
    for role, columns in roles.items():
        for key, names in (("inputs", data.inputs or ()), ("label", data.label or ())):
            both = [name for name in names if name in columns and key != role]
            if both:
                expected = f"columns that have no other task: {both[0]!r} is the {role}"
                raise ParameterError(key, list(names), expected)
    if data.client is not None and data.client == _name(data.test):
        raise ParameterError("test", data.test, "another column than that of the client")


def _check_target(data: DataSection) -> None:
    target = data.stated_target
    if target != "class" and data.classes is not None:
        raise ParameterError("classes", data.classes, f"none with target = {target!r}")
    if target == "class" and data.classes is None:
        expected = f"how many classes there are, or the list of their names: {_BOUGHT}"
        raise ParameterError("classes", None, expected)
    if target in ("class", "tokens") and data.label is not None and len(data.label) > 1:
        raise ParameterError("label", list(data.label), f"one column with target = {target!r}")


def _check_columns(key: str, given: Mapping[str, object] | None, known: Sequence[str]) -> None:
    for column in given or ():
        if column not in known:
            raise ParameterError(f"{key}.{column}", column, f"one of {', '.join(known)}")


def _check_tokens(data: DataSection) -> None:
    if data.stated_target == "tokens" and data.vocabulary is None:
        raise ParameterError("vocabulary", None, f"how many tokens, or all characters: {_BOUGHT}")
    if data.vocabulary is not None and len(data.inputs or ()) != 1:
        raise ParameterError("inputs", list(data.inputs or ()), "one column with a vocabulary")
    texts = isinstance(data.vocabulary, str)
    if texts != (data.length is not None):
        expected = "the tokens of a record" if texts else "none without a text of all characters"
        raise ParameterError("length", data.length, expected)
    if texts and data.stated_target != "tokens":
        raise ParameterError("target", data.stated_target, "'tokens' with a text of all characters")
    if texts and data.label is not None:
        raise ParameterError("label", list(data.label), "none: the next character is predicted")
