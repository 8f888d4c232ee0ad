"""Private estimates as tables and JSON, always with their privacy cost.

Functions named ``…_table`` return tables for a terminal, functions named ``…_record`` JSON-ready
values. `order` returns items by frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table

from turnout.estimation.private.answers import EstimateCost, Frequencies, Mean
from turnout.estimation.private.searches import HeavyHitters
from turnout.reporting.words import RELATIONS, TRUST, rounded_up
from turnout.schemes import Relation, TrustModel

_ERRORS = ("± noise", "± noise and\nsampling")


def frequency_table(found: Frequencies, labels: Sequence[str], top: int) -> Group:
    """Table of the ``top`` most frequent items, and the privacy cost.

    Args:
        found: the estimate.
        labels: name of each item, for all k items.
        top: number of items in the table.
    """
    # Intervals for these clients and for the population, unless the two are equal.
    said = f"{100 * found.confidence:g} % interval"
    both = np.array_equal(found.low, found.population_low)
    intervals = (said,) if both else (f"{said},\nthese clients", f"{said},\npopulation")
    table = _table("value", "estimate", *intervals, *_ERRORS)
    # One row for each of the most frequent values.
    for item in order(found)[:top]:
        limits = [f"{found.low[item]:.4f} to {found.high[item]:.4f}"]
        if not both:
            limits.append(f"{found.population_low[item]:.4f} to {found.population_high[item]:.4f}")
        table.add_row(
            labels[item],
            f"{found.values[item]:.4f}",
            *limits,
            f"{found.noise_errors[item]:.4f}",
            f"{found.population_errors[item]:.4f}",
        )
    return _with_cost(table, found, "frequencies", len(labels) - top)


def mean_table(found: Mean, names: Sequence[str], top: int) -> Group:
    """Table of the first ``top`` coordinates of a mean, and the privacy cost.

    Args:
        found: the estimate.
        names: name of each coordinate, for all d coordinates.
        top: number of coordinates in the table.
    """
    table = _table("coordinate", "mean", *_ERRORS)
    shown = zip(names, found.value, found.noise_errors, found.population_errors, strict=True)
    for name, value, noise, both in list(shown)[:top]:
        table.add_row(name, f"{value:.5g}", f"{noise:.3g}", f"{both:.3g}")
    return _with_cost(table, found, "mean", len(names) - top)


def search_table(found: HeavyHitters, top: int) -> Group:
    """Table of the first ``top`` heavy hitters, and the privacy cost."""
    table = _table("value", "estimate", "± noise")
    shown = zip(found.items, found.values, found.noise_errors, strict=True)
    for name, value, noise in list(shown)[:top]:
        table.add_row(name, f"{value:.4f}", f"{noise:.4f}")
    what = f"values of a share above {found.threshold:g}"
    return _with_cost(table, found, what, len(found.items) - top)


def search_record(found: HeavyHitters) -> dict[str, Any]:
    """JSON-ready values of a search for heavy hitters, in order of decreasing evidence."""
    shown = zip(found.items, found.values, found.noise_errors, strict=True)
    return {
        **_cost_record(found),
        "threshold": found.threshold,
        "error": found.error,
        "candidates": found.candidates,
        "named": [
            {"value": name, "estimate": float(value), "noise_standard_error": float(noise)}
            for name, value, noise in shown
        ],
    }


def frequency_record(found: Frequencies, labels: Sequence[str]) -> dict[str, Any]:
    """JSON-ready values of estimated frequencies, the most frequent item first."""
    rows = [
        {
            "value": labels[item],
            "estimate": float(found.values[item]),
            "low": float(found.low[item]),
            "high": float(found.high[item]),
            "population_low": float(found.population_low[item]),
            "population_high": float(found.population_high[item]),
            "raw": float(found.raw[item]),
            **_errors(found, item),
        }
        for item in order(found)
    ]
    return {**_cost_record(found), "confidence": found.confidence, "frequencies": rows}


def mean_record(found: Mean, names: Sequence[str]) -> dict[str, Any]:
    """JSON-ready values of an estimated mean."""
    rows = [
        {"coordinate": name, "mean": float(found.value[place]), **_errors(found, place)}
        for place, name in enumerate(names)
    ]
    return {
        **_cost_record(found),
        "mse_bound": found.mse_bound,
        "sampling_from": found.sampling_from,
        "mean": rows,
    }


def _errors(found: Frequencies | Mean, place: int) -> dict[str, float]:
    """JSON-ready standard errors of one item or coordinate."""
    return {
        "noise_standard_error": float(found.noise_errors[place]),
        "sampling_standard_error": float(found.sampling_errors[place]),
        "population_standard_error": float(found.population_errors[place]),
    }


def order(found: Frequencies) -> list[int]:
    """Item numbers, the most frequent item first; items of equal frequency are ordered by `raw`."""
    return [int(item) for item in np.lexsort((-found.raw, -found.values))]


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=None)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _with_cost(
    table: Table, found: Frequencies | Mean | HeavyHitters, what: str, more: int
) -> Group:
    """Table of estimates with a heading, the number of omitted rows, and the privacy cost."""
    said = "about " if found.clients is None else ""
    lines = [f"and {more:,} more (--top, --json)"] if more > 0 else []
    costs = Table.grid(padding=(0, 2))
    for name, text in {**_error_rows(found), **_cost_rows(found)}.items():
        costs.add_row(name, text)
    return Group(f"{what} among {said}{found.about:,.0f} clients", table, *lines, "", costs)


def _error_rows(found: Frequencies | Mean | HeavyHitters) -> dict[str, str]:
    """Rows that explain the error bars."""
    # Heavy hitters have a threshold instead of intervals.
    if isinstance(found, HeavyHitters):
        return {
            "± noise": "standard error at most, about the share of these clients",
            "named": f"but for a chance of {found.error:g} every one of them has a share above "
            f"{found.threshold:g}; the last test looked at {found.candidates:,} values",
        }
    # Frequencies and means have errors of the noise, with and without sampling.
    what = "mean of clipped rows" if isinstance(found, Mean) else "share"
    rows = {
        "± noise": f"standard error about the {what} of these clients: privacy noise alone",
        "± noise and sampling": f"standard error about the {what} in a large population of which "
        "they are a simple random sample",
    }
    if isinstance(found, Mean):
        rows["± noise and sampling"] += f"; sampling {found.sampling_from}"
    elif np.array_equal(found.low, found.population_low):
        rows["intervals"] = "each covers the share among these clients, and the population's"
    return rows


def _cost_rows(found: Frequencies | Mean | HeavyHitters) -> dict[str, str]:
    """Rows of the privacy cost of an estimate, its mechanism and its assumptions."""
    cost = found.cost
    # The guarantee: ε, δ, and ε₀ of a message if messages are shuffled.
    sign = "ε₀" if cost.trust == "local" else "ε"
    rows = {sign: f"{rounded_up(cost.epsilon)}: {cost.kind}"}
    if cost.delta:
        rows["δ"] = f"{cost.delta:g}"
    if cost.local_epsilon is not None and cost.trust == "shuffled":
        what = "ε₀ of a message" if cost.messages == 1 else "ε₀, all messages"
        rows[what] = f"{rounded_up(cost.local_epsilon)} (pure, local)"
    # The terms of the guarantee.
    rows["relation"] = f"{cost.relation}: {RELATIONS[Relation(cost.relation)]}"
    rows["unit"] = f"{cost.unit}: {cost.held}"
    rows["trust model"] = f"{cost.trust}: {_trust(cost)}"
    # The size of a message, and the mechanism with the reason for its choice.
    if cost.message_bits is not None:
        many = "" if cost.messages == 1 else f"{cost.messages:,} messages, together "
        rows["message"] = f"{many}{cost.message_bits:,} bits a client, as serialised"
        rows["public randomness"] = cost.public_randomness
    rows["mechanism"] = f"{cost.mechanism}: {cost.reason}"
    # The error bound of a mean, and the assumptions.
    if isinstance(found, Mean):
        rows["squared error"] = f"{found.mse_bound:.4g} expected at most, of {found.rows}"
        if cost.trust == "central":
            rows["squared error"] = f"about {found.mse_bound:.4g}, of {found.rows}"
        rows["clipped rows"] = "their number is not released"
    if cost.assumed:
        rows["assumed"] = "; ".join(cost.assumed)
    return rows


def _trust(cost: EstimateCost) -> str:
    """Parties that must be trusted for the guarantee of an estimate, in words."""
    if cost.trust == "central":
        return "the holder of the file is trusted"
    return TRUST[TrustModel(cost.trust)]


def _cost_record(found: Frequencies | Mean | HeavyHitters) -> dict[str, Any]:
    """JSON-ready privacy cost, mechanism, and sizes of messages and data."""
    cost = found.cost
    # The guarantee and its terms, then the mechanism and its messages, then the number of clients.
    return {
        "epsilon": cost.epsilon,
        "delta": cost.delta,
        "kind": cost.kind,
        "local_epsilon": cost.local_epsilon,
        "relation": cost.relation,
        "unit": cost.unit,
        "trust_model": cost.trust,
        "mechanism": cost.mechanism,
        "reason": cost.reason,
        "messages": None if cost.message_bits is None else cost.messages,
        "message_bits": cost.message_bits,
        "public_randomness": cost.public_randomness,
        "assumptions": list(cost.assumed),
        "clients": found.clients,
        "clients_estimated": found.about,
    }
