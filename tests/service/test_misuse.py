"""One test for each misuse that the service must prevent."""

import asyncio
import inspect
import itertools

import numpy as np
import pytest
from web_world import (
    DIMENSION,
    KEY,
    Adding,
    charter_of,
    key_of,
    secret_of,
    signed,
    task_storage,
    world,
)

from turnout.core.errors import StorageError
from turnout.schemes import ReleaseRule
from turnout.service.contract.ledger import Head, SigningKey
from turnout.service.contract.wire import (
    CLIENT_HEADER,
    DIGEST_HEADER,
    FORMAT_HEADER,
    HEAD_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    check_ins_path,
    dummy_traffic_path,
    enrolments_path,
    model_path,
    requests_path,
    updates_path,
)
from turnout.service.storage.opening import open_storage
from turnout.service.web import heads
from turnout.service.web.heads import HeadFile
from turnout.service.web.running import SET_BACK, Running

UNKNOWN = b'{"answer":"unknown"}'
TOOK_PART, ENROLLED, INVITED, NOBODY = 1, 2, 25, 35
"""Clients in different states, which unauthenticated requests must not reveal."""

ROUTES = {
    "updates": updates_path,
    "covered": dummy_traffic_path,
    "check-ins": check_ins_path,
    "requests": requests_path,
    "enrolments": lambda _: enrolments_path(),
}


def forgeries(w, path, other_path, client, body):
    """Headers of wrongly signed requests, made without any secret of another client."""
    key, task = key_of(client), w.task
    nonce = bytes(16)
    good = signed(task, path, client, body, nonce=nonce)
    without = [{k: v for k, v in good.items() if k != name} for name in good]
    return {
        "none": {},
        **{f"without {name}": headers for name, headers in zip(good, without, strict=True)},
        "another key": signed(task, path, client, body, key=SigningKey.new()),
        "another task": signed("0" * 64, path, client, body),
        "another route": signed(task, other_path, client, body),
        "another method": signed(task, path, client, body, method="PUT"),
        "another body": signed(task, path, client, body + b"x"),
        "another client": signed(task, path, client + 100, body, key=key)
        | {CLIENT_HEADER: str(client)},
        "another nonce": good | {NONCE_HEADER: "1" * 32},
        "another digest": good | {DIGEST_HEADER: "0" * 64},
        "a short digest": good | {DIGEST_HEADER: good[DIGEST_HEADER][1:]},
        "another format": good | {FORMAT_HEADER: "int32-lattice-9"},
        "no format's name": good | {FORMAT_HEADER: "A format"},
        "an empty head": good | {HEAD_HEADER: ""},
        "another head": good | {HEAD_HEADER: str(heads.signed_head(task, Head(0, bytes(32)), KEY))},
        "capitals": good | {SIGNATURE_HEADER: good[SIGNATURE_HEADER].upper() + ""},
        "a sign": good | {CLIENT_HEADER: f"+{client}"},
        "zeros before it": good | {CLIENT_HEADER: f"0{client}"},
        "no number": good | {CLIENT_HEADER: "me"},
        "a huge number": good | {CLIENT_HEADER: "9" * 30},
        "zeros": good | {SIGNATURE_HEADER: "0" * 128},
        "no head": good | {HEAD_HEADER: "5"},
        "a long head": good | {HEAD_HEADER: "5" * 5000},
    }


@pytest.mark.parametrize("route", ROUTES)
def test_all_unauthenticated_requests_get_identical_answers(tmp_path, route):
    """Missing, wrong, stale, replayed and foreign signatures get the same answer."""

    async def main():
        async with world(tmp_path) as w:
            assert (await w.update(TOOK_PART, 0)).status_code == 200
            body = w.body() if route in ("updates", "covered") else b""
            path, stale = ROUTES[route](0), ROUTES[route](1)
            other = stale if stale != path else updates_path(0)
            seen = set()
            for client in (TOOK_PART, ENROLLED, INVITED, NOBODY):
                for name, headers in forgeries(w, path, other, client, body).items():
                    answer = await w.http.post(path, content=body, headers=headers)
                    assert answer.status_code == 401, (name, client, answer.content)
                    seen.add((answer.content, tuple(sorted(answer.headers.items()))))
            assert len(seen) == 1
            assert seen.pop()[0] == UNKNOWN

    asyncio.run(main())


def test_an_answer_that_reveals_whether_a_client_is_enrolled_is_detected(tmp_path, mutate):
    """Negative control: a receipt before the signature check is detected."""
    from turnout.service.web.signed import SignedRoute

    def trusting(self, identity, path, body):
        return identity.client == TOOK_PART

    mutate(SignedRoute, "_known", trusting)
    with pytest.raises(AssertionError):
        test_all_unauthenticated_requests_get_identical_answers(tmp_path, "updates")


def test_a_request_with_a_repeated_header_is_not_authenticated(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            path = updates_path(0)
            headers = list(signed(w.task, path, 1, w.body()).items())
            for twice in headers:
                answer = await w.http.post(path, content=w.body(), headers=[*headers, twice])
                assert (answer.status_code, answer.content) == (401, UNKNOWN)

    asyncio.run(main())


def test_signatures_of_unknown_clients_are_verified_like_all_others(monkeypatch):
    """A signature is verified for every claimed client, so that response times do not differ."""
    from turnout.service.contract import ledger

    source = inspect.getsource(ledger.verified)
    assert source.count("from_public_bytes") == 1
    assert source.count(".verify(") == 1
    assert not ledger.verified(None, bytes(64), b"")


def test_a_client_without_an_invitation_cannot_enrol(tmp_path):
    """Invitations have one-time secrets, enrol one key each, and are limited in number."""
    from turnout.core.errors import ParameterError
    from turnout.service.coordinator.new_task import invite

    async def main():
        async with world(tmp_path) as w:
            own = SigningKey.new()
            assert (await w.update(NOBODY, 0, key=own)).content == UNKNOWN
            storage, charter = w.running.storage, w.charter
            await w.running.submit(lambda tx: invite(tx, charter, 10))
            with pytest.raises(ParameterError, match="the plan is for 40 clients"):
                await asyncio.to_thread(_invite, storage, charter, 1)
            with pytest.raises(ParameterError, match="40 are invited already"):
                await asyncio.to_thread(_invite, storage, charter, None)

    def _invite(storage, charter, count):
        with storage.snapshot() as view:
            invite(view, charter, count)

    asyncio.run(main())


def test_a_replayed_update_gets_the_same_receipt_and_a_changed_one_a_conflict(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            path, body = updates_path(0), w.body()
            headers = signed(w.task, path, 1, body)
            first = await w.http.post(path, content=body, headers=headers)
            again = await w.http.post(path, content=body, headers=headers)
            assert (again.status_code, again.content) == (200, first.content)
            assert (await w.update(1, 0, value=3)).status_code == 409
            with w.running.storage.snapshot() as view:
                assert [client for client, _ in view.bodies(0)] == [1]

    asyncio.run(main())


def test_a_device_that_lost_its_state_cannot_participate_twice_in_a_window(tmp_path):
    """The coordinator stores one participation per client and window, whatever a device redraws."""

    async def main():
        async with world(tmp_path) as w:
            assert (await w.update(1, 0)).status_code == 200
            await w.step_over()
            assert (await w.update(1, 1)).status_code == 409
            await w.step_over()
            await w.step_over()
            assert (await w.update(1, 3)).status_code == 200  # its next window

    asyncio.run(main())


def test_updates_before_or_after_their_step_are_refused(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            assert (await w.update(1, 1)).status_code == 425
            await w.step_over()
            assert (await w.update(1, 0)).status_code == 410
            with w.running.storage.snapshot() as view:
                assert view.arrived(0).size == view.arrived(1).size == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(4 * DIMENSION - 1),
        np.full(DIMENSION, 2**31 - 1, "<i4").tobytes(),
        np.full(DIMENSION, np.nan, "<f4").tobytes(),
        np.full(DIMENSION, np.inf, "<f4").tobytes(),
        np.full(DIMENSION, -(2**31), "<i4").tobytes(),
    ],
    ids=["empty", "short", "huge", "nan", "infinite", "least"],
)
def test_malformed_updates_are_refused_instead_of_repaired(tmp_path, body):
    async def main():
        async with world(tmp_path) as w:
            answer = await w.post(updates_path(0), 1, body)
            assert answer.status_code == 422
            with w.running.storage.snapshot() as view:
                assert view.arrived(0).size == 0
            assert (await w.update(1, 0)).status_code == 200  # the device does not lose its step

    asyncio.run(main())


def test_a_zero_update_is_accepted(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            assert (await w.update(1, 0, value=0)).status_code == 200

    asyncio.run(main())


def test_a_step_without_participants_releases_noise(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            before = (await w.http.get(model_path(0))).content
            await w.step_over()
            after = (await w.http.get(model_path(1))).content
            assert before != after

    asyncio.run(main())


def test_public_answers_have_no_counts(tmp_path):
    """Public answers do not depend on the participants; the noise is replaced in this test."""

    async def seen(folder, clients):
        zero = lambda deviation, size: np.zeros(size, np.int64)  # noqa: E731
        async with world(folder, noise=zero) as w:
            for client in clients:
                await w.update(client, 0, value=0)
            paths = ["/v1/status", "/public/summary.json", "/v1/charter"]
            answers = [(await w.http.get(path)).content for path in paths]
            await w.step_over()
            paths += ["/v1/records", model_path(1), "/v1/openapi.json", "/"]
            w.running._views.clear()
            return answers + [(await w.http.get(path)).content for path in paths]

    few, many = tmp_path / "few", tmp_path / "many"
    few.mkdir(), many.mkdir()
    one = asyncio.run(seen(few, [1]))
    other = asyncio.run(seen(many, range(20)))
    assert one == other


@pytest.mark.parametrize("rule", [ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT])
def test_a_model_is_published_at_its_scheduled_time(tmp_path, rule):
    async def main():
        async with world(tmp_path, rule=rule) as w:
            step = asyncio.create_task(w.conductor._step())
            answers = rule is ReleaseRule.ONE_CLIENT
            await asyncio.sleep(0)
            w.clock.advance(40.0)
            if answers:
                await w.until_shown(lambda shown: shown.phase == "answers")
                w.clock.advance(10.0)
            await w.until_shown(lambda shown: shown.phase == "closed")
            while w.running.engine.phase != "closed":  # released and stored, but not published
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.02)
            w.clock.advance(9.9 if answers else 19.9)
            await asyncio.sleep(0.02)
            assert (await w.http.get(model_path(1))).status_code == 404
            assert (await w.http.get("/v1/records")).json() == {"records": []}
            assert (await w.http.get("/v1/status")).json()["step"] == 0
            w.clock.advance(0.1)
            await step
            assert (await w.http.get(model_path(1))).status_code == 200
            assert (await w.http.get("/v1/status")).json()["step"] == 1

    asyncio.run(main())


def test_a_newer_ledger_head_of_a_device_stops_a_restored_coordinator(tmp_path):
    async def main():
        async with world(tmp_path) as w:
            later = str(heads.signed_head(w.task, Head(3, bytes(range(32))), KEY))
            answer = await w.update(1, 0, head=later)
            assert answer.status_code == 503
            assert [code for code, _ in w.ends.calls] == [SET_BACK]
            refused = itertools.chain(
                [await w.update(2, 0)],
                [await w.http.get(p) for p in ("/v1/status", "/v1/charter", model_path(0))],
                [await w.http.get("/readyz")],
            )
            assert {answer.status_code for answer in refused} == {503}
            with w.running.storage.snapshot() as view:
                assert view.arrived(0).size == 0

    asyncio.run(main())


def test_a_restored_old_database_is_refused_by_the_newer_head_file(tmp_path):
    head_file, path = tmp_path / "head", tmp_path / "turnout.sqlite"
    storage = task_storage(path, charter_of())
    storage.close()
    copy = path.read_bytes()

    async def main():
        async with world(
            tmp_path, storage=open_storage(path, serving=True), head_file=HeadFile(head_file)
        ) as w:
            for _ in range(2):
                await w.step_over()

    asyncio.run(main())
    for beside in tmp_path.glob("turnout.sqlite-*"):
        beside.unlink()
    newest = path.read_bytes()
    path.write_bytes(copy)
    with pytest.raises(StorageError, match="old copy"):
        opened(path, head_file)
    path.write_bytes(newest)
    opened(path, head_file)


def opened(path, head_file):
    storage = open_storage(path, serving=True)
    try:
        running = Running(storage, lambda _: Adding(), head_file=HeadFile(head_file))
        running.writer.close()
    finally:
        storage.close()


def test_logs_and_answers_contain_no_secrets(tmp_path, capfd):
    """Logs and answers contain no keys, secrets or invitations."""

    async def main():
        async with world(tmp_path) as w:
            await w.post(enrolments_path(), 25, b"{}")
            answers = [await w.update(1, 0), await w.http.get("/public/summary.json")]
            said = b"".join(answer.content for answer in answers).decode()
            said += "".join(capfd.readouterr())
            for secret in (KEY.private, secret_of(25), key_of(1).private):
                assert secret.hex() not in said

    asyncio.run(main())
