"""The fake coordinator on a real socket, for commands that start their own processes."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from fake_coordinator import FakeCoordinator

from turnout.service.device import Memory


class ServedFake:
    """Context manager of a coordinator without clock, whose step ends after its participants.

    A step ends when every device that drew the step has stored a receipt for it.

    Args:
        charter: charter of the task.
        devices: number of devices that must enrol before the first step.
        folder: folder of the devices' state files.
        absent: devices that the coordinator does not wait for.

    Attributes:
        gone: whether the coordinator closes every connection, as if it had ended.
    """

    def __init__(self, charter, devices, folder, absent=()):
        self._devices, self._folder, self._absent = devices, folder, absent
        self._lock = threading.Lock()
        self.gone = False
        self.coordinator = FakeCoordinator(charter, self._now)

    def _memories(self):
        """States of all devices that the coordinator waits for."""
        memories = [Memory.decoded(path.read_bytes()) for path in self._folder.glob("*.json")]
        return [memory for memory in memories if memory.client not in self._absent]

    def drawn(self):
        """(client, step) of all devices that the coordinator waits for."""
        return {(each.client, step) for each in self._memories() for step in each.participant.slots}

    def _now(self):
        charter = self.coordinator.charter
        if len(self.coordinator.keys) < self._devices:
            return 0.0
        # A device retries after a lost receipt, as long as the step lasts.
        slots = [set(each.participant.slots) - set(each.answers) for each in self._memories()]
        step = min((step for missing in slots for step in missing), default=charter.steps)
        return (step + 0.01) * charter.timing.step_seconds

    def __enter__(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def _serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                place = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                if outer.gone:
                    self.close_connection = True
                    return
                with outer._lock:
                    status, answer = outer.coordinator.answer(
                        self.command, place.path, dict(parse_qsl(place.query)), headers, body
                    )
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        class Server(ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                """Ignore a closed connection; print other errors, which the tests detect."""
                if not isinstance(sys.exception(), ConnectionError):
                    super().handle_error(request, client_address)

        Handler.do_GET = Handler.do_POST = Handler._serve
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class MomentsNoted:
    """Actions of an example device before it sent its update, from its state file.

    Attributes:
        waited: step → seconds from downloading the model to the update.
        stored: step → whether sending time and update were in the state file when the update
            arrived.
    """

    def __init__(self, coordinator, state):
        self._coordinator, self._state, self._fetched = coordinator, state, {}
        self.waited, self.stored = {}, {}
        coordinator.on_request = self._note

    def _note(self, method, path, headers, body):
        parts = path.split("/")
        if parts[2] == "models":
            self._fetched[parts[3]] = time.monotonic()
        elif parts[-1] == "updates":
            fields, step = json.loads(self._state.read_text()), parts[3]
            kept = fields["messages"].get(step) == body.hex() and step in fields["moments"]
            self.stored[int(step)] = kept and fields["slots"][step] == "answered"
            self.waited[int(step)] = time.monotonic() - self._fetched[step]
