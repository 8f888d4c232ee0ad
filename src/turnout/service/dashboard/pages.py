"""HTML of the dashboard's pages, and the values that the pages show.

`public_page` shows `PublicFacts`; `operator_page` also shows `OperatorFacts`: check-ins, enrolled
clients, queue, log and warnings. `mounting` serves both. Spent ε is rounded up, and the remaining
budget is rounded down. The public page is made from the public view alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2

from turnout._version import __version__
from turnout.participation.drawing import is_far_below
from turnout.reporting.words import certainty_in_words, kind_rows, rounded_down, rounded_up, sure
from turnout.schemes import PrivacyUnit, Relation, TrustModel
from turnout.service.contract.wire import StepPhase
from turnout.service.dashboard.charts import (
    Chart,
    band,
    check_in_chart,
    epsilon_chart,
    quality_charts,
)
from turnout.service.storage.interface import LogEvent

if TYPE_CHECKING:
    from turnout.service.web.views import OperatorView, PublicView

_RULES = {
    "aggregated": "the noisy sum of all updates",
    "one-client": "the noisy update of one client of those that checked in",
}
_PHASES = {
    StepPhase.CHECK_INS: "accepting check-ins",
    StepPhase.ANSWERS: "waiting for the requested update",
    StepPhase.CLOSED: "check-ins are over; the model is released at the end of the step",
    StepPhase.FINISHED: "all steps are over",
}


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar from 0 to 100, filled from `begin` to `share`, with a text at each end."""

    share: float
    label: str
    start: str
    end: str
    begin: float = 0.0
    middle: str = ""


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """Values of the public page.

    Attributes:
        view: the public view.
        state: "running", "finished" or "stopped"; an unknown phase counts as "stopped".
        schedule: the phase of the step in progress, as text.
        next_model: seconds to the next model; None if no model follows.
        progress: bar of released models.
        privacy: bar of spent ε.
        accuracy: bar of the bound on membership inference.
        spent: ε spent, rounded up.
        left: ε left, rounded down.
        target: ε allowed, rounded up.
        delta: δ.
        words: relation, unit, trust model and δ, as (name, value).
        guarantee: the guarantee of the whole plan, in a sentence.
        latest: results of the last evaluated model, as (name, value).
        terms: terms of the task, as (name, value).
        head_digest: digest of the ledger head.
        charts: charts of ε, accuracy and loss.
        refresh: seconds between two refreshes.
    """

    view: PublicView
    state: str
    schedule: str
    next_model: float | None
    progress: Gauge
    privacy: Gauge
    accuracy: Gauge
    spent: str
    left: str
    target: str
    delta: str
    words: tuple[tuple[str, str], ...]
    guarantee: str
    latest: tuple[tuple[str, str], ...]
    terms: tuple[tuple[str, str], ...]
    head_digest: str
    charts: tuple[Chart, ...]
    refresh: int


def public_facts(view: PublicView) -> PublicFacts:
    """Values that the public page shows for a view."""
    # The state of the run, and ε rounded up; an unknown phase is shown by its name.
    finished = view.phase == StepPhase.FINISHED
    known = view.phase in list(StepPhase)
    spent, target = rounded_up(view.epsilon_spent), rounded_up(view.epsilon_target)
    return PublicFacts(
        view=view,
        state="finished" if finished else "running" if known else "stopped",
        schedule=_PHASES[StepPhase(view.phase)] if known else f"it reports “{view.phase}”",
        next_model=None if finished or not known else max(0.0, view.seconds_to_next_step),
        progress=_progress(view),
        privacy=_privacy(view),
        accuracy=_accuracy(view),
        spent=spent,
        left=rounded_down(max(0.0, view.epsilon_target - view.epsilon_spent)),
        target=target,
        delta=_delta(view),
        words=_words(view),
        guarantee=_guarantee(view),
        latest=_latest(view),
        terms=_terms(view),
        head_digest=view.head.partition(":")[2],
        charts=(epsilon_chart(view), *quality_charts(view)),
        refresh=max(1, min(10, int(view.step_seconds / 4))),
    )


def _delta(view: PublicView) -> str:
    """Text of δ: the full number if it is short, a number rounded up otherwise."""
    short = f"{view.delta:g}"
    return short if float(short) == view.delta else rounded_up(view.delta)


def _progress(view: PublicView) -> Gauge:
    label = f"{view.released:,} of {view.steps:,} models released"
    return Gauge(100 * view.released / view.steps, label, "0", f"{view.steps:,}")


def _privacy(view: PublicView) -> Gauge:
    share = min(100.0, 100 * view.epsilon_spent / view.epsilon_target)
    label = f"ε {rounded_up(view.epsilon_spent)} spent of {rounded_up(view.epsilon_target)}"
    return Gauge(share, label, "0", f"{rounded_up(view.epsilon_target)} allowed")


def _accuracy(view: PublicView) -> Gauge:
    """Bar of the upper bound on an attacker's certainty, from a prior of 50 %."""
    share, label = 50.0, "a value that is still being computed"
    if view.sure is not None:
        certainty = sure(max(view.sure))
        share, label = float(certainty.removesuffix(" %")), f"at most {certainty} sure"
    return Gauge(share, label, "0 %", "100 %, certain", 50.0, "50 %, chance")


def _guarantee(view: PublicView) -> str:
    """The guarantee of the whole plan, in a sentence."""
    if view.sure_in_all is None:
        return "The bound on an attacker's certainty about one client is still being computed."
    trust = TrustModel(view.trust_model)
    return certainty_in_words(
        view.sure_in_all, view.delta, Relation(view.relation), PrivacyUnit(view.unit), trust
    )


def _words(view: PublicView) -> tuple[tuple[str, str], ...]:
    return (
        ("relation", view.relation),
        ("unit", view.unit),
        ("trust", view.trust_model),
        ("δ", _delta(view)),
    )


def _latest(view: PublicView) -> tuple[tuple[str, str], ...]:
    if not view.curve:
        return ()
    last = view.curve[-1]
    accuracy = "not a number" if last.accuracy is None else f"{last.accuracy:.2%}"
    loss = "not a number" if last.loss is None else f"{last.loss:.4f}"
    return (("accuracy", accuracy), ("loss", loss), ("after releases", f"{last.steps:,}"))


def _rule(view: PublicView) -> str:
    """Text that states what a step releases."""
    if view.trust_model == TrustModel.LOCAL.value:
        return "the sum of all messages, each randomized on its device"
    return _RULES[view.release]


def _terms(view: PublicView) -> tuple[tuple[str, str], ...]:
    kinds = kind_rows(Relation(view.relation), PrivacyUnit(view.unit), TrustModel(view.trust_model))
    return (
        ("Task", view.task),
        ("Clients n", f"{view.population:,}; n counts honest devices"),
        ("A step releases", f"{view.release}: {_rule(view)}"),
        ("A step lasts", f"{view.step_seconds:g} s"),
        *((name.capitalize(), value) for name, value in kinds),
        ("ε allowed", rounded_up(view.epsilon_target)),
        ("δ", _delta(view)),
    )


RECENT = 20
"""Number of the newest published steps that the warnings examine."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log."""

    at: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """Values that the operator's page shows in addition to the values of the public page."""

    figures: tuple[tuple[str, str, str], ...]
    warnings: tuple[str, ...]
    chart: Chart
    log: tuple[Line, ...]


def operator_facts(view: OperatorView) -> OperatorFacts:
    """Values that the operator's page shows for a view in addition to `public_facts`."""
    return OperatorFacts(
        figures=_figures(view),
        warnings=tuple(_warnings(view)),
        chart=check_in_chart(view),
        log=tuple(_line(event) for event in reversed(view.events)),
    )


def _figures(view: OperatorView) -> tuple[tuple[str, str, str], ...]:
    """Figures about devices and storage, as (name, value, note)."""
    came = sum(count.checked_in for count in view.counts)
    expected = sum(count.expected for count in view.counts)
    return (
        ("Enrolled", f"{view.enrolled:,}", f"of {view.invited:,} invited"),
        (
            "Check-ins of this step",
            f"{view.arrived:,}",
            f"so far; {view.arrived_expected:,.1f} expected",
        ),
        ("Check-ins in total", f"{came:,}", f"{expected:,.0f} expected in published steps"),
        ("Waiting for a commit", f"{view.waiting_jobs:,}", f"{size(view.waiting_bytes)} in memory"),
    )


def _warnings(view: OperatorView) -> list[str]:
    """Warnings, the most severe first."""
    recent, population = view.counts[-RECENT:], view.public.population
    found = []
    # Errors of the coordinator.
    errors = sum(event.level == "error" for event in view.events)
    if errors:
        found.append(f"The log has {errors:,} error{'s' * (errors > 1)}.")
    # Check-ins of the whole block far below their expectation: a shortage that no chance explains.
    block = view.counts[-view.block :] if view.block else ()
    came, awaited = (sum(c.checked_in for c in block), sum(c.expected for c in block))
    if is_far_below(came, awaited, view.block_variance):
        found.append(
            f"Turnout is far below its expectation: {came:,} of {awaited:,.0f} expected check-ins "
            f"in the last {len(block)} steps. Devices are missing, or steps are too short for them."
        )
    # Single steps outside their band, without check-ins, or without the requested update.
    strayed = [c for c in recent if not band(c.expected, population).holds(c.checked_in)]
    if strayed:
        last = strayed[-1]
        expected = band(last.expected, population)
        found.append(
            f"{len(strayed)} of the last {len(recent)} steps lie outside the band, most recently "
            f"step {last.step}: {last.checked_in:,} check-ins, where {expected.low:,.1f} to "
            f"{expected.high:,.1f} are expected."
        )
    empty = [c for c in recent if c.checked_in == 0]
    if empty:
        found.append(f"No device checked in, in {len(empty)} of the last {len(recent)} steps.")
    silent = [c for c in recent if c.checked_in and not c.served]
    if silent and view.public.release == "one-client":
        found.append(
            f"In {len(silent)} of the last {len(recent)} steps the chosen device did not send its "
            "update."
        )
    # Clients that the expectation includes, and models that cannot be evaluated.
    if view.enrolled < population:
        found.append(
            f"{view.enrolled:,} of the plan's {population:,} clients are enrolled; the "
            "expectation includes all of them."
        )
    if any(point.loss is None or point.accuracy is None for point in view.public.curve):
        found.append("An evaluation of the model is not a number.")
    return found


def _line(event: LogEvent) -> Line:
    at = datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return Line(at, event.level, event.text)


def size(octets: int) -> str:
    """Text of a size in bytes, in kB or MB.

    >>> size(0), size(53_000), size(2_500_000)
    ('0 kB', '53 kB', '2.5 MB')
    """
    return f"{octets / 1e6:.1f} MB" if octets >= 1_000_000 else f"{octets / 1e3:.0f} kB"


STATIC = "/static"
"""URL path of the static files."""

_PACKAGE = "turnout.service.dashboard"


def public_page(view: PublicView, *, fragment: bool = False) -> str:
    """HTML of the public page; with ``fragment`` only the part that is refreshed."""
    template = "public_live.html" if fragment else "public.html"
    return _rendered(template, facts=public_facts(view))


def operator_page(view: OperatorView, token: str, *, fragment: bool = False) -> str:
    """HTML of the operator's page; ``token`` is the anti-forgery token of the logout form."""
    template = "operator_live.html" if fragment else "operator.html"
    facts = public_facts(view.public)
    return _rendered(template, facts=facts, more=operator_facts(view), token=token)


def login_page(token: str, *, refused: bool = False) -> str:
    """HTML of the login page; ``refused`` adds that the password was wrong."""
    return _rendered("login.html", token=token, refused=refused)


def _rendered(template: str, **context: Any) -> str:
    return _environment().get_template(template).render(version=__version__, **context)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.globals["asset"] = _asset
    return environment


@lru_cache
def _asset(name: str) -> str:
    """URL of a static file, with a digest of its contents."""
    data = resources.files(_PACKAGE).joinpath("static", *name.split("/")).read_bytes()
    return f"{STATIC}/{name}?v={hashlib.sha256(data).hexdigest()[:12]}"
