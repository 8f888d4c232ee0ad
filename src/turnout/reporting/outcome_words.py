"""A run's outcome in words: its test set, its updates, its settings."""

from __future__ import annotations

import numpy as np

from turnout.plans import PreparedPlan
from turnout.reporting.headline import PERSONAL
from turnout.reporting.summary import Outcome, clipped_share, signal_to_noise
from turnout.reporting.words import rounded_up
from turnout.schemes import TrustModel
from turnout.simulation import History

BASELINE = "without noise and clipping, which protects nobody"


def test_words(outcome: Outcome) -> str:
    """The number of test records, what another such set might say, and the chance level."""
    said = f"{outcome.test.records:,}"
    if outcome.interval is not None:
        low, high = (outcome.headline.text(end, 1) for end in outcome.interval)
        said += f": 95 % interval {low} to {high}"
    if outcome.test.chance is not None and outcome.headline.name == "accuracy":
        said += f"; chance level {outcome.headline.text(outcome.test.chance, 1)}"
    return said


def updates_words(outcome: Outcome) -> str:
    """Share of clipped updates, and signal against noise."""
    clipped, ratio = clipped_share(outcome.history), signal_to_noise(outcome)
    parts = []
    if not np.isnan(clipped).all():
        parts.append(f"{np.nanmean(clipped):.0%} of the updates were clipped")
    if not np.isnan(ratio).all():
        parts.append(f"a step's sum has {np.nanmedian(ratio):.2g} times the norm of its noise")
    if PERSONAL in outcome.history.metrics:
        parts.append("accuracy of the clients' own models on their own classes")
    return "; ".join([*parts, "statistics of private data, not covered by ε"]) if parts else ""


def baseline_words(outcome: Outcome, baseline: History) -> str:
    """The headline metric without privacy, and what privacy costs."""
    headline = outcome.headline
    free = float(baseline.metrics[headline.name][-1])
    return f"{BASELINE}: {headline.text(free)}; privacy costs {headline.lost(free, outcome.result)}"


def settings_words(outcome: Outcome) -> list[tuple[str, str]]:
    """Model, optimizer and clip norm, row by row."""
    prepared = outcome.prepared
    plan = prepared.plan
    optimizer = plan.optimizer
    rule = {"sgd": "SGD", "nesterov": "Nesterov's accelerated SGD", "adam": "Adam"}[optimizer.name]
    momentum = f", momentum {optimizer.momentum:g}" if optimizer.momentum else ""
    averaging = {
        "none": "the last iterate is the result",
        "ema": f"an exponential average of the iterates (decay {optimizer.averaging_decay:g}) is "
        "the result",
        "tail": f"the average of the last {optimizer.averaging_tail:.0%} of the iterates is the "
        "result",
    }[optimizer.averaging]
    ball = "" if optimizer.radius is None else f", iterates of norm {optimizer.radius:g} at most"
    features = plan.model.features
    seen = "inputs as they are" if features == "pixels" else features
    return [
        ("Model", f"{plan.model.title} on {seen}, {outcome.parameters.size:,} parameters"),
        (
            "Optimizer",
            f"{rule}, learning rate {optimizer.learning_rate:g} ({optimizer.schedule}){momentum}"
            f"{ball}; {averaging}",
        ),
        ("Clip norm", clip_words(prepared)),
        ("Computed", f"on {plan.run.device}, forward and backward passes in {plan.run.precision}"),
    ]


def clip_words(prepared: PreparedPlan) -> str:
    """The clip norm, and what happens beyond it."""
    clip, unit = prepared.plan.privacy.clip_norm, prepared.guarantee.unit.value
    section = prepared.plan.messages
    norm = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞"}["l2" if section is None else section.norm]
    if norm == "ℓ∞":
        return f"{clip:g}: each coordinate of a {unit}'s update is cut at ±{clip:g}"
    return f"{clip:g}: a {unit}'s update longer than that ({norm}) is scaled down"


def protection_words(prepared: PreparedPlan, dimension: int) -> list[tuple[str, str]]:
    """The noise of the coordinator, or what clients send in its place, row by row."""
    messages, section = prepared.messages(dimension), prepared.plan.messages
    if messages is None or section is None:
        return [("Noise multiplier", f"{prepared.noise.noise_multiplier:.5g}")]
    step_bits = messages.histogram_bits(section.messages)
    shorter = 32 * dimension / step_bits
    several = "" if section.messages == 1 else f"{section.messages} a client and step in one "
    several += "" if section.messages == 1 else f"histogram of {step_bits:,} bits, "
    of_records = "; each of one record" if section.each == "record" else ""
    return [
        (
            "Message",
            f"{type(messages).__name__}, {messages.message_bits} bits, {several}"
            f"1/{shorter:,.0f} of the update in float32{of_records}",
        ),
        ("ε₀ of a message alone", f"{rounded_up(messages.epsilon0)} (replace-one, local trust)"),
        *_thesis_words(prepared),
    ]


def _thesis_words(prepared: PreparedPlan) -> list[tuple[str, str]]:
    """ε by the thesis' own theorems on such a run, where there are any."""
    from turnout.accounting.published.shuffled_training import thesis_epsilons

    scheme, delta = prepared.scheme, prepared.guarantee.delta
    if scheme.trust is not TrustModel.SHUFFLED:
        return []
    found = thesis_epsilons(scheme, delta)
    words = ", ".join(f"{rounded_up(value, 4)} ({name})" for name, value in found.items())
    terms = f"replace-one, both directions alike, δ = {delta:g}, {scheme.unit.value}, shuffled"
    said = f"{words}; {terms}" if words else "none: no theorem is about such a run"
    return [("ε by the thesis, to compare", said)]
