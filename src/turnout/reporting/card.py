"""The model card: what a model's users must know of its data, its training and its guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.reporting.headline import PERSONAL
from turnout.reporting.words import rounded_up
from turnout.schemes import PrivacyUnit

_NOT_COVERED = (
    "the evaluation: metrics are computed on test records, exactly and without noise",
    "exact counts of who came, in the folder `simulator`: they are not for release",
    "other runs on the same clients: each costs its own ε, and so does every choice between runs",
    "the seed: this run is a simulation whose draws follow from its seed, so who knows it "
    "can redo the noise; the guarantee is that of a deployment with the system's randomness",
    "choices made by looking at the clients' data before the plan was written",
)

PERSONAL_METRICS = (
    "metrics of personal models: they are made of the clients' own labels and models, are the "
    "simulator's alone and not for release"
)

_ALL_RECORDS = (
    "all records of one client together: ε is that of one record, and m records of a client are "
    "protected by no more than m·ε, at a larger δ"
)

_OUTPUTS = {"class": "classes", "tags": "tags", "numbers": "numbers", "tokens": "tokens"}


def model_card(facts: Mapping[str, Any]) -> str:
    """The card as Markdown, from the facts that stand in the model's file."""
    guarantee, optimizer = facts["guarantee"], facts["optimizer"]
    lower, unit = guarantee["epsilon_lower"], guarantee["unit"]
    known = f"{lower:.5g}" if lower > 0 else "none is known"
    rows = {
        "ε, upper bound (proved)": rounded_up(guarantee["epsilon"], 5),
        "ε, lower bound": known,
        **{
            f"direction {name}": f"ε at most {rounded_up(one['epsilon'], 5)}"
            for name, one in sorted(guarantee["directions"].items(), reverse=True)
        },
        "δ": f"{guarantee['delta']:g}",
        "neighbouring relation": guarantee["relation"],
        "unit of privacy": guarantee["unit"],
        "trust model": guarantee["trust_model"],
        "analysis": guarantee["method"],
        "clip norm": facts["clip_words"],
        **_protection(facts),
        "data": f"{facts['data']}, {facts['clients']:,} {unit}s, {facts['steps']:,} steps",
        "model": f"{facts['model']} on {facts['features']}, {facts['outputs']} "
        + _OUTPUTS[facts["target"]],
        "optimiser": f"{optimizer['name']}, learning rate {optimizer['learning_rate']:g}, "
        f"{optimizer['schedule']}; averaging: {optimizer['averaging']}",
        "parameters handed out": facts["handed_out"],
        **{f"test {name}": f"{value:.4g}" for name, value in facts["metrics"].items()},
        **({"test records": facts["test"]} if "test" in facts else {}),
        "plan (SHA-256)": f"`{facts['plan_sha256']}`",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    not_covered = [*_NOT_COVERED]
    if unit == PrivacyUnit.EXAMPLE.value:
        not_covered.insert(0, _ALL_RECORDS)
    if PERSONAL in facts["metrics"]:
        not_covered.insert(0, PERSONAL_METRICS)
    uncovered = "\n".join(f"- {what};" for what in not_covered)
    return (
        f"# Model card\n\n| | |\n|---|---|\n{table}\n\n## Tuning\n\n"
        f"{_tuning(facts)}\n\n"
        f"## Not covered by ε\n\n{uncovered.removesuffix(';')}.\n"
    )


def _protection(facts: Mapping[str, Any]) -> dict[str, str]:
    """The coordinator's noise, or what clients send in the place of their updates."""
    if "noise_multiplier" in facts:
        return {"noise multiplier": f"{facts['noise_multiplier']:.5g} clip norms"}
    return {
        "message of a client": f"{facts['message']}, {facts['message_bits']} bits"
        + (f", {facts['messages']} in each step" if facts["messages"] > 1 else ""),
        "ε₀ of a message alone": f"{rounded_up(facts['epsilon0'], 5)} (replace-one, local trust)",
    }


def _tuning(facts: Mapping[str, Any]) -> str:
    """How the settings were chosen, in a paragraph."""
    tuned = facts.get("tuned")
    if tuned is None:
        return (
            "Nothing is recorded of how the settings were chosen. If they were chosen on the data "
            "of the run's clients, that is not in ε."
        )
    keys = ", ".join(f"{key} = {value!r}" for key, value in tuned["values"].items())
    return (
        f"The best of a random number of runs, {tuned['candidates']:g} on average, by accuracy on "
        f"{tuned['held_out_clients']:,} held-out clients, with noise: {tuned['score']:.4g} ± "
        f"{tuned['score_noise']:.2g}. Chosen: {keys}. The search is in ε."
    )
