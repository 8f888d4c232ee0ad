"""Route table of the device API: each route is served and described, and types become schemas."""

import asyncio
from typing import Annotated, Literal, NotRequired, TypedDict

import pytest
from starlette.routing import Route
from web_world import charter_of, world

from turnout.service.contract.ledger import Count
from turnout.service.contract.wire import StepPhase, WireAnswer
from turnout.service.web.app import document
from turnout.service.web.devices import device_routes
from turnout.service.web.routes import (
    Answer,
    Binary,
    DeviceRoute,
    Json,
    Text,
    openapi_document,
    schema_of,
)


class PartDocument(TypedDict):
    name: str


class WholeDocument(TypedDict):
    parts: list[PartDocument]
    weight: NotRequired[float]


def route(path, **settings):
    answers = {200: Answer("success", Json(WholeDocument)), 404: Answer("not there")}
    return DeviceRoute("GET", path, "A part", answers, lambda running, route: None, **settings)


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Count, {"type": "integer", "minimum": 0}),
        (Annotated[float, {"maximum": 1}], {"type": "number", "maximum": 1}),
        (NotRequired[Count], {"type": "integer", "minimum": 0}),
        (StepPhase, {"enum": [phase.value for phase in StepPhase]}),
        (Literal[WireAnswer.LATE], {"const": "late"}),
        (PartDocument, {"$ref": "#/components/schemas/Part"}),
        (list[PartDocument], {"type": "array", "items": {"$ref": "#/components/schemas/Part"}}),
    ],
    ids=str,
)
def test_a_json_schema_describes_its_type(hint, schema):
    assert schema_of(hint) == schema


@pytest.mark.parametrize("hint", [bytes, dict, Literal["a", "b"], str | None], ids=str)
def test_a_json_schema_of_a_type_that_json_lacks_is_refused(hint):
    with pytest.raises(TypeError, match="expected a type that has a JSON schema"):
        schema_of(hint)


def test_the_openapi_document_describes_path_query_and_types_of_a_route():
    made = openapi_document("t", "1", "words", [route("/v1/parts/{part}", query={"from": {}})])
    operation = made["paths"]["/v1/parts/{part}"]["get"]
    places = [(each["name"], each["in"]) for each in operation["parameters"]]
    assert places == [("part", "path"), ("from", "query")]
    assert operation["responses"]["404"] == {"description": "not there"}
    assert made["components"]["schemas"] == {
        "Whole": {
            "type": "object",
            "required": ["parts"],
            "additionalProperties": False,
            "properties": {"parts": schema_of(list[PartDocument]), "weight": {"type": "number"}},
        },
        "Part": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}},
        },
    }


def test_the_openapi_document_contains_the_length_of_bodies():
    bodies = {content: content.schema() for content in (Binary(4), Binary(), Text(9))}
    assert bodies[Binary(4)] == {
        "type": "string",
        "format": "binary",
        "minLength": 4,
        "maxLength": 4,
    }
    assert bodies[Binary()] == {"type": "string", "format": "binary"}
    assert bodies[Text(9)] == {"type": "string", "maxLength": 9}


def test_every_route_is_served_and_described_in_the_openapi_document(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            served = {each.path for each in w.app.routes if isinstance(each, Route)}
            table = [each.path for each in device_routes(w.charter)]
            assert set(table) <= served
            assert list(document(w.charter)["paths"]) == table

    asyncio.run(main())


def test_metric_names_of_routes_are_unique():
    names = [each.name for each in device_routes(charter_of())]
    assert len(set(names)) == len(names)
    assert {"updates", "models", "artefacts", "heads"} <= set(names)
