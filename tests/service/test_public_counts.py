"""No public answer depends on the number of participating devices."""

from __future__ import annotations

import asyncio
import re

import numpy as np
from web_world import PASSWORD, world

OPERATORS = {"Authorization": f"Bearer {PASSWORD}"}
OURS = re.compile(r"^/(operator|metrics)")


async def answers(folder, came: int, public: bool) -> dict[str, bytes]:
    """Answers of every readable route after two steps, the first with ``came`` devices.

    Updates and noise are zero, so models do not depend on participation, and all other differences
    are counts.
    """
    async with world(folder, noise=lambda _deviation, size: np.zeros(size, np.int64)) as w:
        waiting = iter(range(20))  # no client participates twice
        for step, devices in enumerate((came, came // 2, came // 3)):
            for _, client in zip(range(devices), waiting, strict=False):
                assert (await w.update(client, step, value=0)).status_code == 200
            if step < 2:  # the last one stays open
                await w.step_over()
        await w.running.public()
        w.running.terms.certainties.settle()
        w.running._views.clear()
        paths = {
            route.path.replace("{steps}", "1")
            for route in w.app.routes
            if "GET" in (getattr(route, "methods", None) or ())
        }
        asked = [p for p in sorted(paths) if bool(OURS.search(p)) is not public and "{" not in p]
        found = {
            path: await w.http.get(path, headers={} if public else OPERATORS) for path in asked
        }
        return {path: answer.content for path, answer in found.items() if answer.status_code == 200}


def test_public_answers_do_not_depend_on_participation(tmp_path):
    few, many = (tmp_path / "few", tmp_path / "many")
    few.mkdir()
    many.mkdir()
    with_few = asyncio.run(answers(few, 2, public=True))
    assert {"/", "/public/summary.json", "/v1/status", "/v1/charter", "/v1/records"} <= {*with_few}
    assert "/v1/models/1" in with_few
    assert asyncio.run(answers(many, 11, public=True)) == with_few


def test_operator_answers_depend_on_participation(tmp_path):
    """Negative control: the operator's answers contain the counts."""
    few, many = (tmp_path / "few", tmp_path / "many")
    few.mkdir()
    many.mkdir()
    ours = asyncio.run(answers(few, 2, public=False))
    assert {"/operator", "/operator/summary.json", "/metrics"} <= {*ours}
    others = asyncio.run(answers(many, 11, public=False))
    assert all(ours[path] != others[path] for path in ("/operator", "/operator/summary.json"))
    assert b'"checked_in":11' in others["/operator/summary.json"]
