"""Create a task's database with the turnout on PYTHONPATH, and print what signing a request needs.

PYTHONPATH=src python benchmarks/service/new_tasks.py DB POPULATION BYTES STEPS SECONDS STORED

Earlier revisions have some names in other modules: `imported` finds them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import import_module
from typing import Any

PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "check-in"
window = {steps}
windows = 1
[privacy]
relation = "add-remove"
noise_multiplier = 1.0
delta = 1e-6
[optimizer]
learning_rate = 1.0
"""
DEVICE_SEED = hashlib.sha256(b"device").digest()
"""Seed of the one key that all clients have."""

_AT_ONCE = 1000


def update_of(client: int, size: int) -> bytes:
    """One of 64 different small updates."""
    import numpy as np

    return np.random.default_rng(client % 64).integers(-3, 4, size // 4, dtype="<i4").tobytes()


def imported(*places: str) -> Any:
    """Object at the first of these places that exists, each ``module:name``."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(import_module(f"turnout.{module}"), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"This revision has none of the objects {', '.join(places)}")


def main() -> None:
    """Create a task and print its name, the length of an update and the format of requests."""
    url, *numbers = sys.argv[1:]
    population, size, steps, seconds, stored = map(int, numbers)
    charter, key = _charter(population, size // 4, steps, float(seconds))
    _store(url, charter, key, population, stored)
    request_format = imported("service.contract.wire:REQUEST_FORMAT", "service.wire:REQUEST_FORMAT")
    made = {"task": charter.task, "size": charter.encoding.encoded_size}
    print(json.dumps(made | {"request_format": request_format}))


def _signing_key(private: bytes) -> Any:
    """Signing key derived from a seed."""
    places = ("service.contract.ledger:SigningKey", "service.signatures:SigningKey")
    return imported(*places)(private)


def _charter(population: int, dimension: int, steps: int, seconds: float):
    """Charter of a task, and the coordinator's key."""
    from turnout.protocol.lattice import Lattice

    # Earlier revisions have these names in other modules.
    names = ("CheckIn", "GaussianNoise", "Relation", "ReleaseRule", "Scheme")
    CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme = (
        imported(f"schemes:{name}", f"spec:{name}") for name in names
    )
    places = ("service.contract.charter", "service.charter")
    timing = imported(*(f"{place}:Timing" for place in places))
    key = _signing_key(bytes(32))
    # Terms of a task with one long window, whose steps have the given length.
    charter = imported(*(f"{place}:Charter" for place in places))(
        plan=PLAN.format(steps=steps),
        population=population,
        scheme=Scheme(
            GaussianNoise(1.0), CheckIn(steps, 1), Relation.ADD_REMOVE, ReleaseRule.AGGREGATED
        ),
        delta=1e-6,
        target=10.0,
        charged_steps=(steps,),
        charged=(9.0,),
        encoding=Lattice.for_noise(1.0, 1.0, dimension),
        expected_check_ins=100.0,
        minibatch=1,
        initial_model=hashlib.sha256(bytes(4 * dimension)).digest(),
        timing=timing(seconds, 0.95 * seconds, 0.01 * seconds),
        coordinator_key=key.public,
    )
    return charter, key


def _store(url: str, charter, key, population: int, stored: int) -> None:
    """Create the task, enrol all clients and store the first updates."""
    from turnout.service.storage.opening import open_storage

    device, size = _signing_key(DEVICE_SEED), charter.encoding.encoded_size
    storage = open_storage(url, serving=True)
    with storage.transaction() as tx:
        tx.create_task(charter.canonical(), key.private, bytes(size))
        tx.invite([hashlib.sha256(b"%d" % client).digest() for client in range(population)])
        for client in range(population):
            tx.enrol(client, device.public)
    for first in range(0, stored, _AT_ONCE):
        with storage.transaction() as tx:
            for client in range(first, min(first + _AT_ONCE, stored)):
                body = update_of(client, size)
                digest = hashlib.sha256(body).digest()
                _check_in(tx, client, digest, body)
    storage.close()


def _check_in(tx, client: int, digest: bytes, body: bytes) -> None:
    """Store a check-in at step 0."""
    module = "service.storage.interface"
    row = imported(f"{module}:ParticipationRow", f"{module}:Participation")
    tx.check_in(row(client, 0, digest), body, 1)


if __name__ == "__main__":
    main()
