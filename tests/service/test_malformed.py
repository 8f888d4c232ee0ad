"""Malformed bodies and requests get an answer, without an internal server error.

TURNOUT_BODIES sets the total number of bodies; `make malformed` uses 50,000.
"""

import asyncio
import json
import os

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from web_world import DIMENSION, POPULATION, secret_of, signed, world

from turnout.service.contract.wire import enrolments_path, model_path

BODIES = int(os.environ.get("TURNOUT_BODIES", "2500"))
BATCH = 25
SIZE = 4 * DIMENSION
ROUTES = ("updates", "covered", "check-ins", "requests")
ANSWERED = {200, 401, 404, 409, 410, 413, 422, 425, 503}

quick = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)

floats = st.sampled_from([np.nan, np.inf, -np.inf, 1e38, -0.0])
edges = st.sampled_from([-(2**31), 2**31 - 1, 2**20, -1, 0, 1])
updates = st.one_of(
    st.binary(max_size=SIZE - 1),
    st.binary(min_size=SIZE + 1, max_size=4 * SIZE),
    st.binary(min_size=SIZE, max_size=SIZE),
    st.lists(edges, min_size=DIMENSION, max_size=DIMENSION).map(
        lambda values: np.array(values, "<i4").tobytes()
    ),
    st.lists(floats, min_size=DIMENSION, max_size=DIMENSION).map(
        lambda values: np.array(values, "<f4").tobytes()
    ),
    st.lists(st.integers(-3, 3), min_size=DIMENSION, max_size=DIMENSION).map(
        lambda values: np.array(values, "<i4").tobytes()
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
secrets = st.sampled_from([secret_of(25).hex(), "00" * 32, "00", "zz" * 32])
enrolments = st.one_of(
    st.binary(max_size=1200),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {
            "client": json_values | st.integers(0, POPULATION),
            "public_key": json_values | secrets,
            "secret": json_values | secrets,
        }
    ).map(lambda value: json.dumps(value).encode()),
    st.just(b"[" * 1000),
)
clients = st.integers(0, 4) | st.integers(0, POPULATION) | st.integers(0, 2**62)
steps = st.just(0) | st.integers(0, 6) | st.integers(0, 10**17)
requests = st.one_of(
    st.tuples(st.sampled_from(ROUTES), steps, clients, updates),
    st.tuples(st.just("enrolments"), st.just(0), clients, enrolments),
)


async def sent(w, route, step, client, body):
    """HTTP status of one signed request."""
    path = enrolments_path() if route == "enrolments" else f"/v1/steps/{step}/{route}"
    headers = signed(w.task, path, client, body)
    answer = await w.http.post(path, content=body, headers=headers)
    assert answer.status_code in ANSWERED, (answer.status_code, answer.content)
    assert answer.status_code == 503 or "answer" in answer.json() or "detail" in answer.json()
    return answer.status_code


def test_malformed_signed_bodies_cause_no_server_error_and_no_invalid_model(tmp_path):
    seen = set()
    with asyncio.Runner() as runner:
        context = world(tmp_path)
        w = runner.run(context.__aenter__())

        async def batch(several):
            seen.update(await asyncio.gather(*(sent(w, *request) for request in several)))

        @settings(quick, max_examples=BODIES * 4 // 5 // BATCH)
        @given(st.lists(requests, min_size=BATCH, max_size=BATCH))
        def bodies(several):
            runner.run(batch(several))

        async def contradicts_itself():
            """Send two bodies with known answers; answers to drawn bodies depend on their order."""
            for value in (0, 1):
                body = np.full(DIMENSION, value, "<i4").tobytes()
                seen.add(await sent(w, "updates", 0, 7, body))

        async def finish():
            while w.running.shown.step < 3:
                await w.step_over()
            for n in range(4):
                model = (await w.http.get(model_path(n))).content
                assert np.isfinite(np.frombuffer(model, "<f4")).all()
            assert not w.ends.calls

        try:
            runner.run(contradicts_itself())
            assert seen == {200, 409}
            bodies()
            assert {200, 401, 404, 409, 413, 422, 425} <= seen
            runner.run(finish())
        finally:
            runner.run(context.__aexit__(None, None, None))


async def _asgi_headers(w, headers):
    """HTTP status of a request whose header bytes no client library would send."""
    answer = []

    async def receive():
        return {"type": "http.request", "body": w.body(), "more_body": False}

    async def send(message):
        answer.append(message)

    path = "/v1/steps/0/updates"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": headers}
    await w.app(scope, receive, send)
    return answer[0]["status"]


names = st.sampled_from(
    [
        b"turnout-client",
        b"turnout-nonce",
        b"turnout-signature",
        b"turnout-head",
        b"turnout-digest",
        b"turnout-format",
    ]
)
values = st.one_of(
    st.binary(max_size=300),
    st.integers().map(lambda n: str(n).encode()),
    st.integers(1, 200).map(lambda n: b"0" * n),
    st.tuples(st.integers(), st.binary(max_size=70), st.binary(max_size=70)).map(
        lambda t: f"{t[0]}:{t[1].hex()}:{t[2].hex()}".encode()
    ),
)


def test_malformed_headers_cause_no_server_error(tmp_path):
    with asyncio.Runner() as runner:
        context = world(tmp_path)
        w = runner.run(context.__aenter__())

        @settings(quick, max_examples=BODIES // 10)
        @given(st.lists(st.tuples(names | st.binary(max_size=9), values), max_size=6))
        def headers(several):
            assert runner.run(_asgi_headers(w, several)) in (401, 413)

        try:
            headers()
        finally:
            runner.run(context.__aexit__(None, None, None))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_openapi_document_matches_the_answers(tmp_path):
    """Schemathesis derives requests from the document and compares the answers with it."""
    checks = [not_a_server_error, status_code_conformance, content_type_conformance]
    checks.append(response_schema_conformance)
    with asyncio.Runner() as runner:
        context = world(tmp_path)
        w = runner.run(context.__aenter__())
        try:
            schema = schemathesis.openapi.from_asgi("/v1/openapi.json", w.app)
            operations = [result.ok() for result in schema.get_all_operations()]
            assert len(operations) == 11
            for operation in operations:

                @settings(quick, max_examples=max(5, BODIES // 10 // len(operations)))
                @given(case=operation.as_strategy())
                def conforms(case):
                    case.call_and_validate(checks=checks)

                conforms()
        finally:
            runner.run(context.__aexit__(None, None, None))
