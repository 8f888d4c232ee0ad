"""The engine calls of the signed requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from turnout.core.errors import RemoteProtocolError
from turnout.service.engine import Upload
from turnout.service.storage.writes import Transaction
from turnout.service.web.running import Running
from turnout.service.web.signed import EnrolmentRoute, Job, Prepare, SignedRoute, enrolment_of
from turnout.service.wire import (
    ENROLMENT_FORMAT,
    Answer,
    Phase,
    Receipt,
    check_ins_path,
    covers_path,
    enrolments_path,
    requests_path,
    updates_path,
)

ENROLMENT_BYTES, NO_BODY_BYTES = 1024, 64
"""Most bytes that are read of an enrolment, and of what has no body."""


@dataclass(frozen=True, slots=True)
class DeviceJobs:
    """The engine call of each route."""

    running: Running

    def enrol(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """Use an invitation; from the commit on the key is known."""
        del step, digest
        fields = enrolment_of(body)
        assert fields is not None  # it was signed by the key in it
        _, key, secret = fields
        running = self.running

        def job(tx: Transaction) -> Receipt:
            return running.engine.enrol(tx, client, secret, key)

        return job

    def update(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """An update."""
        upload = self.running.engine.inspect(body, digest)
        return lambda tx: self.running.engine.update(tx, client, step, upload)

    def cover(self, client: int, step: int, body: bytes, digest: bytes) -> Job:
        """All that an update gets, and counted nowhere."""
        engine = self.running.engine
        if len(body) != engine.charter.encoding.encoded_size:
            raise RemoteProtocolError("cover is as long as an update")
        if engine.charter.asks_one:
            raise RemoteProtocolError("cover hides nothing where one of many is asked")
        with suppress(RemoteProtocolError):  # it need not be one; the work is what counts
            engine.inspect(body, digest)
        return lambda tx: self._covered(tx, client, step, Upload(body, digest))

    def _covered(self, tx: Transaction, client: int, step: int, upload: Upload) -> Receipt:
        engine, task = self.running.engine, self.running.task
        tx.participation_at(client, step)
        if step > engine.step:
            return Receipt(Answer.EARLY, task, client, step, detail="this step is not open yet")
        if step < engine.step or engine.phase is not Phase.CHECK_INS:
            return Receipt(Answer.LATE, task, client, step, detail="this step is over")
        return Receipt(Answer.ACCEPTED, task, client, step, upload.digest)


def signed_routes(running: Running) -> dict[str, SignedRoute]:
    """All routes that take signed requests, by path."""
    jobs, size = DeviceJobs(running), running.charter.encoding.encoded_size
    enrolments, update_format = enrolments_path(), running.charter.update_format
    routes: dict[str, SignedRoute] = {
        enrolments: EnrolmentRoute(
            running,
            "enrolments",
            lambda _: enrolments,
            ENROLMENT_BYTES,
            jobs.enrol,
            body_format=ENROLMENT_FORMAT,
        )
    }
    for path, limit, prepare, body_format in (
        (check_ins_path, NO_BODY_BYTES, _bare(running.engine.check_in), ""),
        (requests_path, NO_BODY_BYTES, _bare(running.engine.requested), ""),
        (updates_path, size, jobs.update, update_format),
        (covers_path, size, jobs.cover, update_format),
    ):
        template = path("{step}")
        name = template.rpartition("/")[2]
        routes[template] = SignedRoute(running, name, path, limit, prepare, body_format=body_format)
    return routes


def _bare(ask: Callable[[Transaction, int, int], Receipt]) -> Prepare:
    """The job of a request that has no body."""

    def prepare(client: int, step: int, body: bytes, digest: bytes) -> Job:
        if body:
            raise RemoteProtocolError("this request has no body")
        return lambda tx: ask(tx, client, step)

    return prepare
