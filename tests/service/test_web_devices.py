"""Device API, one request at a time: published resources and receipts."""

import asyncio
import hashlib
import json

import numpy as np
import pytest
from web_world import DIMENSION, KEY, key_of, secret_of, signed, world

from turnout.schemes import ReleaseRule
from turnout.service.contract.charter import Charter
from turnout.service.contract.ledger import Head, SigningKey, verified
from turnout.service.contract.wire import (
    SignedHead,
    WireReceipt,
    check_ins_path,
    dummy_traffic_path,
    enrolments_path,
    head_bytes,
    model_path,
    requests_path,
    updates_path,
)

UNKNOWN = b'{"answer":"unknown"}'


def enrolment(client, secret=None, key=None):
    key = key or key_of(client)
    fields = {"client": client, "public_key": key.public.hex()}
    fields["secret"] = (secret_of(client) if secret is None else secret).hex()
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def test_public_resources_need_no_authentication(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            charter = await w.http.get("/v1/charter")
            assert Charter.from_canonical(charter.content) == w.charter
            status = (await w.http.get("/v1/status")).json()
            assert (status["step"], status["steps"], status["phase"]) == (0, 6, "check-ins")
            assert (status["seconds_left"], status["seconds_to_next_step"]) == (40.0, 60.0)
            head = SignedHead.parsed(status["head"])
            assert verified(KEY.public, head.signature, head_bytes(w.task, head.head))
            model = await w.http.get(model_path(0))
            assert model.content == bytes(4 * DIMENSION)
            tag = {"If-None-Match": model.headers["etag"]}
            assert (await w.http.get(model_path(0), headers=tag)).status_code == 304
            assert (await w.http.get(model_path(1))).status_code == 404
            assert (await w.http.get("/v1/records")).json() == {"records": []}

    asyncio.run(main())


def test_ledger_records_and_models_are_served_after_their_step_is_published(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for step in range(3):
                assert (await w.update(step, step)).status_code == 200
                await w.step_over()
            records = (await w.http.get("/v1/records?from=1&limit=1")).json()["records"]
            assert [record["step"] for record in records] == [1]
            for steps in range(4):
                model = (await w.http.get(model_path(steps))).content
                assert len(model) == 4 * DIMENSION
            assert (
                hashlib.sha256(model).hexdigest()
                == (await w.http.get("/v1/records")).json()["records"][2]["model"]
            )
            for query in ("from=-1", "limit=0", "limit=1001", "from=1&from=2", "x=1", "from", "%"):
                assert (await w.http.get(f"/v1/records?{query}")).status_code == 422, query
            assert (await w.http.get("/v1/records?from=99")).json() == {"records": []}

    asyncio.run(main())


def test_every_copy_of_an_update_receives_the_same_receipt(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            answers = await asyncio.gather(*(w.update(1, 0) for _ in range(100)))
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1
            receipt = WireReceipt.decoded(answers[0].content)
            assert receipt.digest == hashlib.sha256(w.body()).digest()
            with w.running.storage.snapshot() as view:
                assert view.arrived(0).tolist() == [1]
                assert len(list(view.bodies(0))) == 1
            other = await w.update(1, 0, value=2)
            assert other.status_code == 409

    asyncio.run(main())


def test_an_invitation_can_be_used_for_one_enrolment(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            path, client = enrolments_path(), 25
            assert (await w.update(client, 0)).content == UNKNOWN
            first = await w.post(path, client, enrolment(client))
            assert first.status_code == 200
            assert (await w.post(path, client, enrolment(client))).content == first.content
            assert (await w.update(client, 0)).status_code == 200
            thief = SigningKey.new()
            stolen = await w.post(path, client, enrolment(client, key=thief), key=thief)
            assert stolen.status_code == 409
            assert (await w.update(client, 0, key=thief)).content == UNKNOWN

    asyncio.run(main())


@pytest.mark.parametrize("state", ["enrolled", "invited", "nobody"])
def test_an_enrolment_with_a_wrong_secret_does_not_reveal_enrolled_clients(tmp_path, state):
    client = {"enrolled": 1, "invited": 25, "nobody": 35}[state]

    async def main():
        async with world(tmp_path) as w:
            key = SigningKey.new()
            body = enrolment(client, secret=bytes(32), key=key)
            answer = await w.post(enrolments_path(), client, body, key=key)
            assert (answer.status_code, answer.content) == (401, UNKNOWN)
            assert w.running.metrics.batch_jobs._sum.get() == 0  # no write was queued

    asyncio.run(main())


@pytest.mark.parametrize(
    "form",
    [
        lambda body: b'{"client":26,' + body[1:],
        lambda body: body.decode().encode("utf-16"),
        lambda body: b"\xef\xbb\xbf" + body,
        lambda body: json.dumps([*json.loads(body).items()]).encode(),
    ],
    ids=["a key twice", "UTF-16", "a byte order mark", "no object"],
)
def test_an_enrolment_must_be_one_ascii_json_object(tmp_path, form):
    async def main():
        async with world(tmp_path) as w:
            key = key_of(25)
            answer = await w.post(enrolments_path(), 25, form(enrolment(25, key=key)), key=key)
            assert (answer.status_code, answer.content) == (401, UNKNOWN)
            answer = await w.post(enrolments_path(), 25, enrolment(25, key=key), key=key)
            assert answer.status_code == 200

    asyncio.run(main())


def test_an_enrolment_of_another_client_is_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            answer = await w.post(enrolments_path(), 25, enrolment(26), key=key_of(26))
            assert (answer.status_code, answer.content) == (401, UNKNOWN)

    asyncio.run(main())


def test_dummy_traffic_is_answered_like_an_update_but_not_counted(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            real = await w.update(1, 0)
            body = bytes([255]) * len(w.body())
            cover = await w.post(dummy_traffic_path(0), 2, body)
            assert cover.status_code == real.status_code == 200
            assert len(cover.content) == len(real.content)
            assert {*cover.headers} == {*real.headers}
            assert len(dummy_traffic_path(0)) == len(updates_path(0))
            with w.running.storage.snapshot() as view:
                assert view.arrived(0).tolist() == [1]
            assert (await w.post(dummy_traffic_path(0), 2, b"short")).status_code == 422
            assert (await w.post(dummy_traffic_path(1), 2, body)).status_code == 425
            await w.step_over()
            assert (await w.post(dummy_traffic_path(0), 2, body)).status_code == 410

    asyncio.run(main())


def test_only_the_selected_client_may_send_its_update(tmp_path):
    async def main():
        async with world(tmp_path, rule=ReleaseRule.ONE_CLIENT) as w:
            conducting = asyncio.create_task(w.conductor._step())
            for client in range(3):
                assert (await w.post(check_ins_path(0), client)).status_code == 200
            undecided = await w.post(requests_path(0), 0)
            assert WireReceipt.decoded(undecided.content).asked is None
            await asyncio.sleep(0)
            w.clock.advance(40)
            await w.until_shown(lambda shown: shown.phase == "answers")
            asked = []
            for client in range(3):
                receipt = WireReceipt.decoded((await w.post(requests_path(0), client)).content)
                answer = await w.update(client, 0)
                assert answer.status_code == (200 if receipt.asked else 422)
                asked.append(receipt.asked)
            assert sorted(asked) == [False, False, True]
            assert (await w.post(check_ins_path(0), 4)).status_code == 410
            assert (await w.post(dummy_traffic_path(0), 4, w.body())).status_code == 422
            w.clock.advance(10)
            await w.until_shown(lambda shown: shown.phase == "closed")
            w.clock.advance(10)
            await conducting
            with w.running.storage.snapshot() as view:
                assert list(view.counts()) == [(0, 3, 1)]

    asyncio.run(main())


def test_a_request_body_that_is_too_long_is_not_read(tmp_path):
    """The body is not read whether or not its length is announced."""

    async def endless():
        yield bytes(4 * DIMENSION)
        for sent in range(10**6):
            assert sent < 3, "went on reading"
            yield bytes(1000)

    async def main():
        async with world(tmp_path) as w:
            path = updates_path(0)
            headers = signed(w.task, path, 1, bytes(100))
            said = await w.http.post(path, content=bytes(100), headers=headers)
            unsaid = await w.http.post(path, content=endless(), headers=headers)
            assert (said.status_code, unsaid.status_code) == (413, 413)

    asyncio.run(main())


def test_request_bodies_of_unknown_clients_or_formats_are_not_read(tmp_path):
    """The signature covers the headers, which suffice for all refusals before the body is read."""
    read = []

    async def body(content):
        read.append(content)
        yield content

    async def main():
        async with world(tmp_path) as w:
            path, content = updates_path(0), w.body()
            own = signed(w.task, path, 1, content)
            strange = signed(w.task, path, 1, content, key=SigningKey.new())
            other = signed(w.task, path, 1, content, format="int32-lattice-2")
            none = signed(w.task, path, 1, content, format="")
            for headers, status in ((strange, 401), (other, 422), (none, 422)):
                answer = await w.http.post(path, content=body(content), headers=headers)
                assert (answer.status_code, read) == (status, [])
                if status == 422:
                    receipt = WireReceipt.decoded(answer.content)
                    assert (receipt.client, receipt.step) == (1, 0)
                    assert "int32-lattice-1" in receipt.detail
            answer = await w.http.post(path, content=body(content), headers=own)
            assert (answer.status_code, read) == (200, [content])

    asyncio.run(main())


def test_an_unsigned_request_body_is_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            path, key = enrolments_path(), key_of(25)
            headers = signed(w.task, path, 25, enrolment(25), key=key)
            other = json.dumps(json.loads(enrolment(25))).encode()  # valid except for spaces
            for content, status in ((other, 401), (enrolment(25), 200)):
                answer = await w.http.post(path, content=content, headers=headers)
                assert answer.status_code == status
            headers = signed(w.task, updates_path(0), 25, w.body())
            for content, status in ((w.body(2), 401), (w.body(), 200)):
                answer = await w.http.post(updates_path(0), content=content, headers=headers)
                assert answer.status_code == status
            headers = signed(w.task, path, 26, enrolment(26), format="enrolment-2")
            answer = await w.http.post(path, content=enrolment(26), headers=headers)
            assert (answer.status_code, answer.json()["answer"]) == (422, "refused")

    asyncio.run(main())


def test_an_overloaded_server_answers_with_retry_later(tmp_path):
    async def main():
        async with world(tmp_path, most_jobs=4) as w:
            answers = await asyncio.gather(*(w.update(client, 0) for client in range(20)))
            codes = {answer.status_code for answer in answers}
            assert codes <= {200, 503}
            for answer in answers:
                assert answer.status_code == 200 or answer.headers["retry-after"] == "1"
            accepted = [c for c, a in enumerate(answers) if a.status_code == 200]
            with w.running.storage.snapshot() as view:
                assert view.arrived(0).tolist() == accepted

    asyncio.run(main())


def test_requests_with_another_path_or_method_are_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            for path in (
                "/v1/steps/00/updates",
                "/v1/steps/+0/updates",
                "/v1/steps/0/updates?x=1",
                "/v1/steps/%30/updates",
                "/v1/steps/6/updates",
                "/v1/steps/99999999999999999999/updates",
                "/v1/steps/-1/updates",
            ):
                answer = await w.post(path, 1, w.body())
                assert answer.status_code == 404, path
            assert (await w.http.get(updates_path(0))).status_code == 405

    asyncio.run(main())


def test_an_update_with_a_wrongly_signed_ledger_head_is_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            forged = str(SignedHead(Head(5, bytes(32)), bytes(64)))
            answer = await w.update(1, 0, head=forged)
            assert answer.status_code == 422
            own = (await w.http.get("/v1/status")).json()["head"]
            assert (await w.update(1, 0, head=own)).status_code == 200
            assert not w.ends.calls

    asyncio.run(main())


def test_models_are_finite_after_any_updates(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            edges = [2**31 - 1, -(2**31), 0, 1]
            for client, value in enumerate(edges):
                body = np.full(DIMENSION, value, "<i4").tobytes()
                await w.post(updates_path(0), client, body)
            await w.step_over()
            model = np.frombuffer((await w.http.get(model_path(1))).content, "<f4")
            assert np.isfinite(model).all()

    asyncio.run(main())
