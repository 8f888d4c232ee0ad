"""Makes a task's database with the turnout that PYTHONPATH names, and prints what signs need.

PYTHONPATH=src python benchmarks/service/new_tasks.py DB POPULATION BYTES STEPS SECONDS STORED
"""

from __future__ import annotations

import hashlib
import json
import sys

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
"""All clients here have one key."""

_AT_ONCE = 1000


def update_of(client: int, size: int) -> bytes:
    """A small update; 64 different ones."""
    import numpy as np

    return np.random.default_rng(client % 64).integers(-3, 4, size // 4, dtype="<i4").tobytes()


def main() -> None:
    """Found one."""
    url, *numbers = sys.argv[1:]
    population, size, steps, seconds, stored = map(int, numbers)
    charter, key = _charter(population, size // 4, steps, float(seconds))
    _store(url, charter, key, population, stored)
    print(json.dumps({"task": charter.task, "size": charter.encoding.encoded_size}))


def _charter(population: int, dimension: int, steps: int, seconds: float):
    from turnout.protocol.lattice import Lattice
    from turnout.schemes import CheckIn, GaussianNoise, Relation, ReleaseRule, Scheme
    from turnout.service.contract.charter import Charter, Timing
    from turnout.service.contract.ledger import SigningKey

    key = SigningKey(bytes(32))
    charter = Charter(
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
        timing=Timing(seconds, 0.95 * seconds, 0.01 * seconds),
        coordinator_key=key.public,
    )
    return charter, key


def _store(url: str, charter, key, population: int, stored: int) -> None:
    from turnout.service.contract.ledger import SigningKey
    from turnout.service.storage.opening import open_storage

    device, size = SigningKey(DEVICE_SEED), charter.encoding.encoded_size
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
    """A check-in at step 0, in this version's way or in the one before."""
    from turnout.service.storage.interface import Participation

    if "block" in Participation.__dataclass_fields__:
        tx.check_in(Participation(client, 0, 0, 0, digest), body)
    else:
        tx.check_in(Participation(client, 0, digest), body, 1)


if __name__ == "__main__":
    main()
