"""The witness: heads that it accepts and refuses, and how a coordinator waits for it."""

import asyncio
import contextlib
import sqlite3
import threading
import time

import apsw
import httpx
import pytest
from forked import HANGS_SECONDS
from rollback import Files, Task
from storage_samples import KEY, START, TASK, release
from web_world import world

from turnout.core.errors import StorageError
from turnout.service.contract.ledger import Head, SigningKey, verified
from turnout.service.contract.wire import SignedHead, StepPhase
from turnout.service.coordinator.engine import SetBackError
from turnout.service.web import heads
from turnout.service.web.running import SET_BACK, STORAGE_FAILED
from turnout.service.witness.app import (
    FullError,
    OtherHeadError,
    UnknownTaskError,
    WitnessStore,
    create_witness_app,
)
from turnout.service.witness.client import Witness, WitnessError, WitnessUnreachableError
from turnout.service.witness.messages import (
    KEY_PATH,
    MOST_BYTES,
    RECEIPTS_PATH,
    ShownHead,
    receipt_bytes,
)

COORDINATOR = SigningKey(KEY)
TOKEN = "a token of the operator"


def chain(steps, salt=b""):
    """Ledger heads that a coordinator sends, beginning before the first release."""
    records, head = [None], START
    for _ in range(steps):
        record = release(head, salt=salt).record
        records.append(record)
        head = record.head
    return [shown(record) for record in records]


def shown(record, key=COORDINATOR, begins=False):
    head = START if record is None else record.head
    return ShownHead(TASK, key.public, heads.signed_head(TASK, head, key), record, begins)


def beginning(message):
    """Copy of a message from a coordinator that has no receipt yet."""
    return ShownHead(message.task, message.key, message.head, message.record, True)


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(WitnessStore(tmp_path / "witness")) as opened:
        yield opened


def test_reading_ledger_heads_does_not_block_receipts_of_the_witness(store):
    done, turned_away = threading.Event(), []

    def read():
        while not done.is_set():
            try:
                store.newest(TASK)
            except StorageError as error:
                turned_away.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        messages = chain(40)
        for message in (beginning(messages[0]), *messages[1:]):
            store.receipt(message)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not turned_away


# -- what it keeps ---------------------------------------------------------------------------


def test_the_witness_signs_each_next_ledger_head_and_copies_of_the_newest(store):
    messages = chain(3)
    for message in (beginning(messages[0]), *messages[1:]):
        signature = store.receipt(message)
        assert verified(store.key.public, signature, receipt_bytes(TASK, message.head.head))
        assert store.receipt(message) == signature  # the same for a copy
    assert store.newest(TASK) == messages[3].head


def test_a_witness_can_be_added_to_a_running_task(store):
    messages = chain(6)
    store.receipt(beginning(messages[4]))
    store.receipt(messages[5])
    assert store.newest(TASK) == messages[5].head


@pytest.mark.parametrize("begins", [False, True])
def test_older_forked_and_skipped_ledger_heads_are_refused_with_the_newest_head(store, begins):
    messages, forked = chain(5), chain(5, b"drawn again")
    store.receipt(beginning(messages[1]))
    store.receipt(messages[2])
    stranger = shown(messages[3].record, SigningKey(bytes(range(1, 33))))
    for other in (messages[0], messages[1], messages[4], forked[2], forked[3], stranger):
        with pytest.raises(OtherHeadError) as caught:
            store.receipt(beginning(other) if begins else other)
        assert caught.value.newest == messages[2].head
    store.receipt(messages[3])


def test_the_witness_refuses_a_later_head_of_a_task_that_it_does_not_know(store):
    with pytest.raises(UnknownTaskError):
        store.receipt(chain(1)[1])
    assert store.newest(TASK) is None


def test_the_witness_accepts_at_most_its_limit_of_tasks(tmp_path):
    with contextlib.closing(WitnessStore(tmp_path / "few", most_tasks=2)) as store:
        for number in range(3):
            task = bytes([number] * 32)
            head = SignedHead(Head(0, task), bytes(64))
            message = ShownHead(task.hex(), COORDINATOR.public, head, None, True)
            with pytest.raises(FullError) if number == 2 else contextlib.nullcontext():
                store.receipt(message)


def test_the_witness_keeps_its_key_and_ledger_heads_unchanged(tmp_path):
    path, messages = tmp_path / "witness", chain(2)
    with contextlib.closing(WitnessStore(path)) as store:
        key = store.key.public
        for message in (beginning(messages[0]), *messages[1:]):
            store.receipt(message)
        with pytest.raises(StorageError, match="another witness"):
            WitnessStore(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA recursive_triggers=ON")
        for table in ("witness", "tasks", "heads"):
            column = {"witness": "signing_key", "tasks": "task", "heads": "head"}[table]
            for sql in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = {column}"):
                with pytest.raises(sqlite3.IntegrityError, match="never changed"):
                    database.execute(sql)
        for sql in (
            "INSERT OR REPLACE INTO heads SELECT task, steps, 'x' FROM heads",
            f"INSERT INTO heads VALUES ('{TASK}', 9, 'x')",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="go on"):
                database.execute(sql)
    with contextlib.closing(WitnessStore(path)) as store:
        assert store.key.public == key
        assert store.newest(TASK) == messages[2].head


def test_the_witness_refuses_to_open_another_database(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "other")) as database:
        database.execute("CREATE TABLE t (x)")
    (tmp_path / "text").write_text("not a database, and long enough to be seen as none" * 20)
    for name in ("other", "text", "missing/file"):
        with pytest.raises(StorageError):
            WitnessStore(tmp_path / name)


# -- over HTTP -------------------------------------------------------------------------------


def asked(store, *requests, token=None):
    """Answers of a witness to several requests, as (status, body)."""

    async def ask():
        transport = httpx.ASGITransport(app=create_witness_app(store, token))
        async with httpx.AsyncClient(transport=transport, base_url="http://witness") as http:
            answers = [await http.request(*args, **how) for args, how in requests]
            return [(answer.status_code, answer.content) for answer in answers]

    return asyncio.run(ask())


def post(content, **headers):
    return ("POST", RECEIPTS_PATH), {"content": content, "headers": headers}


def test_the_witness_refuses_invalid_ledger_heads(store):
    message = beginning(chain(1)[1])
    text = message.encoded().decode()
    other = message.head.head.digest.hex()
    wrong = [
        "", "[]", "{}", "null", "\xff", "[" * 3000,
        text.replace('"begins":true', '"begins":1'),
        text.replace('"begins":true', '"begins":true,"more":1'),
        text.replace(other, "00" * 32),
        text.replace(f'"task":"{TASK}"', f'"task":"{TASK[::-1]}"'),
        text.replace(message.key.hex(), SigningKey(bytes(32)).public.hex()),
        text.replace('"step":0', '"step":"0"'),
        text.replace('"step":0', '"step":-1'),
        beginning(shown(None)).encoded().decode().replace('"record":null', '"record":{}'),
    ]  # fmt: skip
    answers = asked(store, *(post(body.encode("latin-1")) for body in wrong))
    assert {status for status, _ in answers} == {422}
    assert asked(store, post(bytes(MOST_BYTES + 1)))[0][0] == 413
    assert store.newest(TASK) is None
    assert asked(store, post(text.encode()))[0][0] == 200


def test_the_witness_requires_its_configured_token(store):
    body = beginning(chain(0)[0]).encoded()
    newest = ("GET", f"/v1/heads/{TASK}"), {}
    wrong = [post(body), post(body, Authorization="Bearer no"), newest]
    assert {status for status, _ in asked(store, *wrong, token=TOKEN)} == {401}
    right = {"Authorization": f"Bearer {TOKEN}"}
    answers = asked(
        store,
        (newest[0], {"headers": right}),
        post(body, **right),
        (newest[0], {"headers": right}),
        (("GET", KEY_PATH), {}),
        token=TOKEN,
    )
    assert [status for status, _ in answers] == [404, 200, 200, 200]
    assert answers[2][1].decode() == f"{chain(0)[0].head}\n"
    assert store.key.public.hex() in answers[3][1].decode()


def judged(answer, message, key=None):
    """Coordinator's result for one answer of its witness."""

    def streamed(request):
        status, body = answer(request)
        return httpx.Response(status, stream=httpx.ByteStream(body))

    async def ask():
        transport = httpx.MockTransport(streamed)
        key_ = key or COORDINATOR.public
        witness = Witness("http://127.0.0.1", key_, token=TOKEN, transport=transport)
        try:
            return await witness.receipt(message)
        finally:
            await witness.close()

    return asyncio.run(ask())


def test_an_answer_without_a_receipt_is_retried_instead_of_counted_as_a_refusal(store):
    """A proxy may answer while the witness restarts; the coordinator repeats its request."""
    message, pages = beginning(chain(1)[1]), [b"<html>back soon</html>"]

    def answer(request):
        if pages:
            return 200, pages.pop()
        return 200, b'{"receipt":"%s"}' % store.receipt(message).hex().encode()

    assert judged(answer, message, store.key.public).signature == store.receipt(message)
    assert not pages


@pytest.mark.parametrize(
    ("status", "body", "error", "why"),
    [
        (200, b'{"receipt":"%s"}' % (b"00" * 64), SetBackError, "signs with another key"),
        (404, b'{"reason":"unknown"}', SetBackError, "the witness was set back"),
        (404, b"nothing here", WitnessError, "HTTP 404"),
        (401, b'{"reason":"no token"}', WitnessError, "no token"),
        (409, b'{"reason":"x"}', WitnessError, "HTTP 409"),
        (409, b'{"reason":"x","head":"1:2:3"}', WitnessError, "HTTP 409"),
        (
            409,
            b'{"reason":"x","head":"%s"}'
            % str(heads.signed_head(TASK, Head(9, bytes(32)), SigningKey(bytes(32)))).encode(),
            WitnessError,
            "did not sign",
        ),
        (507, b'{"reason":"full"}', WitnessError, "full"),
        (302, b"", WitnessError, "HTTP 302"),
    ],
)
def test_a_refusal_of_the_witness_stops_the_coordinator(status, body, error, why):
    with pytest.raises(error, match=why):
        judged(lambda request: (status, body), chain(1)[1])


def test_requests_to_a_witness_that_does_not_answer_are_repeated(store):
    message, calls = beginning(chain(1)[1]), []

    def answer(request):
        calls.append(request.headers["authorization"])
        if len(calls) == 1:
            raise httpx.ConnectError("refused")
        if len(calls) == 2:
            return 503, b""
        if len(calls) == 3:  # as uvloop raises if a connection closes while opening
            raise AttributeError("'NoneType' object has no attribute 'getpeername'")
        if len(calls) == 4:
            return 200, bytes(2 * MOST_BYTES)
        signature = store.receipt(ShownHead.decoded(request.content))
        return 200, b'{"receipt":"%s"}' % signature.hex().encode()

    receipt = judged(answer, message, store.key.public)
    assert (receipt.steps, receipt.witness_key) == (1, store.key.public)
    assert calls == 5 * [f"Bearer {TOKEN}"]


# -- a coordinator that has one ---------------------------------------------------------------


class Switch(httpx.AsyncBaseTransport):
    """Transport to a witness that can be made unreachable."""

    def __init__(self, store):
        self._inside = httpx.ASGITransport(app=create_witness_app(store))
        self.reachable, self.asked = True, 0

    async def handle_async_request(self, request):
        self.asked += 1
        if not self.reachable:
            raise httpx.ConnectError("refused", request=request)
        return await self._inside.handle_async_request(request)


async def until(holds):
    deadline = time.monotonic() + HANGS_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)


def test_requests_to_a_witness_with_a_full_disk_are_repeated(store, mutate):
    def full(shown):
        raise apsw.FullError("database or disk is full")

    async def run():
        witness = Witness("http://127.0.0.1", store.key.public, transport=Switch(store))
        mutate(store, "_keep", full)
        with pytest.raises(WitnessUnreachableError, match=r"HTTP 503 .*FullError: .*disk is full"):
            await witness._asked(beginning(shown(None)))
        await witness.close()

    asyncio.run(run())


def test_releases_are_published_only_after_the_witness_has_signed(tmp_path, store):
    async def run():
        switch = Switch(store)
        witness = Witness("http://127.0.0.1", store.key.public, transport=switch)
        switch.reachable = False
        async with world(tmp_path, witness=witness) as w:
            conducting = asyncio.create_task(w.conductor.run())
            await until(lambda: switch.asked > 1)
            for path in ("/v1/status", "/v1/models/0", "/readyz", "/", "/public/summary.json"):
                assert (await w.http.get(path)).status_code == 503
            assert (await w.update(1, 0)).status_code == 503
            assert (await w.http.get("/healthz")).status_code == 200
            switch.reachable = True
            await until(lambda: not w.running.withheld)
            assert (await w.update(1, 0)).status_code == 200
            switch.reachable, asked = False, switch.asked
            while switch.asked < asked + 2:
                w.clock.advance(60.0)
                await asyncio.sleep(0.002)
            assert w.running.engine.published.head.steps == 0  # released, but not published
            status = (await w.http.get("/v1/status")).json()
            assert (status["phase"], status["model_steps"]) == (StepPhase.CLOSED.value, 0)
            assert (await w.http.get("/v1/models/1")).status_code == 404
            with w.running.storage.snapshot(whole=True) as view:
                assert len(list(view.records())) == 1
                assert view.last_receipt().steps == 0
            switch.reachable = True
            await until(lambda: w.running.shown.published.head.steps >= 1)
            with w.running.storage.snapshot() as view:
                assert view.last_receipt().steps >= 1
            conducting.cancel()  # as a signal does, also while waiting
            with contextlib.suppress(asyncio.CancelledError):
                await conducting
            assert not w.ends.calls

    asyncio.run(run())


def test_a_step_is_closed_only_after_the_witness_signed_the_previous_head(tmp_path, store):
    async def run():
        witness = Witness("http://127.0.0.1", store.key.public, transport=Switch(store))
        async with world(tmp_path, witness=witness) as w:
            step = asyncio.create_task(w.conductor._step())  # without the earlier receipt
            while not step.done():
                w.clock.advance(60.0)
                await asyncio.sleep(0.002)
            with pytest.raises(StorageError, match="has not signed the ledger head after 0"):
                await step
            with w.running.storage.snapshot(whole=True) as view:
                assert not list(view.records())

    asyncio.run(run())


def test_the_witness_of_a_task_is_changed_only_by_an_explicit_option(tmp_path):
    async def run():
        task = Task(Files(tmp_path / "task"))
        task.create_task()
        assert await task.run(2) == ("goes on",)
        again = Task(task.files, witnessed=False)
        code, reason = await again.run(3)
        assert code == 4
        assert "--change-witness" in reason
        assert task.key.hex() in reason
        other = Task(task.files, key=SigningKey.new().public)
        code, reason = await other.run(3)
        assert code == 4
        task.files.folder_of("witness").rename(tmp_path / "gone")
        task.files.folder_of("witness").mkdir()
        changed = Task(task.files, change_witness=True)
        assert await changed.run(3) == ("goes on",)
        assert changed.key != task.key
        assert await Task(task.files, key=changed.key).run(4) == ("goes on",)
        without = Task(task.files, witnessed=False, change_witness=True)
        assert await without.run(6) == ("goes on",)
        # After two releases without it, the witness cannot tell an omission from a restore.
        code, reason = await Task(task.files, key=changed.key).run(7)
        assert code == SET_BACK
        assert "not used for a while" in reason

    asyncio.run(run())


def test_a_refusal_of_the_witness_ends_the_coordinator_with_exit_code_70(tmp_path, store):
    async def run():
        transport = httpx.ASGITransport(app=create_witness_app(store, TOKEN))
        witness = Witness("http://127.0.0.1", store.key.public, transport=transport)
        async with world(tmp_path, witness=witness) as w:
            with pytest.raises(WitnessError, match="requires its token"):
                await w.conductor.run()
            assert [code for code, _ in w.ends.calls] == [STORAGE_FAILED]

    asyncio.run(run())


# -- the command -----------------------------------------------------------------------------
