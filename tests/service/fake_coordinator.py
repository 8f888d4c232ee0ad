"""Fake coordinator for device tests, which follows the protocol and violates it on demand.

Its clock is that of the event loop; step and phase follow from the clock.
"""

import hashlib
import json
from collections import defaultdict
from functools import cache

import httpx
import numpy as np

from turnout.protocol.lattice import Lattice
from turnout.protocol.randomized import MessageEncoding
from turnout.schemes import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme, TrustModel
from turnout.schemes.codec import scheme_to_dict
from turnout.service.contract.charter import Charter, Timing
from turnout.service.contract.computation import Computation
from turnout.service.contract.ledger import Head, Record, SigningKey, verified
from turnout.service.contract.wire import (
    CHARTER_PATH,
    HEADS_PATH,
    STATUS_CODES,
    Invitation,
    SignedHead,
    SignedRequest,
    StepPhase,
    WireAnswer,
    WireReceipt,
    head_bytes,
)

KEY = SigningKey(bytes(range(32)))
URL = "http://127.0.0.1"


@cache
def parameters(steps, dimension):
    """Arbitrary model parameters that differ after every step."""
    return np.random.default_rng(steps).standard_normal(dimension).astype("<f4").tobytes()


def charter_of(
    participation=None,
    rule=ReleaseRule.AGGREGATED,
    *,
    dimension=6,
    population=20,
    plan="",
    step_seconds=8.0,
    computation=None,
    messages=None,
):
    """Charter of a task; with a randomizer in ``messages``, under local trust."""
    participation = CheckIn(3, 2) if participation is None else participation
    scheme = Scheme(GaussianNoise(1.0), participation, Relation.ADD_REMOVE, rule)
    encoding = Lattice.for_noise(1.0, 0.5, dimension)
    if messages is not None:
        scheme = Scheme(
            messages.priced_as, participation, Relation.REPLACE_ONE, rule, trust=TrustModel.LOCAL
        )
        encoding = MessageEncoding(messages)
    return Charter(
        plan=plan,
        population=population,
        scheme=scheme,
        delta=1e-5,
        target=3.0,
        charged_steps=(participation.steps,),
        charged=(2.5,),
        encoding=encoding,
        expected_check_ins=5.0 if rule is ReleaseRule.AGGREGATED else None,
        minibatch=1,
        initial_model=hashlib.sha256(parameters(0, dimension)).digest(),
        timing=Timing.of(step_seconds),
        coordinator_key=KEY.public,
        computation=computation or Computation(),
    )


def invitation(charter, client=3):
    secret = hashlib.sha256(b"secret %d" % client).digest()
    participation = scheme_to_dict(charter.scheme)["participation"]
    return Invitation(charter.task, KEY.public, client, charter.population, participation, secret)


class FakeCoordinator:
    """httpx transport that answers as a coordinator, without a network.

    Attributes:
        requests: every request that arrived: (method, path, headers, body).
        rows: (client, step) → the update stored.
        posts: (client, step) → every update that arrived, including copies.
        covers: (client, step) → lengths of dummy traffic.
        told: newer ledger heads that devices reported.
        artefacts: files named in the charter, by hexadecimal digest.
    """

    def __init__(self, charter, clock, page=4):
        self.charter, self._clock, self._page = charter, clock, page
        self.keys, self.requests, self.rows, self.covers = {}, [], {}, defaultdict(list)
        self.posts, self.checked_in = defaultdict(list), defaultdict(set)
        self.shift, self.salt, self.wrong_model, self.charter_bytes = 0.0, {}, False, None
        self.says, self.heads, self.told = {}, [], []
        self.artefacts = {}
        self.on_request = lambda method, path, headers, body: None

    # -- time ----------------------------------------------------------------------------

    def at(self):
        """Step, phase, seconds left in the phase, and seconds to the next step."""
        timing, now = self.charter.timing, max(0.0, self._clock() + self.shift)
        step, inside = divmod(now, timing.step_seconds)
        if step >= self.charter.steps:
            return self.charter.steps, StepPhase.FINISHED, 0.0, 0.0
        ends = timing.check_in_seconds, timing.check_in_seconds + timing.answer_seconds
        for phase, end in zip((StepPhase.CHECK_INS, StepPhase.ANSWERS), ends, strict=True):
            if inside < end:
                return int(step), phase, end - inside, timing.step_seconds - inside
        left = timing.step_seconds - inside
        return int(step), StepPhase.CLOSED, left, left

    # -- the ledger ----------------------------------------------------------------------

    def records(self, steps):
        """First ledger records; `salt` names the steps from which the history differs."""
        found, previous = [], hashlib.sha256(self.charter.canonical()).digest()
        for step in range(steps):
            model = parameters(step + 1, self.charter.encoding.dimension)
            text = b"sum %d %s" % (step, self.salt.get(step, b""))
            record = Record(
                self.charter.task,
                step,
                hashlib.sha256(text).digest(),
                hashlib.sha256(model).digest(),
                2.5,
                1e-5,
                previous,
            )
            previous = record.digest
            found.append(record)
        return found

    def head(self, steps):
        records = self.records(steps)
        start = Head(0, hashlib.sha256(self.charter.canonical()).digest())
        head = records[-1].head if records else start
        return SignedHead(head, KEY.sign(head_bytes(self.charter.task, head)))

    # -- requests ------------------------------------------------------------------------

    def answer(self, method, path, query, headers, body):
        self.requests.append((method, path, headers, body))
        self.on_request(method, path, headers, body)
        if method == "GET":
            return self._get(path, query)
        if path == HEADS_PATH:
            assert not any(name.startswith("turnout-") for name in headers)
            self.told.append(body.decode())
            return 503, b""  # as a stopping coordinator answers
        receipt = self._post(path, headers, body)
        return STATUS_CODES[receipt.answer], receipt.encoded()

    def _get(self, path, query):
        step, phase, left, following = self.at()
        if path == CHARTER_PATH:
            return 200, self.charter_bytes or self.charter.canonical()
        if path == "/v1/status":
            status = {
                "task": self.charter.task,
                "step": step,
                "steps": self.charter.steps,
                "phase": phase.value,
                "seconds_left": left,
                "seconds_to_next_step": following,
                "head": str(self.head(step)),
                "model_steps": step,
            }
            return 200, json.dumps(status | self.says).encode()
        if path == "/v1/records":
            first = int(query["from"])
            page = self.records(step)[first : first + self._page]
            return 200, json.dumps({"records": [record.document() for record in page]}).encode()
        if path == f"/v1/models/{step}":
            model = parameters(step, self.charter.encoding.dimension)
            return 200, bytes(len(model)) if self.wrong_model else model
        if path.startswith("/v1/artefacts/") and path.split("/")[3] in self.artefacts:
            return 200, self.artefacts[path.split("/")[3]]
        return 404, b"no such thing"

    def _post(self, path, headers, body):
        client, task = int(headers["turnout-client"]), self.charter.task
        enrols = path == "/v1/enrolments"
        key = bytes.fromhex(json.loads(body)["public_key"]) if enrols else self.keys.get(client)
        head = headers.get("turnout-head", "")
        nonce = bytes.fromhex(headers["turnout-nonce"])
        told = "enrolment-1" if enrols else self.charter.update_format if body else ""
        assert headers.get("turnout-format", "") == told
        assert headers["turnout-digest"] == hashlib.sha256(body).hexdigest()
        request = SignedRequest.posting(task, path, client, nonce, body, format=told, head=head)
        if not verified(key, bytes.fromhex(headers["turnout-signature"]), request.canonical()):
            return WireReceipt(WireAnswer.UNKNOWN)
        self.heads.append(head)
        if enrols:
            return self._enrol(client, key, json.loads(body))
        step, what = int(path.split("/")[3]), path.split("/")[4]
        return getattr(self, "_" + what.replace("-", "_"))(client, step, body)

    def _enrol(self, client, key, fields):
        if bytes.fromhex(fields["secret"]) != invitation(self.charter, client).secret:
            return WireReceipt(WireAnswer.UNKNOWN)
        if self.keys.setdefault(client, key) != key:
            return self._receipt(WireAnswer.CONFLICT, client, -1, detail="the invitation was used")
        return self._receipt(WireAnswer.ACCEPTED, client, -1)

    def _receipt(self, answer, client, step, **more):
        return WireReceipt(answer, self.charter.task, client, step, **more)

    def _wrong_time(self, client, step, phase):
        now, current = self.at()[:2]
        if step > now or (
            step == now and list(StepPhase).index(current) < list(StepPhase).index(phase)
        ):
            return self._receipt(WireAnswer.EARLY, client, step)
        late = step < now or current is not phase
        return self._receipt(WireAnswer.LATE, client, step) if late else None

    def _updates(self, client, step, body):
        self.posts[client, step].append(body)
        digest = hashlib.sha256(body).digest()
        if (client, step) in self.rows:
            if self.rows[client, step] != body:
                return self._receipt(WireAnswer.CONFLICT, client, step)
            return self._receipt(WireAnswer.ACCEPTED, client, step, digest=digest)
        one = self.charter.scheme.release is ReleaseRule.ONE_CLIENT
        if one and client != self._asked(step):
            return self._receipt(WireAnswer.REFUSED, client, step)
        wrong = self._wrong_time(client, step, StepPhase.ANSWERS if one else StepPhase.CHECK_INS)
        if wrong is not None:
            return wrong
        self.charter.encoding.decode(body)
        self.rows[client, step] = body
        return self._receipt(WireAnswer.ACCEPTED, client, step, digest=digest)

    def _covered(self, client, step, body):
        self.covers[client, step].append(len(body))
        wrong = self._wrong_time(client, step, StepPhase.CHECK_INS)
        return wrong or self._receipt(WireAnswer.ACCEPTED, client, step)

    def _check_ins(self, client, step, body):
        wrong = self._wrong_time(client, step, StepPhase.CHECK_INS)
        if wrong is not None:
            return wrong
        self.checked_in[step].add(client)
        return self._receipt(WireAnswer.ACCEPTED, client, step)

    def _asked(self, step):
        return max(self.checked_in[step], default=None)

    def _requests(self, client, step, body):
        if client not in self.checked_in[step]:
            return self._receipt(WireAnswer.REFUSED, client, step)
        now, phase = self.at()[:2]
        undecided = step == now and phase is StepPhase.CHECK_INS
        asked = None if undecided else client == self._asked(step)
        return self._receipt(WireAnswer.ACCEPTED, client, step, asked=asked)


class Wire(httpx.AsyncBaseTransport):
    """Transport to a coordinator, in which ``fault`` determines the fate of each request.

    ``fault(request)`` returns None, "unheard" (the request never arrives), "unanswered" (the answer
    is lost), "twice", "busy" (status 503) or a number of seconds of delay.
    """

    def __init__(self, coordinator, sleep, fault=lambda request: None):
        self._coordinator, self._sleep, self.fault = coordinator, sleep, fault

    async def handle_async_request(self, request):
        body = await request.aread()
        happens = self.fault(request)
        if happens == "unheard":
            raise httpx.ConnectError("refused", request=request)
        if happens == "busy":
            return httpx.Response(503, headers={"Retry-After": "1"}, request=request)
        if isinstance(happens, float):
            await self._sleep(happens)
        for _ in range(2 if happens == "twice" else 1):
            status, answer = self._coordinator.answer(
                request.method,
                request.url.path,
                dict(request.url.params),
                dict(request.headers),
                body,
            )
        if happens == "unanswered":
            raise httpx.ReadTimeout("no answer", request=request)
        return httpx.Response(status, stream=httpx.ByteStream(answer), request=request)
