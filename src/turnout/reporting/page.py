"""Report of a run as a self-contained HTML page, without scripts and without requests.

`page` returns the report of a run, `counts_page` the simulator's view: exact counts, which only a
simulation knows. Both pages have a light and a dark form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jinja2

from turnout._version import __version__
from turnout.core.errors import NumericalError
from turnout.reporting.summary import (
    PERSONAL_METRICS,
    SIMULATORS_VIEW,
    Summary,
    TraceFindings,
    baseline_words,
    protection_words,
    settings_words,
    test_words,
)
from turnout.reporting.words import (
    PERSONAL,
    RELATIONS,
    TRUST,
    certainty_in_words,
    guarantee_rows,
    of_unit,
    rounded_up,
)
from turnout.schemes.participation.availability_check_in import costliest_clients

if TYPE_CHECKING:
    from turnout.plans import PreparedPlan
    from turnout.reporting.drawing import Picture
from turnout.schemes import TrustModel


def page(summary: Summary, drawn: Sequence[Picture], plan_text: str) -> str:
    """HTML page of a run, without exact counts of participants.

    Args:
        summary: contents of the report.
        drawn: pictures of the page.
        plan_text: text of the plan.
    """
    plan = summary.outcome.prepared.plan
    return template("report.html").render(
        title=f"Private training on {plan.data.title}",
        subtitle=_subtitle(summary),
        cards=_cards(summary),
        guarantee_text=_guarantee_text(summary),
        guarantee=guarantee_rows(summary.outcome.prepared.guarantee),
        sections=sections(drawn),
        run=_run(summary),
        plan=plan_text.strip(),
        version=__version__,
        randomness=_randomness(summary),
    )


def counts_page(summary: Summary, drawn: Sequence[Picture]) -> str:
    """HTML page of the simulator's view, with exact counts of participants."""
    return template("counts.html").render(
        title=f"Participation: {summary.outcome.prepared.plan.data.title}",
        subtitle=_subtitle(summary),
        warning=SIMULATORS_VIEW,
        cards=_count_cards(summary),
        sections=sections(drawn),
        version=__version__,
        randomness=_randomness(summary),
    )


def template(name: str) -> jinja2.Template:
    """Template of a page, by file name; a missing variable is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("turnout.reporting", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)


def _subtitle(summary: Summary) -> str:
    """Model, number of clients, and participation."""
    prepared = summary.outcome.prepared
    return (
        f"{prepared.plan.model.title}, {prepared.population:,} clients, participation "
        f"{prepared.plan.participation.law}"
    )


def _randomness(summary: Summary) -> str:
    return f"Randomness: simulation only (seed {summary.outcome.prepared.plan.run.seed})"


def sections(drawn: Sequence[Picture]) -> list[dict[str, str]]:
    """Title, SVG and text of the sections of a page, one for each picture."""
    return [
        {"title": picture.title, "svg": picture.inline_svg(), "text": picture.text}
        for picture in drawn
    ]


def _cards(summary: Summary) -> list[dict[str, str]]:
    """Key figures of a run: quality of the model, ε and expected check-ins."""
    outcome, guarantee = summary.outcome, summary.outcome.prepared.guarantee
    headline = outcome.headline
    # One card each for quality, privacy and participation; none has exact counts, which ε does
    # not cover.
    return named_cards(
        (
            headline.title,
            headline.text(outcome.result),
            f"loss {outcome.loss:.4f}; test records: {test_words(outcome)}",
        ),
        (
            "ε upper bound",
            rounded_up(guarantee.epsilon.upper),
            f"at δ = {guarantee.delta:g}, {guarantee.relation.value}",
        ),
        (
            "Check-ins expected",
            f"{outcome.expected_check_ins.sum():,.0f}",
            f"in {outcome.history.check_ins.size:,} steps, by the participation",
        ),
    )


def _count_cards(summary: Summary) -> list[dict[str, str]]:
    """Key figures of exact counts, each with its expectation."""
    outcome, counts = summary.outcome, summary.counts()
    # ε does not cover these counts, so only the simulator's view shows them.
    return named_cards(
        (
            "Check-ins",
            f"{counts['participations']:,}",
            f"{outcome.expected_check_ins.sum():,.0f} expected",
        ),
        (
            "Steps without anybody",
            f"{counts['steps_without_anybody']:,}",
            f"{outcome.expected_empty_steps:.1f} expected of {outcome.history.check_ins.size:,}",
        ),
        ("Dummy steps", f"{counts['dummy_steps']:,}", "noise alone was released"),
        ("Skipped steps", f"{counts['skipped_steps']:,}", "nothing was released"),
        *_update_cards(summary),
    )


def _update_cards(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Key figures of the clients' updates, and of the run without privacy."""
    outcome, counts = summary.outcome, summary.counts()
    if counts["clipped_share"] is not None:
        share = f"{counts['clipped_share']:.0%}"
        yield "Clipped", share, "of the updates, a mean over steps"
    if counts["signal_to_noise"] is not None:
        ratio = f"{counts['signal_to_noise']:.2g}"
        yield "Signal to noise", ratio, "norm of a step's sum by that of its noise, median"
    if summary.baseline is not None:
        headline = outcome.headline
        free = headline.text(float(summary.baseline.metrics[headline.name][-1]))
        yield f"{headline.title} without privacy", free, baseline_words(outcome, summary.baseline)


def named_cards(*cards: tuple[str, str, str]) -> list[dict[str, str]]:
    """Key figures of a page, given as (name, value, note) each."""
    return [dict(zip(("name", "value", "note"), card, strict=True)) for card in cards]


def _guarantee_text(summary: Summary) -> list[str]:
    """Guarantee in words, one text for each paragraph."""
    guarantee = summary.outcome.prepared.guarantee
    # The attacker's certainty, the trust model, and what ε covers.
    words = _certainty(summary.outcome.prepared)
    trust = f"Trust model {guarantee.trust.value}: {TRUST[guarantee.trust]}."
    simulated = (
        "This run was a simulation with a seed: its ε is what a deployment of the same plan, with "
        "the operating system's randomness, guarantees. ε covers the released models, not the "
        "numbers of participants: these are in a separate folder, the simulator's view. "
        + (
            "In a deployment only the operator knows them."
            if guarantee.trust is TrustModel.CENTRAL
            else "In a deployment everybody who sees the messages also sees their number."
        )
    )
    # Metrics of personal models are not private.
    if PERSONAL in summary.outcome.history.metrics:
        simulated += f" ε also does not cover {PERSONAL_METRICS}."
    # If clients differ in availability, they differ in ε.
    if guarantee.clients is None:
        return [words, trust, simulated]
    each = (
        "The ε above is that of the worst client. A client that is available at more steps has "
        "a smaller ε, since its participation is hidden among more steps; a client that is never "
        "available reveals nothing. The guarantee assumes that each client's pattern of "
        "availability is public."
    )
    return [words, each, trust, simulated]


def _certainty(prepared: PreparedPlan) -> str:
    """Upper bounds on an attacker's certainty about one client, in words."""
    from turnout.accounting.meaning.membership import scheme_certainty

    guarantee = prepared.guarantee
    delta, relation, unit = guarantee.delta, guarantee.relation, guarantee.unit
    try:
        found = scheme_certainty(costliest_clients(prepared.scheme), delta)
    except NumericalError:
        return of_unit(
            f"Take any one client and two worlds: {RELATIONS[relation]}. An adversary's certainty "
            "about the two worlds cannot be certified here; the (ε, δ) below is certified.",
            unit,
        )
    return certainty_in_words(found.sides, delta, relation, unit, guarantee.trust)


def _run(summary: Summary) -> list[tuple[str, str]]:
    """Rows (name, text) with settings, expected counts and versions of a run."""
    record: dict[str, Any] = summary.record()
    rows = [
        *settings_words(summary.outcome),
        *protection_words(summary.outcome.prepared, summary.outcome.parameters.size),
        ("Steps", f"{record['steps']:,}"),
        ("Dummy steps expected", f"{record['expected_dummy_steps']:.2f}"),
        ("Skipped steps expected", f"{record['expected_skipped_steps']:.2f}"),
        ("Training time", f"{record['seconds']:.1f} s"),
    ]
    if summary.trace is not None:
        rows += _trace_rows(summary, summary.trace)
    for name in ("versions", "machine"):
        rows.append((name.capitalize(), ", ".join(f"{k} {v}" for k, v in record[name].items())))
    return rows


def _trace_rows(summary: Summary, trace: TraceFindings) -> list[tuple[str, str]]:
    """Rows (name, text) with the effects of the availability trace."""
    statistics, everyone = trace.statistics, trace.everyone
    # The run with every device always available, which has a noise of its own.
    headline = everyone.headline
    lost = headline.lost(everyone.result, summary.outcome.result)
    protection = protection_words(everyone.prepared, everyone.parameters.size)
    protected = ", ".join(f"{name[:1].lower()}{name[1:]} {text}" for name, text in protection)
    # Availability of the devices, and the loss due to absences.
    return [
        ("Phones in the trace", f"{statistics.clients:,}"),
        ("Never available", f"{statistics.never_available:,} phones"),
        (
            "Available",
            f"{statistics.available_fraction:.1%} of the slots of which it is known "
            f"({1 - statistics.known_fraction:.0%} are unknown and count for neither)",
        ),
        (
            "Every phone always available",
            f"{headline.words} {headline.text(everyone.result)}, {protected}, "
            f"ε {rounded_up(everyone.prepared.guarantee.epsilon.upper)}",
        ),
        (f"{headline.words.capitalize()} lost to absence", lost),
    ]
