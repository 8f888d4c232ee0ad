"""Errors about wrong plans in one line: the key, its value and the values that are allowed.

`refusal` converts a `ValidationError` of pydantic to a `ParameterError`. `variants` lists the
tables that a key may hold, each with its keys; `all_keys` lists the keys of a whole plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from turnout.core.errors import ParameterError
from turnout.core.suggestions import nearest
from turnout.schemes.settings import MISSING, Naming

Keys = Mapping[str, FieldInfo]
"""Keys of a table, with their types, defaults and descriptions."""


class Variant(NamedTuple):
    """One of the tables that a key may hold.

    Attributes:
        word: value of the table's first key that selects this variant; empty if no value does.
        about: description of the table.
        keys: keys of the table.
    """

    word: str
    about: str
    keys: Keys


_TYPES = {
    "string_type": "a text in quotes",
    "bool_type": "true or false",
    "model_type": "a table of keys",
    "model_attributes_type": "a table of keys",
}


def refusal(error: ValidationError, model: type[BaseModel], naming: Naming = str) -> ParameterError:
    """`ParameterError` about one fault that pydantic found.

    If there are several faults, the error is about the first unknown key, since a missing key is
    often misspelled. Without an unknown key it is about the first fault.

    Args:
        error: error of pydantic.
        model: model that was validated.
        naming: function that returns the user's name of a dotted key, such as an option.
    """
    # Choose the fault, and find its key and its table.
    faults = error.errors(include_url=False)
    unknown = ("extra_forbidden", "unknown_setting")
    fault = next((fault for fault in faults if fault["type"] in unknown), faults[0])
    path, table = _resolved(fault["loc"], model)
    context = fault.get("ctx", {})
    inner = context.get("error")
    value = fault["input"]
    # Describe the allowed values, according to the type of the fault.
    match fault["type"]:
        case "extra_forbidden":
            expected = _known_keys(path, list(table), model, naming)
        case "unknown_setting":
            path, value = f"{path}.{context['key']}", value[context["key"]]
            expected = _known_keys(path, context["known"], model, naming)
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
    return ParameterError(naming(path), value, str(expected))


def all_keys(model: type[BaseModel]) -> Mapping[str, str]:
    """Description of each dotted key of a model."""
    return _all_keys(model.model_fields, "")


def _all_keys(fields: Keys, prefix: str) -> dict[str, str]:
    """Descriptions of all keys of a table and its inner tables, by dotted key after ``prefix``."""
    keys: dict[str, str] = {}
    for name, field in fields.items():
        inner = variants(field)
        for variant in inner:
            keys |= _all_keys(variant.keys, f"{prefix}{name}.")
        if not inner:
            keys[f"{prefix}{name}"] = field.description or ""
    return keys


def variants(field: FieldInfo | None) -> list[Variant]:
    """The alternative tables that a key may hold; empty for a key that holds a plain value."""
    found: list[Variant] = []
    for kind in _members(field.annotation) if field is not None else ():
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            # Settings of participations are not fields of a model; their section lists its tables.
            own = getattr(kind, "variants", None)
            found += own() if own is not None else [_variant(kind)]
    return found


def _variant(model: type[BaseModel]) -> Variant:
    """Table whose keys are the fields of a pydantic model."""
    fields = model.model_fields
    words = choices(next(iter(fields.values())).annotation) if fields else []
    return Variant(words[0] if len(words) == 1 else "", model.__doc__ or "", fields)


def choices(annotation: Any) -> list[str]:
    """Texts that a Literal or an enumeration allows; empty for other types."""
    if isinstance(annotation, type) and issubclass(annotation, str):
        return [str(member) for member in getattr(annotation, "__members__", {}).values()]
    values = (value for member in _members(annotation) for value in get_args(member))
    return [str(value) for value in values if isinstance(value, str)]


def _from_check(inner: ParameterError, path: str, naming: Naming) -> ParameterError:
    """Error of a field's check, in which the whole dotted key is the name of the field."""
    key = path if inner.name == "value" else f"{path}.{inner.name}".strip(".")
    value = MISSING if inner.value is None else inner.value
    return ParameterError(naming(key), value, inner.expected)


def _resolved(loc: Sequence[str | int], model: type[BaseModel]) -> tuple[str, Keys]:
    """Dotted key at a location in an error of pydantic, and the keys of the key's table.

    After the key of a union of tables, pydantic inserts the tag of the chosen table into the
    location; the tag is not a part of the dotted key.
    """
    names: list[str] = []
    keys: Keys = model.model_fields
    parts = [str(part) for part in loc]
    while parts:
        names.append(parts.pop(0))
        found = variants(keys.get(names[-1]))
        if not parts:
            break
        if len(found) > 1:
            tag = parts.pop(0)
            found = [each for each in found if each.word == tag]
        if parts:
            keys = found[0].keys if found else {}
    return ".".join(names), keys


def _all_tags(loc: Sequence[str | int], model: type[BaseModel]) -> str:
    """Text that lists the permitted values of a key that selects one of several tables."""
    found = variants(model.model_fields.get(str(loc[-1]))) if loc else []
    return "one of " + ", ".join(repr(each.word) for each in found)


def _members(annotation: Any) -> list[Any]:
    """Types that a union joins, without annotations; for another type, this type alone."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [annotation]


def _known_keys(path: str, here: Sequence[str], model: type[BaseModel], naming: Naming) -> str:
    """Text for an error about an unknown key: a similar known key, or all keys of the table."""
    prefix, _, key = path.rpartition(".")
    similar = nearest(key, here)
    near = [] if similar is None else [f"{prefix}.{similar}".strip(".")]
    elsewhere = [name for name in all_keys(model) if name.rpartition(".")[2] == key]
    if meant := [name for name in (*near, *elsewhere) if name != path]:
        return f"a known key; did you mean {naming(meant[0])}?"
    return f"one of the keys {', '.join(map(naming, here))}"


def _purpose(path: str, keys: Keys) -> str:
    """Text for an error about a missing key: its description, and the allowed words."""
    name = path.rpartition(".")[2]
    field = keys.get(name)
    if field is None:
        return "a value"
    if variants(field):
        return f"a table [{name}]"
    words = ", ".join(map(repr, choices(field.annotation)))
    return f"{field.description}: one of {words}" if words else f"a value ({field.description})"
