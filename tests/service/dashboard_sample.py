"""Sample views of a task, from a recorded run of the example digits."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from turnout.plans import example_plan
from turnout.service.storage.interface import LogEvent
from turnout.service.web.views import CurvePoint, OperatorView, PublicView, StepCount

FOLDER = Path(__file__).parent
PLAN = example_plan("digits")
HISTORY = json.loads((FOLDER / "dashboard_history.json").read_text())

STEPS, POPULATION = 300, 1437
EXPECTED = POPULATION / 10
SURE = ((0.9425, 0.9425), (0.97225, 0.97154))
"""Certainties of an observer during and after the run (`turnout account --explain`)."""


def public_view(released: int = 187, **changes: object) -> PublicView:
    """Public view of a task after ``released`` models."""
    finished = released == STEPS
    charged = tuple((step, epsilon) for step, _, _, epsilon in HISTORY["evaluations"][1:])
    view = PublicView(
        task=hashlib.sha256(b"task").hexdigest(),
        title="logistic on digits",
        plan=PLAN.read_text(),
        population=POPULATION,
        release="aggregated",
        relation="add-remove",
        unit="client",
        trust_model="central",
        step=released,
        steps=STEPS,
        phase="finished" if finished else "check-ins",
        seconds_left=0.0 if finished else 11.4,
        seconds_to_next_step=0.0 if finished else 26.4,
        step_seconds=60.0,
        released=released,
        head=f"{released}:{hashlib.sha256(bytes(released)).hexdigest()}",
        epsilon_spent=next((e for s, e in charged if s >= released), 0.0) if released else 0.0,
        epsilon_target=3.0,
        delta=1e-4,
        curve=tuple(
            CurvePoint(step, epsilon, accuracy, loss)
            for step, accuracy, loss, epsilon in HISTORY["evaluations"]
            if step <= released
        ),
        charged=charged,
        sure=SURE[released == STEPS] if released else (0.5, 0.5),
        sure_in_all=SURE[True],
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def operator_view(released: int = 187, **changes: object) -> OperatorView:
    """Operator's view of a task after ``released`` models."""
    start = 1_790_000_000.0
    came = HISTORY["check_ins"][:released]
    view = OperatorView(
        public=public_view(released),
        invited=1437,
        enrolled=1431,
        arrived=118,
        arrived_expected=EXPECTED,
        counts=tuple(StepCount(i, n, n, EXPECTED) for i, n in enumerate(came)),
        waiting_jobs=3,
        waiting_bytes=7_812,
        events=(
            LogEvent(start, "info", "the task was founded"),
            LogEvent(start + 40, "info", "1437 invitations were handed out"),
            LogEvent(start + 310, "info", "the coordinator is ready at step 0"),
            LogEvent(start + 6_700, "info", "the coordinator was asked to stop"),
            LogEvent(start + 6_702, "info", "all that was accepted is stored; stopped"),
            LogEvent(start + 6_731, "info", "the coordinator is ready at step 105"),
            LogEvent(start + 9_120, "warning", "the queue was full: 4 requests were put off"),
        ),
    )
    return replace(view, **changes)  # type: ignore[arg-type]


class FakeViews:
    """Views set by a test; a request with the cookie ``session=yes`` is the operator's."""

    def __init__(self, operator: OperatorView | None = None) -> None:
        self.view = operator or operator_view()
        self.asked_for_operator = 0
        self.busy = False

    async def public(self) -> PublicView:
        if self.busy:
            raise HTTPException(503, "too much is waiting")
        return self.view.public

    async def operator(self) -> OperatorView:
        self.asked_for_operator += 1
        return self.view

    async def is_operator(self, request: Request) -> bool:
        return request.cookies.get("session") == "yes"


class Seen(HTMLParser):
    """Elements, attributes and text of an HTML page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.text = re.sub(r"\s+", " ", self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
