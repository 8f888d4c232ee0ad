"""Words and numbers of the pages. Rounded to the safe side: ε up, what is left of it down.

Nothing here reads the operator's view; `supervision` does.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnout.reporting.words import certainty_in_words, kind_rows, rounded_down, rounded_up, sure
from turnout.schemes import PrivacyUnit, Relation, TrustModel
from turnout.service.dashboard.charts import Chart, epsilon_chart, quality_charts
from turnout.service.web.views import PublicView
from turnout.service.wire import Phase

_RULES = {
    "aggregated": "the noisy sum of all who came",
    "one-client": "the noisy update of one of those who came",
}
_PHASES = {
    Phase.CHECK_INS: "taking check-ins",
    Phase.ANSWERS: "waiting for the update that was asked for",
    Phase.CLOSED: "check-ins are over; the model comes at the end of the step",
    Phase.FINISHED: "all steps are over",
}


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar from 0 to 100, filled from ``begin`` up to ``share``."""

    share: float
    label: str
    start: str
    end: str
    begin: float = 0.0
    middle: str = ""


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """All that the public page shows.

    Attributes:
        state: running, finished or stopped; the last is any state that is not known here.
        schedule: what the step in progress does, in words.
        next_model: seconds to the next model; None where there is none to come.
        spent, left, target, delta: of ε and δ, as text.
        words: relation, unit and trust model: what kind of ε it is.
        latest: of the last evaluated model, (name, value) each.
        refresh: seconds between two looks.
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
    """Facts of the public page about a view."""
    finished = view.phase == Phase.FINISHED
    known = view.phase in list(Phase)
    spent, target = rounded_up(view.epsilon_spent), rounded_up(view.epsilon_target)
    return PublicFacts(
        view=view,
        state="finished" if finished else "running" if known else "stopped",
        schedule=_PHASES[Phase(view.phase)] if known else f"it reports “{view.phase}”",
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
    """δ as it was written where that is short, else rounded up."""
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
    """Upper bound on the posterior of the likelier world, from even odds."""
    share, label = 50.0, "what is still being worked out"
    if view.sure is not None:
        certainty = sure(max(view.sure))
        share, label = float(certainty.removesuffix(" %")), f"at most {certainty} sure"
    return Gauge(share, label, "0 %", "100 %, certain", 50.0, "50 %, chance")


def _guarantee(view: PublicView) -> str:
    """The guarantee of the whole plan, in a sentence."""
    if view.sure_in_all is None:
        return "How sure anybody can become about one client is still being worked out."
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
    """A release of a step, in words."""
    if view.trust_model == TrustModel.LOCAL.value:
        return "the sum of what all who came sent, each a message that it randomized itself"
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
