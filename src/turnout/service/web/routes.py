"""Routes of the device API as data, and the OpenAPI document derived from them.

A `DeviceRoute` describes one route: method, path, parameters, body, answers and handler.
`openapi_document` turns a table of routes into an OpenAPI 3.1 document; the schemas of JSON bodies
come from the types of `service.contract`. `devices.device_routes` is the table of routes, and `app`
serves the handlers.
"""

from __future__ import annotations

import builtins
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NotRequired,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from turnout.service.contract.ledger import COUNT, HEX32, Document
from turnout.service.contract.wire import (
    CLIENT_HEADER,
    DIGEST_HEADER,
    FORMAT_HEADER,
    HEAD_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
)

if TYPE_CHECKING:
    from turnout.service.web.answers import Application
    from turnout.service.web.running import Running

MOST_STEPS = 10**17
"""Largest count that the document allows in a path or a query."""


@dataclass(frozen=True, slots=True)
class Json:
    """JSON body of a route, described by a ``TypedDict`` whose name ends in "Document".

    Attributes:
        kind: the type; a type without keys stands for any object.
        most_bytes: largest length of a request in bytes; None for an answer.
    """

    kind: type
    most_bytes: int | None = None

    media_type = "application/json"

    def schema(self) -> Document:
        """OpenAPI reference to the component that describes the body."""
        return _reference(self.kind)


@dataclass(frozen=True, slots=True)
class Binary:
    """Binary body of a route.

    Attributes:
        most_bytes: exact length in bytes; None for any length.
    """

    most_bytes: int | None = None

    media_type = "application/octet-stream"

    def schema(self) -> Document:
        """OpenAPI schema of a binary body."""
        size = self.most_bytes
        length = {} if size is None else {"minLength": size, "maxLength": size}
        return {"type": "string", "format": "binary"} | length


@dataclass(frozen=True, slots=True)
class Text:
    """ASCII text body of a route, at most ``most_bytes`` long."""

    most_bytes: int

    media_type = "text/plain"

    def schema(self) -> Document:
        """OpenAPI schema of a text body."""
        return {"type": "string", "maxLength": self.most_bytes}


Content: TypeAlias = Json | Binary | Text


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a route under one HTTP status.

    Attributes:
        meaning: cause of this status, in words.
        content: body of the answer; None without a body.
        retry_after: whether the OpenAPI document lists the header Retry-After for this answer.
    """

    meaning: str
    content: Content | None = None
    retry_after: bool = False


@dataclass(frozen=True, slots=True)
class DeviceRoute:
    """One route of the device API: its handler and its entry in the OpenAPI document.

    Attributes:
        path: URL path with each parameter in braces: ``/v1/steps/{step}/updates``.
        summary: what a request does, for the OpenAPI document.
        answers: answers by HTTP status.
        handler: function that returns the route's ASGI application for a running task.
        query: schemas of the query's parameters, by name; none of them is required.
        body: body of the request; None without a body.
        body_format: value of the header ``Turnout-Format``; "" where there is no such header.
        signed: whether a device must sign the request.
    """

    method: Literal["GET", "POST"]
    path: str
    summary: str
    answers: Mapping[int, Answer]
    handler: Callable[[Running, DeviceRoute], Application]
    query: Mapping[str, Document] | None = None
    body: Content | None = None
    body_format: str = ""
    signed: bool = False

    @property
    def name(self) -> str:
        """Name of the route in metrics: its last path component that is not a parameter."""
        return [part for part in self.path.split("/") if not part.startswith("{")][-1]


# -- the document -------------------------------------------------------------------------------


def openapi_document(
    title: str, version: str, words: str, routes: Iterable[DeviceRoute]
) -> Document:
    """OpenAPI 3.1 document of a table of routes.

    Args:
        title: title of the API.
        version: version of the API.
        words: description of the API.
        routes: routes in the document's order, at most one for each method and path.
    """
    # An operation for each route, and a component for each JSON type in a route.
    paths: dict[str, Document] = {}
    schemas: dict[str, Document] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
        contents = (route.body, *(answer.content for answer in route.answers.values()))
        for content in contents:
            if isinstance(content, Json):
                _add_component(schemas, content.kind, content.most_bytes)
    # The document around them.
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": words},
        "paths": paths,
        "components": {"schemas": schemas, "headers": {"RetryAfter": _RETRY_AFTER}},
    }


_RETRY_AFTER = {"required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}


def _operation(route: DeviceRoute) -> Document:
    """OpenAPI operation that describes one route."""
    operation: Document = {
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {str(status): _response(answer) for status, answer in route.answers.items()},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.body)}
    return operation


def _response(answer: Answer) -> Document:
    """OpenAPI response that describes one HTTP status of a route."""
    response: Document = {"description": answer.meaning}
    if answer.content is not None:
        response["content"] = _content(answer.content)
    if answer.retry_after:
        response["headers"] = {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}
    return response


def _content(content: Content) -> Document:
    """OpenAPI content of a body, under the body's media type."""
    return {content.media_type: {"schema": content.schema()}}


_LIMITED = COUNT | {"maximum": MOST_STEPS}
_IN_PATHS = {"digest": HEX32}
"""Schemas of parameters in paths; a parameter without an entry is a count."""
_SIGNED_HEADERS: tuple[tuple[str, str, str, bool], ...] = (
    (CLIENT_HEADER, r"^(0|[1-9][0-9]{0,17})$", "The client's id.", True),
    (NONCE_HEADER, "^[0-9a-f]{32}$", "Fresh in every request.", True),
    (DIGEST_HEADER, "^[0-9a-f]{64}$", "SHA-256 of the body.", True),
    (SIGNATURE_HEADER, "^[0-9a-f]{128}$", "Ed25519.", True),
    (
        HEAD_HEADER,
        "^[0-9]+:[0-9a-f]{64}:[0-9a-f]{128}$",
        "The newest signed ledger head that the device has; absent before the first.",
        False,
    ),
)
"""Name, pattern, description and necessity of each header of a signed request."""


def _parameters(route: DeviceRoute) -> list[Document]:
    """OpenAPI parameters of a route: first path, then query, then headers."""
    # Path and query.
    found: list[Document] = [
        {"name": name, "in": "path", "required": True, "schema": _IN_PATHS.get(name, _LIMITED)}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    for name, schema in (route.query or {}).items():
        found.append({"name": name, "in": "query", "schema": schema})
    # Headers of a signature, and the format of the body.
    headers = _SIGNED_HEADERS if route.signed else ()
    if route.body_format:
        named = (FORMAT_HEADER, f"^{route.body_format}$", "Name of the body's format.", True)
        headers = (*headers, named)
    for name, pattern, description, required in headers:
        schema = {"type": "string", "pattern": pattern}
        place = {"name": name, "in": "header", "required": required}
        found.append(place | {"description": description, "schema": schema})
    return found


# -- schemas of types ---------------------------------------------------------------------------


def _component_name(kind: type) -> str:
    """OpenAPI component name of a type: the type's name without the suffix "Document"."""
    return kind.__name__.removesuffix("Document")


def _reference(kind: type) -> Document:
    """OpenAPI reference to the component of a type."""
    return {"$ref": f"#/components/schemas/{_component_name(kind)}"}


def _add_component(schemas: dict[str, Document], kind: type, most_bytes: int | None = None) -> None:
    """Add the JSON schemas of a type and of the types of its keys to the components."""
    hints = get_type_hints(kind, include_extras=True)
    schema: Document = {"type": "object"}
    if hints:
        schema |= {
            "required": [key for key, hint in hints.items() if get_origin(hint) is not NotRequired],
            "additionalProperties": False,
            "properties": {key: schema_of(hint) for key, hint in hints.items()},
        }
    if most_bytes is not None:
        schema["description"] = f"At most {most_bytes} bytes."
    schemas[_component_name(kind)] = schema
    for hint in hints.values():
        for inner in filter(is_typeddict, (hint, *get_args(hint))):
            _add_component(schemas, inner)


_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(hint: Any) -> Document:
    """JSON schema of the type of one key.

    Args:
        hint: str, int, float, bool, an ``Enum``, a ``Literal`` of one member, a ``TypedDict``, a
            ``list`` of one of these, or one of these in ``Annotated`` with further keywords of
            JSON schema; ``NotRequired`` may enclose it.

    Raises:
        TypeError: the type has no JSON schema.
    """
    match get_origin(hint), get_args(hint):
        # Types around another type.
        case typing.NotRequired, (inner,):
            schema = schema_of(inner)
        case typing.Annotated, (inner, dict() as keywords):
            schema = schema_of(inner) | keywords
        case builtins.list, (inner,):
            schema = {"type": "array", "items": schema_of(inner)}
        # Single values and plain types.
        case typing.Literal, (Enum() as member,):
            schema = {"const": member.value}
        case _ if hint in _SIMPLE:
            schema = {"type": _SIMPLE[hint]}
        case _ if isinstance(hint, type) and issubclass(hint, Enum):
            schema = {"enum": [member.value for member in hint]}
        case _ if is_typeddict(hint):
            schema = _reference(hint)
        case _:
            raise TypeError(f"hint = {hint!r}: expected a type that has a JSON schema")
    return schema
