"""Devices in JavaScript, and helpers that run them in tests."""

import json
import os
import subprocess
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

from forked import HANGS_SECONDS
from installed import program
from paced import DevicesClock, Slots

from turnout.service.web import server

FOLDER = Path(__file__).parents[2] / "examples" / "node-device"
KILLER = Path(__file__).with_name("killed_at_a_write.mjs")


def node() -> str:
    """Path of Node.js; the test is skipped if Node.js is not installed."""
    return program("node")


def records_file(path, inputs, labels):
    """Write the records of one client as a device in JavaScript reads them."""
    lines = [
        json.dumps({"input": x.tolist(), "label": int(y)})
        for x, y in zip(inputs, labels, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def device(url, token, records, state, **environment):
    """Running device process; its invitation is in a file next to its state file."""
    invitation = state.with_suffix(".invitation")
    invitation.write_text(token)
    options = ["--invitation", invitation, "--records", records, "--state", state]
    program = [node(), "--import", KILLER, FOLDER / "device.mjs", url, *options]
    return subprocess.Popen(
        [str(part) for part in program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def ended(process):
    """Exit code, stdout and stderr of a device process."""
    out, error = process.communicate(timeout=HANGS_SECONDS)
    return process.returncode, out, error


def memory(path):
    """State of a device in JavaScript, as far as clocks and tests need it."""
    fields = json.loads(path.read_bytes())
    slots = {int(step): state for step, state in fields["slots"].items()}
    answers = {int(step): answer for step, answer in fields["answers"].items()}
    participant = SimpleNamespace(slots=slots)
    return SimpleNamespace(client=fields["client"], participant=participant, answers=answers)


class AnySlots(Slots):
    """Drawn steps of devices in Python and in JavaScript, from state files in one folder."""

    def of_step(self, step):
        """Map from client to its participation, for all clients that drew a step."""
        found = {}
        for path in self._folder.glob("*.json"):
            fields = json.loads(path.read_bytes())
            if "state" in fields:
                turns = {turn["slot"]: turn for turn in fields["state"]["turns"]}
                client = fields["state"]["client"]
            else:
                one = memory(path)
                client, turns = (
                    one.client,
                    {
                        slot: {"state": state, "answer": one.answers.get(slot)}
                        for slot, state in one.participant.slots.items()
                    },
                )
            if step in turns:
                found[client] = turns[step]
        return found


def by_any_devices(states, left):
    """Let the coordinator of this process end phases according to the state files in a folder."""
    opened = server._open_running

    def paced(*arguments):
        running = opened(*arguments)
        running.clock = DevicesClock(running, AnySlots(states), left)
        return running

    server._open_running = paced


class Recorder:
    """Context manager between devices and a coordinator that records requests and answers.

    Attributes:
        updates: (client, step) → every body that was sent.
        models: steps → parameters.
        statuses: HTTP statuses of the answers to updates.
    """

    def __init__(self, port):
        outer, self.updates, self.models, self.statuses = self, {}, {}, []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def _passed(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                there = HTTPConnection("127.0.0.1", port, timeout=HANGS_SECONDS)
                headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                there.request(self.command, self.path, body, headers)
                answer = there.getresponse()
                data = answer.read()
                there.close()
                outer._keep(self, body, answer.status, data)
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        Handler.do_GET = Handler.do_POST = Handler._passed
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _keep(self, request, body, status, data):
        parts = request.path.split("/")
        if request.path.endswith("/updates"):
            key = int(request.headers["Turnout-Client"]), int(parts[3])
            self.updates.setdefault(key, []).append(body)
            self.statuses.append(status)
        elif request.path.startswith("/v1/models/") and status == 200:
            self.models[int(parts[3])] = data

    def __enter__(self):
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
