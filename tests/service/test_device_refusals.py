"""Coordinators that a device refuses: restored, forked, forged or malformed."""

import json
import ssl
from contextlib import suppress
from dataclasses import replace

import httpx
import pytest
from device_world import Chosen, Killed, World
from fake_coordinator import KEY, charter_of, invitation
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError, ProtocolError, RemoteProtocolError
from turnout.protocol.messages import ClientState
from turnout.schemes import CheckIn, ReleaseRule
from turnout.service.contract.ledger import Head, SigningKey
from turnout.service.contract.wire import HEADS_PATH, SignedHead, head_bytes
from turnout.service.device import Link, UnreachableError
from turnout.service.device.link import connection
from turnout.service.device.remote import CoordinatorStatus, records_of

STEP = 8.0


def halted_at(world, step, *positions):
    """Run a device until it knows the ledger up to ``step``, and kill the device."""

    def killing(request):
        seen = world.memory().head
        if request.url.path == "/v1/status" and seen and seen.head.steps >= step:
            raise Killed

    world.wire.fault = killing
    with pytest.raises(Killed):
        world.start(source=Chosen(*positions))
    world.wire.fault = lambda request: None


# -- set back --------------------------------------------------------------------------------


def test_a_device_refuses_a_shortened_ledger_and_sends_nothing(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    halted_at(world, 3, 3, 5)
    sent = len(world.coordinator.heads)
    assert set(world.coordinator.rows) == {(3, 3)}
    world._elapsed = 1.2 * STEP
    for _ in range(2):  # also after a restart
        world.coordinator.told.clear()
        with pytest.raises(RemoteProtocolError, match="the coordinator was set back"):
            world.start()
        # Number of attempts: repeated without an answer, but only a few times.
        assert world.coordinator.told == 4 * [str(world.coordinator.head(3))]
    assert len(world.coordinator.heads) == sent


def telling(world, answer):
    """Number of attempts of a device to report a restored ledger, with the given answer to each."""
    plain = world.coordinator.answer

    def answered(method, path, query, headers, body):
        if path != HEADS_PATH:
            return plain(method, path, query, headers, body)
        world.coordinator.told.append(body.decode())
        return answer()

    world.coordinator.answer = answered
    with pytest.raises(RemoteProtocolError, match="the coordinator was set back"):
        world.start()
    return len(world.coordinator.told)


def unreachable():
    raise httpx.ConnectError("the process has ended")


@pytest.mark.parametrize(
    ("answer", "messages"),
    [
        (lambda: (200, b'{"answer":"accepted"}'), 1),
        (lambda: (422, b"{}"), 1),
        (lambda: (404, b"an older coordinator"), 1),
        (lambda: (200, bytes(1 << 17)), 1),
        (unreachable, 4),
    ],
)
def test_a_device_stops_at_a_restored_ledger_even_if_its_report_fails(tmp_path, answer, messages):
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    halted_at(world, 3, 3, 5)
    world._elapsed = 1.2 * STEP
    assert telling(world, answer) == messages


def test_a_device_refuses_another_ledger_of_the_same_length(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    halted_at(world, 3, 3, 5)
    sent = len(world.coordinator.heads)
    newer = str(world.coordinator.head(3))
    world.coordinator.salt = {2: b"released again"}
    with pytest.raises(RemoteProtocolError, match="set back"):
        world.start()
    assert len(world.coordinator.heads) == sent
    assert set(world.coordinator.told) == {newer}


def test_a_device_refuses_a_ledger_that_was_restored_and_grew_again(tmp_path):
    """The new ledger is longer than the known ledger, but does not continue it."""
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    halted_at(world, 3, 3, 5)
    sent = len(world.coordinator.heads)
    newer = str(world.coordinator.head(3))
    world.coordinator.salt = {1: b"released again"}
    world._elapsed = 11 * STEP
    with pytest.raises(RemoteProtocolError, match="set back"):
        world.start()
    assert len(world.coordinator.heads) == sent
    assert set(world.coordinator.told) == {newer}
    assert world.memory().head.head.steps == 3


def test_a_device_refuses_a_coordinator_that_reopens_an_earlier_step(tmp_path):
    """The ledger head stays the same; the client's state table detects the repeated step."""
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    world.start(source=Chosen(0, 5))
    world.coordinator.says = {"step": 3, "model_steps": 3, "phase": "check-ins"}
    document = json.loads(world.path().read_bytes())
    assert document["state"]["head"].startswith("11:")
    with pytest.raises(RemoteProtocolError, match="earlier step opens"):
        world.start()


def test_a_device_reads_a_long_ledger_in_several_requests(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(30, 2)))
    world.start(source=Chosen(2, 29))
    pages = sum(path == "/v1/records" for _, path, _, _ in world.coordinator.requests)
    assert pages > 57 / 4
    assert world.memory().head.head.steps == 59


def test_a_device_refuses_a_ledger_head_with_a_wrong_signature(tmp_path):
    for step in (0, 3):
        world = World(tmp_path / str(step), charter_of(CheckIn(6)))
        world._elapsed = step * STEP
        head = world.coordinator.head(step).head
        stranger = SigningKey.new()
        forged = [
            SignedHead(head, stranger.sign(head_bytes(world.charter.task, head))),
            SignedHead(head, KEY.sign(head_bytes("00" * 32, head))),
            SignedHead(Head(step, bytes(32)), world.coordinator.head(step).signature),
        ]
        for signed in forged:
            world.coordinator.says = {"head": str(signed)}
            with pytest.raises(RemoteProtocolError, match="signature"):
                world.start()
        assert world.memory().head is None
        assert not world.coordinator.told  # these bytes prove nothing
        assert world.coordinator.posts == {}


def test_a_device_refuses_a_ledger_that_does_not_start_at_the_charter(tmp_path):
    world = World(tmp_path)
    head = Head(0, bytes(32))
    signed = SignedHead(head, KEY.sign(head_bytes(world.charter.task, head)))
    world.coordinator.says = {"head": str(signed)}
    with pytest.raises(RemoteProtocolError, match="does not begin with the charter"):
        world.start()


def test_a_device_retries_a_status_whose_step_contradicts_its_ledger(tmp_path):
    """The device waits until step and ledger agree."""
    world = World(tmp_path, charter_of(CheckIn(3), step_seconds=60.0))
    asked = []

    def torn(method, path, headers, body):
        asked.append(path)
        world.coordinator.says = {"model_steps": 0} if asked.count("/v1/status") < 5 else {}

    world._elapsed = 60.0
    world.coordinator.on_request = torn
    assert world.start(source=Chosen(1)) == {"accepted": 1}


# -- charter, model, records -----------------------------------------------------------------


def test_a_device_refuses_a_charter_of_another_task_before_enrolment(tmp_path):
    world = World(tmp_path)
    other = charter_of(CheckIn(3, 3))
    world.coordinator.charter_bytes = other.canonical()
    with pytest.raises(RemoteProtocolError, match="does not have the digest in the invitation"):
        world.start()
    assert [path for _, path, _, _ in world.coordinator.requests] == ["/v1/charter"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"law": invitation(charter_of(CheckIn(3, 1))).law}, "another participation than"),
        ({"population": 21}, "another population"),
        ({"coordinator_key": SigningKey.new().public}, "another coordinator key"),
    ],
)
def test_a_device_refuses_an_invitation_that_contradicts_the_charter(tmp_path, change, why):
    world = World(tmp_path)
    with pytest.raises(RemoteProtocolError, match=why):
        world.start(token=replace(invitation(world.charter), **change))
    assert [path for _, path, _, _ in world.coordinator.requests] == ["/v1/charter"]


@pytest.mark.parametrize("rule", [ReleaseRule.AGGREGATED, ReleaseRule.ONE_CLIENT])
@pytest.mark.parametrize("step", [0, 2])
def test_a_device_refuses_a_model_with_another_digest(tmp_path, rule, step):
    world = World(tmp_path, charter_of(CheckIn(3), rule))
    world.coordinator.wrong_model = True
    with pytest.raises(RemoteProtocolError, match="not the model in the ledger"):
        world.start(source=Chosen(step))
    assert world.coordinator.posts == {}
    assert not any(world.coordinator.checked_in.values())
    assert world.states() == [ClientState.CHECKED_IN]


def test_a_device_refuses_ledger_records_that_do_not_match_the_head(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(6)))
    world._elapsed = 3 * STEP
    signed = str(world.coordinator.head(3))

    def lies(method, path, headers, body):
        world.coordinator.says = {"head": signed}
        world.coordinator.salt = {2: b"other"} if path == "/v1/records" else {}

    world.coordinator.on_request = lies
    with pytest.raises(RemoteProtocolError, match="does not match the ledger head"):
        world.start(source=Chosen(3))
    assert world.coordinator.posts == {}


def test_a_device_refuses_a_coordinator_that_withholds_ledger_records(tmp_path):
    world = World(tmp_path, charter_of(CheckIn(6, 2)))
    halted_at(world, 3, 3, 5)
    world.coordinator._page = 0
    world._elapsed = 11 * STEP
    with pytest.raises(RemoteProtocolError, match="does not return its ledger"):
        world.start()


def test_a_device_refuses_a_receipt_with_a_wrong_client_step_task_or_digest(tmp_path):
    for field, value in {"client": 4, "step": 7, "task": "x", "digest": bytes(32)}.items():
        world = World(tmp_path / field)
        plain = world.coordinator._updates

        def updates(client, step, body, plain=plain, field=field, value=value):
            return replace(plain(client, step, body), **{field: value})

        world.coordinator._updates = updates
        with pytest.raises(RemoteProtocolError, match="receipt is"):
            world.start()


# -- malformed -------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
FIELDS = ("task", "step", "phase", "seconds_left", "seconds_to_next_step", "head", "model_steps")
GOOD = {
    "task": "ab",
    "step": 1,
    "phase": "closed",
    "seconds_left": 0.5,
    "seconds_to_next_step": 1,
    "head": str(SignedHead(Head(1, bytes(32)), bytes(64))),
    "model_steps": 1,
}


@given(st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_a_device_refuses_malformed_status_and_ledger_records(data):
    for read in (lambda: CoordinatorStatus.parsed(data, "ab", 5), lambda: records_of(data)):
        with suppress(RemoteProtocolError):
            assert read() == []


@given(st.sampled_from(FIELDS), JSON | st.just(10**400) | st.sampled_from([-1, 6, True, "1"]))
def test_a_status_with_one_changed_field_is_refused_or_still_consistent(field, value):
    data = json.dumps(GOOD | {field: value}).encode()
    try:
        status = CoordinatorStatus.parsed(data, "ab", 5)
    except RemoteProtocolError:
        return
    assert 0 <= status.step <= 5
    assert 0 <= status.seconds_left < float("inf")
    assert 0 <= status.seconds_to_next_step < float("inf")
    assert field != "task" or value == "ab"


def test_a_status_without_a_field_is_refused():
    CoordinatorStatus.parsed(json.dumps(GOOD).encode(), "ab", 5)
    for field in FIELDS:
        data = json.dumps({key: value for key, value in GOOD.items() if key != field}).encode()
        with pytest.raises(RemoteProtocolError, match="status is invalid"):
            CoordinatorStatus.parsed(data, "ab", 5)


# -- the link --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "coordinator", "ftp://host", "https://", "http://example.org", "http://10.0.0.1:1",
     "https://host?x=1", "https://host#x", "http://localhost.example.org"],
)  # fmt: skip
def test_unencrypted_or_malformed_coordinator_addresses_are_refused(url):
    with pytest.raises(ParameterError, match="https://"):
        Link(None, url)


def test_https_and_local_coordinator_addresses_are_accepted():
    for url in (
        "https://host:1/prefix/",
        "http://127.0.0.1:8",
        "http://[::1]:8",
        "http://localhost",
    ):
        Link(None, url)
    Link(None, "http://10.0.0.1", allow_http=True)


def asked(answer, world):
    """Outcome of a device whose first request gets the given HTTP answer."""
    world.wire.handle_async_request = answer
    return world.start()


@pytest.mark.parametrize(
    ("status", "why"), [(404, "has no resource /v1/charter"), (301, "HTTP 301"), (403, "HTTP 403")]
)
def test_a_malformed_answer_stops_the_device(tmp_path, status, why):
    async def answer(request):
        return httpx.Response(status, request=request)

    with pytest.raises(ProtocolError, match=why):
        asked(answer, World(tmp_path))


def test_an_endless_answer_body_is_cut_off(tmp_path):
    class Endless(httpx.AsyncByteStream):
        given = 0

        async def __aiter__(self):
            while True:
                Endless.given += 1
                yield bytes(1 << 20)

    async def answer(request):
        return httpx.Response(200, stream=Endless(), request=request)

    with pytest.raises(RemoteProtocolError, match="more than"):
        asked(answer, World(tmp_path))
    assert Endless.given <= 65


def test_a_rejected_tls_certificate_stops_the_device_immediately(tmp_path):
    async def answer(request):
        raise httpx.ConnectError("no") from ssl.SSLCertVerificationError("self-signed")

    with pytest.raises(RemoteProtocolError, match="certificate is not accepted") as caught:
        asked(answer, World(tmp_path))
    assert not isinstance(caught.value, UnreachableError)


def test_a_device_refuses_a_compressed_answer(tmp_path):
    async def answer(request):
        return httpx.Response(200, headers={"Content-Encoding": "br"}, request=request)

    with pytest.raises(RemoteProtocolError, match="compressed"):
        asked(answer, World(tmp_path))


def test_malformed_tls_certificates_are_refused(tmp_path):
    for content in (None, "nothing"):
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_text(content)
        with pytest.raises(ParameterError, match="a file of certificates"):
            connection(path)


def test_device_logs_do_not_link_a_device_to_its_steps(tmp_path, caplog):
    """Messages to the owner do not name steps either, unless the owner requests it."""
    caplog.set_level("DEBUG")
    connection()
    world = World(tmp_path)
    world.start()
    assert "/v1/steps" not in caplog.text
    task = world.charter.task[:16]
    assert world.told == [f"client 3 of task {task}: 2 turns to come"]
    assert world.outcomes[-1] == {"accepted": 2}
