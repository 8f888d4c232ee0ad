"""Messages over HTTP: invalid messages are refused and never summed."""

import asyncio
import hashlib
from dataclasses import replace

import numpy as np
from fake_coordinator import charter_of
from web_world import PLAN, signed, world

from turnout.randomizers.vectors import LInfRandomizer
from turnout.randomness import OSRandomness
from turnout.schemes import CheckIn
from turnout.service.contract.wire import WireReceipt, dummy_traffic_path, updates_path
from turnout.service.web.app import document

DIMENSION = 5
RANDOMIZER = LInfRandomizer(DIMENSION, 2.0, 0.5)
CHARTER = replace(
    charter_of(CheckIn(3, 2), dimension=DIMENSION, population=40, messages=RANDOMIZER),
    initial_model=hashlib.sha256(bytes(4 * DIMENSION)).digest(),
    plan=PLAN,
)
FORMAT, UPDATES = "sampled-bit-1", updates_path(0)


def message(bit):
    """Body of a message that consists of coordinate 2 and its bit."""
    return bytes([2 * 2 + bit])


async def post(w, client, body, *, path=UPDATES, named=FORMAT):
    headers = signed(w.task, path, client, body, format=named)
    return await w.http.post(path, content=body, headers=headers)


def test_valid_messages_are_summed_and_invalid_ones_refused(tmp_path):
    async def main():
        async with world(tmp_path, charter=CHARTER) as w:
            receipt = await post(w, 1, message(1))
            assert receipt.status_code == 200
            assert (
                WireReceipt.decoded(receipt.content).digest == hashlib.sha256(message(1)).digest()
            )
            assert (await post(w, 1, message(1))).content == receipt.content
            assert (await post(w, 1, message(0))).status_code == 409  # a second message
            refused = {
                "nothing": (b"", 422),
                "one byte more": (message(1) + b"\0", 413),
                "a symbol out of range": (bytes([2 * DIMENSION]), 422),
                "bits behind the message": (bytes([0x10]), 422),
            }
            for why, (body, status) in refused.items():
                assert (await post(w, 2, body)).status_code == status, why
            for named in ("int32-lattice-1", "seeded-code-1", "sampled-bit-2"):
                assert (await post(w, 2, message(1), named=named)).status_code == 422
            assert (await post(w, 2, message(1))).status_code == 200  # nothing was stored
            assert (await post(w, 3, b"\x07", path=dummy_traffic_path(0))).status_code == 200
            await w.step_over()
            with w.running.storage.snapshot() as view:
                release = view.release_at(0)
            total = RANDOMIZER.mean(RANDOMIZER.total(np.array([[5], [5]])), 1)
            digest = hashlib.sha256(total.astype("<f8").tobytes()).digest()
            assert (release.record.sum_digest, release.served) == (digest, 2)
            moved = np.frombuffer(release.parameters, "<f4")
            assert np.flatnonzero(moved).tolist() == [2]

    asyncio.run(main())


def test_the_openapi_document_contains_length_and_format_of_messages():
    path = document(CHARTER)["paths"]["/v1/steps/{step}/updates"]["post"]
    (schema,) = (each["schema"] for each in path["requestBody"]["content"].values())
    assert (schema["minLength"], schema["maxLength"]) == (1, 1)
    patterns = {p["name"]: p["schema"].get("pattern") for p in path["parameters"]}
    assert patterns["Turnout-Format"] == f"^{FORMAT}$"


def test_every_packed_message_is_accepted(tmp_path):
    async def main():
        async with world(tmp_path, charter=CHARTER) as w:
            source, update = OSRandomness(), np.linspace(-1, 1, DIMENSION)
            bodies = [CHARTER.encoding.packed(update, source) for _ in range(10)]
            answers = [await post(w, client, body) for client, body in enumerate(bodies)]
            assert {answer.status_code for answer in answers} == {200}

    asyncio.run(main())
