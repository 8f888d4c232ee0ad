"""One clear line for a plan that pydantic refuses: the key, its value, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from turnout.core.errors import ParameterError

Naming = Callable[[str], str]
"""Makes the user's name of a key from its dotted path."""


class _Missing:
    """Stands for a value that was not given."""

    def __repr__(self) -> str:
        return "(missing)"


MISSING = _Missing()
"""Value of a `ParameterError` about a key that is not there."""

_TYPES = {
    "string_type": "a text in quotes",
    "bool_type": "true or false",
    "model_type": "a table of keys",
    "model_attributes_type": "a table of keys",
}


def refusal(error: ValidationError, model: type[BaseModel], naming: Naming = str) -> ParameterError:
    """The `ParameterError` that says what is wrong.

    Of several faults the one reported is the first unknown key (a missing one is often that,
    misspelled), else the first fault.
    """
    faults = error.errors(include_url=False)
    fault = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    path, table = _resolved(fault["loc"], model)
    context = fault.get("ctx", {})
    inner = context.get("error")
    match fault["type"]:
        case "extra_forbidden":
            expected = _known_keys(path, table, model, naming)
        case "value_error" if isinstance(inner, ParameterError):
            return _from_check(inner, path, naming)
        case "missing":
            return ParameterError(naming(path), MISSING, _purpose(path, table))
        case "union_tag_not_found" | "union_tag_invalid":
            path = f"{path}.{context['discriminator']}".replace("'", "").strip(".")
            tags = context.get("expected_tags") or _all_tags(fault["loc"], model)
            return ParameterError(naming(path), context.get("tag", MISSING), tags)
        case _:
            own_words = fault["msg"].removeprefix("Input should be ")
            own_words = own_words[:1].lower() + own_words[1:]
            expected = context.get("expected") or _TYPES.get(fault["type"], own_words)
    return ParameterError(naming(path), fault["input"], str(expected))


def all_keys(model: type[BaseModel], prefix: str = "") -> Mapping[str, str]:
    """Every dotted key of a model with its description."""
    keys: dict[str, str] = {}
    for name, field in model.model_fields.items():
        variants = tables(model, name)
        for variant in variants:
            keys |= all_keys(variant, f"{prefix}{name}.")
        if not variants:
            keys[f"{prefix}{name}"] = field.description or ""
    return keys


def tables(model: type[BaseModel], name: str) -> list[type[BaseModel]]:
    """The models of which a field holds one; none for a plain value."""
    if name not in model.model_fields:
        return []
    kinds = _members(model.model_fields[name].annotation)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


def choices(annotation: Any) -> list[str]:
    """The allowed words of a Literal or an enumeration of words; none for other types."""
    if isinstance(annotation, type) and issubclass(annotation, str):
        return [str(member) for member in getattr(annotation, "__members__", {}).values()]
    values = (value for member in _members(annotation) for value in get_args(member))
    return [str(value) for value in values if isinstance(value, str)]


def _from_check(inner: ParameterError, path: str, naming: Naming) -> ParameterError:
    """A check of one field calls it "value"; a check of a whole table names the key."""
    key = path if inner.name == "value" else f"{path}.{inner.name}".strip(".")
    value = MISSING if inner.value is None else inner.value
    return ParameterError(naming(key), value, inner.expected)


def _resolved(
    loc: Sequence[str | int], model: type[BaseModel]
) -> tuple[str, type[BaseModel] | None]:
    """The dotted key, and the model of the table in which it stands.

    Pydantic puts the chosen tag of a union into the location, where it is no key.
    """
    names: list[str] = []
    table: type[BaseModel] | None = model
    parts = [str(part) for part in loc]
    while parts:
        names.append(parts.pop(0))
        variants = tables(table, names[-1]) if table else []
        if not parts:
            break
        if len(variants) > 1:
            tag = parts.pop(0)
            variants = [kind for kind in variants if tag in _tags(kind)]
        if parts:
            table = variants[0] if variants else None
    return ".".join(names), table


def _tags(variant: type[BaseModel]) -> list[str]:
    """The words that choose a variant of a tagged union: its first field's."""
    first = next(iter(variant.model_fields.values()))
    return choices(first.annotation)


def _all_tags(loc: Sequence[str | int], model: type[BaseModel]) -> str:
    """The words among which a tagged union chooses."""
    variants = tables(model, str(loc[-1])) if loc else []
    return "one of " + ", ".join(repr(tag) for kind in variants for tag in _tags(kind))


def _members(annotation: Any) -> list[Any]:
    """The members of a union, however it is wrapped."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [annotation]


def _known_keys(
    path: str, table: type[BaseModel] | None, model: type[BaseModel], naming: Naming
) -> str:
    """The keys that are allowed in place of an unknown key, the likeliest meant one first."""
    prefix, _, key = path.rpartition(".")
    here = list(table.model_fields) if table else []
    near = [f"{prefix}.{name}".strip(".") for name in difflib.get_close_matches(key, here, 1)]
    elsewhere = [name for name in all_keys(model) if name.rpartition(".")[2] == key]
    if meant := [name for name in (*near, *elsewhere) if name != path]:
        return f"a known key; did you mean {naming(meant[0])}?"
    return f"one of the keys {', '.join(map(naming, here))}"


def _purpose(path: str, table: type[BaseModel] | None) -> str:
    """The purpose of a missing key."""
    name = path.rpartition(".")[2]
    if table is None or name not in table.model_fields:
        return "a value"
    if tables(table, name):
        return f"a table [{name}]"
    field = table.model_fields[name]
    words = ", ".join(map(repr, choices(field.annotation)))
    return f"{field.description}: one of {words}" if words else f"a value ({field.description})"
