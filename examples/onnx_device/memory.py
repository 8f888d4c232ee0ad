"""State file of the device: synced before each request, locked by one process, drawn once."""

import fcntl
import json
import os
from pathlib import Path

from draws import steps_of
from texts import canonical, new_key, plain, sha256

FORMAT = "onnx-device-memory-1"


class StateError(Exception):
    """The state file is damaged, in use, that of another client, or cannot be written."""


class Memory:
    """State file of one device, with its contents in ``fields``."""

    def __init__(self, path, invitation):
        self.path = Path(path)
        self._lock = open(f"{path}.lock", "w")  # noqa: SIM115 - held until the process ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateError(f"{path} is used by another process") from None
        whose = {name: invitation[name] for name in ("task", "key", "client", "population", "law")}
        if self.path.exists():
            self.fields = self._read()
            if any(self.fields[name] != value for name, value in whose.items()):
                raise StateError(f"{path} is the state file of another task or client")
            return
        drawn = steps_of(plain(invitation["law"]), invitation["client"])
        slots = {str(step): "waiting" for step in drawn}
        self.fields = {**whose, "private": new_key(), "slots": slots, "moments": {}}
        self.fields |= {"messages": {}, "answers": {}, "enrolled": False, "head": ""}
        self.keep()

    def _read(self):
        try:
            fields = json.loads(self.path.read_text())
            digest = fields.pop("digest")
            if fields.pop("format") == FORMAT and digest == sha256(canonical(fields)):
                return fields
        except (ValueError, KeyError, AttributeError):
            pass
        raise StateError(f"{self.path} is damaged; this device cannot participate any more")

    def keep(self):
        """Store the state durably: write a new file, sync, rename, and sync the folder."""
        whole = {**self.fields, "format": FORMAT, "digest": sha256(canonical(self.fields))}
        beside = self.path.with_name(self.path.name + ".new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            json.dump(whole, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)
        folder = os.open(self.path.resolve().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def opened(self, step, takes):
        """Update every drawn step for the current step and for whether it accepts updates."""
        slots, before = self.fields["slots"], dict(self.fields["slots"])
        for name, state in before.items():
            over = int(name) < step or (int(name) == step and not takes)
            if over and state in ("waiting", "checked in"):
                slots[name] = "missed" if state == "waiting" else "passed over"
            elif int(name) == step and state == "waiting":
                slots[name] = "checked in"
        if slots != before:
            for held in (self.fields["messages"], self.fields["moments"]):
                for name in [name for name in held if int(name) < step]:
                    del held[name]
            self.keep()
