"""A device that needs NumPy, cryptography and ONNX Runtime, but not turnout.

python device.py URL --invitation FILE --records FILE.npz --state FILE
"""

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from link import Link, UnreachableError
from memory import Memory, StateError
from texts import (
    ProtocolError,
    SetBackError,
    canonical,
    invitation_of,
    plain,
    public_key,
    require,
    sha256,
)
from update import Update
from worker import computed

PATIENCE_SECONDS, RECHECK_SECONDS = 3600, 600
FORMATS = {
    (): "turnout-charter-1",
    ("model",): "float32-le-1",
    ("model", "architecture"): "onnx-update-1",
    ("client",): "gradient-descent-1",
    ("messages", "enrolment"): "enrolment-1",
    ("messages", "head"): "turnout-head-1",
    ("messages", "record"): "record-1",
    ("messages", "request"): "turnout-request-1",
    ("messages", "update"): "int32-lattice-1",
}
FIELDS = {
    (): "charged charged_steps client coordinator_key delta expected_check_ins format messages "
    "minibatch model plan population scheme target timing",
    ("client",): "format learning_rate steps",
    ("messages",): "enrolment head record request update",
    ("messages", "update"): "clip_norm dimension format step",
    ("model",): "architecture digest features format",
    ("model", "architecture"): "artefact classes format vectors",
    ("model", "features"): "format input_shape",
    ("scheme",): "is participation randomizer relation release trust unit",
    ("timing",): "answer_seconds check_in_seconds compute_seconds step_seconds",
}


def spread(low, high):
    """Random number between two limits, which spreads the requests of devices over time."""
    return low + (high - low) * int.from_bytes(os.urandom(6), "big") / 2**48


def wait_until(moment):
    """Sleep until a time of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))


def charter_of(data, memory):
    """Charter, checked to be that of the invitation and to contain only known names."""
    require(
        sha256(data) == memory["task"],
        "the digest of the charter differs from that in the invitation",
    )
    document = json.loads(data)

    def at(place):
        found = document
        for name in place:
            found = found[name]
        return found

    # Unknown formats are refused: they could change what the device must do.
    for place, name in FORMATS.items():
        said = at(place).get("format")
        require(said == name, f"{'.'.join(place)} = {said!r}: expected {name!r}")
    # Unknown and missing fields are refused, too.
    for place, names in FIELDS.items():
        found = sorted(at(place))
        require(
            found == names.split(),
            f"{'.'.join(place) or 'the charter'} has the fields {found}: expected {names}",
        )
    features = at(("model", "features"))["format"]
    require(
        features in ("pixels-1", "standardized-1"),
        f"features = {features!r}: expected pixels-1 or standardized-1",
    )
    release = document["scheme"]["release"]["value"]
    require(release == "aggregated", f"release = {release!r}: expected aggregated")
    # The invitation, which the owner received directly, contains the same terms.
    for held, named in (
        (document["scheme"]["participation"], memory["law"]),
        (document["population"], memory["population"]),
        (document["coordinator_key"], memory["key"]),
    ):
        require(
            plain(held) == plain(named), "the charter and the invitation contain different terms"
        )
    return plain(document)


class Device:
    """One client, from its invitation to its last participation."""

    def __init__(self, invitation, memory, link, records):
        self.invitation, self.memory, self.link, self.records = invitation, memory, link, records
        self.failures, self.waited, self.due = 0, 0.0, None
        self.step_seconds = 60.0

    def run(self):
        """Run the device and return the outcomes of its participations."""
        data = self.patiently(lambda: self.link.get("/v1/charter", 1 << 26))
        self.charter = charter_of(data, self.memory.fields)
        timing = self.charter["timing"]
        self.step_seconds, self.seconds = timing["step_seconds"], timing["compute_seconds"]
        self.phase = timing["check_in_seconds"]
        self.gap = min(1.0, self.phase / 16)
        model = self.charter["model"]["architecture"]
        named = (model["artefact"], model["vectors"])
        artefacts = [self.patiently(lambda each=each: self.link.artefact(each)) for each in named]
        heard = time.monotonic()
        self.update = Update(self.charter, artefacts, *self.records)
        # That duration depends on the records, so the device enrols after a multiple of a fixed
        # time.
        unit = max(self.seconds, 1.0)
        times = math.ceil((time.monotonic() - heard) / unit)
        wait_until(heard + times * unit)
        self.patiently(self.enrol)
        while self.look():
            pass
        return Counter(self.memory.fields["answers"].values())

    def patiently(self, ask):
        """Answer of a request that is repeated until it is answered."""
        while True:
            try:
                said = ask()
            except UnreachableError as error:
                self.pause(error)
            else:
                self.failures, self.waited = 0, 0.0
                return said

    def pause(self, error=None):
        """Wait before a retry, longer each time."""
        shortest = min(0.5, self.step_seconds / 20)
        longest = min(30.0, self.step_seconds / 4, shortest * 2.0 ** min(self.failures, 30))
        seconds = spread(longest / 2, longest)
        self.failures += 1
        self.waited += seconds if error else 0
        require(self.waited < PATIENCE_SECONDS, f"the coordinator cannot be reached: {error}")
        time.sleep(seconds)

    def enrol(self):
        """Send the public key to the coordinator; a second request changes nothing."""
        fields = self.memory.fields
        if fields["enrolled"]:
            return
        body = {"client": fields["client"], "public_key": public_key(fields["private"])}
        body |= {"secret": self.invitation["secret"]}
        answer = self.link.post("/v1/enrolments", -1, canonical(body), "enrolment-1")
        require(answer == "accepted", f"the coordinator refuses the invitation: {answer}")
        fields["enrolled"] = True
        self.memory.keep()

    def look(self):
        """Act on the current step and sleep; return False if nothing remains to be done."""
        steps = self.charter["charged_steps"][-1]
        status = self.patiently(lambda: self.link.status(steps))
        fields, step = self.memory.fields, status["step"]
        if status["phase"] == "finished":
            self.memory.opened(steps, False)
            return False
        room = status["ends"] - self.phase / 8 - time.monotonic() - self.seconds - self.gap
        self.memory.opened(step, status["phase"] == "check-ins" and room >= 0)
        state = fields["slots"].get(str(step))
        if state == "checked in" or (state == "answered" and str(step) not in fields["answers"]):
            self.act(status)
            return True
        ahead = [int(name) for name, at in fields["slots"].items() if at == "waiting"]
        if not ahead:
            return False
        pause = status["seconds_to_next_step"] + (min(ahead) - step - 1) * self.step_seconds
        pause += spread(0, self.phase * 7 / 8 - self.seconds - self.gap) / 2
        time.sleep(min(pause, spread(0.5, 1.0) * RECHECK_SECONDS))
        return True

    def act(self, status):
        """Participate at the current step, with retries while no answer arrives."""
        head = int(status["head"].split(":")[0])
        settled = head == status["step"] == status["model_steps"]
        try:
            if settled and self.turn(status) != "early":
                self.failures, self.waited = 0, 0.0
            else:
                self.pause()
        except UnreachableError as error:
            self.pause(error)

    def turn(self, status):
        """Outcome of one participation: computed before its sending time, and sent at that time."""
        fields, name, ends = self.memory.fields, str(status["step"]), status["ends"]
        if fields["slots"][name] == "checked in":
            size, first = 4 * self.update.d, self.charter["model"]["digest"]
            model = self.link.model(status["step"], first, size)
            first, last = time.monotonic() + self.seconds + self.gap, ends - self.phase / 8
            if first > last:  # the network was too slow for the sending time
                self.memory.opened(status["step"], False)
                return "passed over"
            # The sending time is drawn and stored before the records are read.
            fields["slots"][name], fields["moments"][name] = "answered", ends - spread(first, last)
            self.memory.keep()
            begun = time.monotonic()
            body = computed(lambda: self.update.body(model), self.seconds)
            # Nothing after this line starts at a time that depends on the records.
            wait_until(begun + self.seconds)
            self.store(name, body)
        if self.due != name:
            self.wait(status)
        return self.send(status["step"])

    def store(self, name, body):
        """Store the body to be sent; the zero vector if there is no update."""
        if body is None or len(body) != 4 * self.update.d:
            body = bytes(4 * self.update.d)
        self.memory.fields["messages"][name] = body.hex()
        self.memory.keep()

    def wait(self, status):
        """Wait until the sending time; if it passed while the device was off, until a new one."""
        fields, name, ends = self.memory.fields, str(status["step"]), status["ends"]
        if name not in fields["messages"]:  # this process was ended while it computed
            self.store(name, None)
        moment, now = ends - fields["moments"][name], time.monotonic()
        if status["phase"] != "check-ins" or moment < now:
            moment = spread(now, max(now, ends - self.phase / 8))
            fields["moments"][name] = ends - moment
            self.memory.keep()
        wait_until(moment)
        self.due = name

    def send(self, step):
        """Outcome of sending the stored body; retries send the same bytes."""
        fields, name = self.memory.fields, str(step)
        body = bytes.fromhex(fields["messages"][name])
        answer = self.link.post(f"/v1/steps/{step}/updates", step, body, "int32-lattice-1")
        if answer != "early":
            fields["answers"][name] = answer
            del fields["messages"][name], fields["moments"][name]
            self.memory.keep()
        return answer


def records_of(path):
    """Inputs and labels of an .npz file."""
    with np.load(path, allow_pickle=False) as stored:
        inputs, labels = stored["inputs"], stored["labels"].astype(np.int64)
    require(
        inputs.ndim > 1 and len(inputs) == len(labels) > 0,
        "the file has no records, or not one label for each record",
        ValueError,
    )
    require(
        np.isfinite(inputs).all(), "the records contain a number that is not finite", ValueError
    )
    return inputs, labels


def main():
    """Run the device; exit code 0, 2 (arguments, records), 4 (state file) or 5 (coordinator)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    for name in ("--invitation", "--records", "--state"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    link = None
    try:
        # Arguments and records are checked before the first request.
        invitation = invitation_of(Path(given.invitation).read_text().strip())
        records = records_of(given.records)
        memory = Memory(given.state, invitation)
        link = Link(given.url, memory)
        tally = Device(invitation, memory, link, records).run()
    # Each kind of error has its exit code; a restored coordinator is shown its newest ledger head.
    except SetBackError as error:
        link.tell()
        return _ended(error, 5)
    except ProtocolError as error:
        return _ended(error, 5)
    except StateError as error:
        return _ended(error, 4)
    except (OSError, ValueError, KeyError) as error:
        return _ended(error, 2)
    ends = ", ".join(f"{count} {answer}" for answer, count in sorted(tally.items()))
    print(f"turns: {ends or 'none'}")
    return 0


def _ended(error, code):
    print(f"onnx-device: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
