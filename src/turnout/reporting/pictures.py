"""Pictures of a run's report: progress, ε, participation and availability.

`pictures` returns the public pictures, `count_pictures` those of the simulator's view, which show
exact counts that only a simulation knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from turnout.plans import AvailabilitySection
from turnout.reporting.drawing import DASHED, DOTTED, LOOKS, SOLID, Picture
from turnout.reporting.summary import (
    Outcome,
    Summary,
    TraceFindings,
    clipped_share,
    signal_to_noise,
)
from turnout.reporting.words import rounded_up

if TYPE_CHECKING:
    from turnout.simulation import History

MOST_BARS = 400
"""Largest number of steps that are drawn as bars; more steps are drawn as points."""


def pictures(summary: Summary) -> list[Picture]:
    """Pictures of a report: released models, ε, and availability of the devices."""
    outcome = summary.outcome
    found = [_progress(outcome)]
    if outcome.prepared.guarantee.clients is not None:
        found.append(_clients(outcome))
    if summary.trace is not None:
        found += [_availability(summary.trace, outcome), _absence(summary.trace, outcome)]
    return found


def count_pictures(summary: Summary) -> list[Picture]:
    """Pictures of participation and of clients' updates, which ε does not cover."""
    outcome = summary.outcome
    counts, expected = outcome.history.check_ins, outcome.expected_check_ins
    found = [check_in_picture(counts, expected, outcome.expected_empty_steps)]
    if not np.isnan(clipped_share(outcome.history)).all():
        found.append(_updates(outcome))
    if summary.baseline is not None:
        found.append(_baseline(outcome, summary.baseline))
    if summary.trace is not None:
        found.append(_day(summary.trace, outcome))
    return found


def _progress(outcome: Outcome) -> Picture:
    """Picture of the headline metric and of ε over the steps."""
    history = outcome.history
    headline = outcome.headline
    values = history.metrics[headline.name]

    # Left: the headline metric over the steps, with an interval for another test set at the end.
    def draw(axes: list[Axes], ink: str) -> None:
        axes[0].plot(history.step, headline.drawn(values), color=LOOKS["accuracy"].colour)
        axes[0].set(title=headline.title, ylabel=headline.axis)
        ends = np.array(outcome.interval or ())
        _show_what_happens(axes[0], headline.drawn(values), headline.drawn(ends))
        if ends.size:
            axes[0].vlines(
                history.step[-1:], *headline.drawn(ends)[:, None], color=ink, linewidth=3, zorder=4
            )
        # Right: ε over the steps, and the target if there is one.
        axes[1].set(title="ε spent so far", ylabel="ε upper bound")
        colour = LOOKS["ε"].colour
        axes[1].step(outcome.spent.steps, outcome.spent.epsilon(), where="pre", color=colour)
        target = outcome.prepared.plan.privacy.epsilon
        if target is not None:
            axes[1].axhline(target, color=ink, linestyle=DOTTED, linewidth=1)
            axes[1].annotate("target", (0, target), xytext=(2, -11), textcoords="offset points")
        axes[1].set_ylim(bottom=0)
        for axis in axes:
            axis.set(xlim=(0, history.check_ins.size), xlabel="step")

    # The text alternative.
    epsilon = rounded_up(outcome.prepared.guarantee.epsilon.upper)
    text = (
        f"{headline.title} goes from {headline.text(values[0], 1)} to "
        f"{headline.text(values[-1], 1)} in "
        f"{history.check_ins.size} steps, while ε grows from 0 to {epsilon}."
    )
    if outcome.interval is not None:
        low, high = (headline.text(end, 1) for end in outcome.interval)
        text += f" The bar at the end is a 95 % interval for another test set, {low} to {high}."
    return Picture(
        "progress", f"{headline.words.capitalize()} and ε over the steps", text, draw, panels=2
    )


def _show_what_happens(axis: Axes, *curves: NDArray[np.floating]) -> None:
    """Limit a vertical axis to the values after the first tenth of a run.

    The values of an untrained model would otherwise take most of the axis.
    """
    later = np.concatenate([curve[curve.size // 10 + (curve.size > 2) :] for curve in curves])
    later = later[np.isfinite(later)]
    if later.size and np.ptp(later) > 0:
        room = 0.08 * np.ptp(later)
        axis.set_ylim(later.min() - room, later.max() + room)


def _updates(outcome: Outcome) -> Picture:
    """Picture of the share of clipped updates, and of the signal-to-noise ratio, over the steps."""
    clipped, ratio = 100 * clipped_share(outcome.history), signal_to_noise(outcome)
    steps = np.arange(1, clipped.size + 1)

    # Two panels: the share of clipped updates, and the ratio of signal to noise.
    def draw(axes: list[Axes], ink: str) -> None:
        axes[0].plot(steps, clipped, color=LOOKS["clipped"].colour, linewidth=0.8)
        axes[0].set(title="Updates that were clipped", ylabel="share, %", ylim=(0, 100))
        axes[1].plot(steps, ratio, color=LOOKS["signal"].colour, linewidth=0.8)
        axes[1].set(title="Signal to noise", ylabel="norm of the sum by that of its noise")
        axes[1].set_ylim(bottom=0)
        for axis in axes:
            axis.set(xlabel="step", xlim=(0, clipped.size))

    # The text alternative.
    text = (
        f"{np.nanmean(clipped):.0f} % of the updates were longer than the clip norm. The sum of a "
        f"step's updates has {np.nanmedian(ratio):.2g} times the norm of its noise."
    )
    return Picture("updates", "Clipping, and signal against noise", text, draw, panels=2)


def _baseline(outcome: Outcome, baseline: History) -> Picture:
    """Picture of the headline metric over the steps, with and without privacy."""
    headline, history = outcome.headline, outcome.history
    private, free = history.metrics[headline.name], baseline.metrics[headline.name]

    # Both runs in one panel.
    def draw(axes: list[Axes], ink: str) -> None:
        axis = axes[0]
        axis.plot(history.step, headline.drawn(private), label="as planned", **_line("accuracy"))
        look = LOOKS["baseline"]
        axis.plot(baseline.step, headline.drawn(free), label=look.words, **_line("baseline"))
        _show_what_happens(axis, headline.drawn(private), headline.drawn(free))
        axis.set(title=headline.title, ylabel=headline.axis, xlabel="step")
        axis.set_xlim(0, history.check_ins.size)

    # The text alternative.
    text = (
        f"{headline.title} ends at {headline.text(private[-1])}, and at "
        f"{headline.text(free[-1])} without noise and clipping."
    )
    return Picture("baseline", "The same plan without privacy", text, draw)


def _line(meaning: str) -> dict[str, Any]:
    """Keyword arguments of a thin line: dotted for the baseline, else solid."""
    kind = DOTTED if meaning == "baseline" else SOLID
    return {"color": LOOKS[meaning].colour, "linestyle": kind}


def check_in_picture(
    counts: NDArray[np.int64], expected: NDArray[np.float64], expected_empty_steps: float
) -> Picture:
    """Picture of the number of check-ins in each step, and of its expectation.

    Args:
        counts: number of check-ins in each step, shape (steps,).
        expected: mean number of check-ins in each step, shape (at least steps,).
        expected_empty_steps: mean number of steps without check-ins.
    """
    steps = np.arange(1, counts.size + 1)

    def draw(axes: list[Axes], ink: str) -> None:
        axis, look = axes[0], LOOKS["came"]
        # Bars for few steps, points for many.
        if counts.size <= MOST_BARS:
            axis.bar(steps, counts, width=1.0, color=look.colour, alpha=0.55, label=look.words)
        else:
            axis.plot(steps, counts, ",", color=look.colour, alpha=0.6, label=look.words)
        axis.plot(steps, expected[: counts.size], DASHED, color=ink, label="expected")
        axis.set_ylim(bottom=0)
        axis.set_xlim(0.5, counts.size + 0.5)
        axis.set(title="Check-ins a step", xlabel="step", ylabel="clients")

    # The text alternative.
    text = (
        f"{counts.sum():,} check-ins in {counts.size} steps, {counts.mean():.1f} a step; "
        f"{expected.mean():.1f} a step were expected. Nobody came at "
        f"{np.count_nonzero(counts == 0)} steps; {expected_empty_steps:.1f} such steps "
        "were expected."
    )
    return Picture("check-ins", "Check-ins per step, and how many were expected", text, draw)


def _clients(outcome: Outcome) -> Picture:
    """Picture of each client's upper bound on ε, largest first."""
    clients = outcome.prepared.guarantee.clients
    assert clients is not None
    # The bounds, largest first, against the share of clients.
    epsilons = np.sort(clients.epsilon_upper)[::-1]
    share = 100 * np.arange(1, epsilons.size + 1) / epsilons.size

    def draw(axes: list[Axes], ink: str) -> None:
        colour = LOOKS["ε"].colour
        axes[0].fill_between(share, epsilons, step="pre", color=colour, alpha=0.35)
        axes[0].step(share, epsilons, where="pre", color=colour)
        axes[0].set(title="ε of each client, largest first", xlabel="share of clients, %")
        axes[0].set(xlim=(0, 100), ylabel="ε upper bound")
        axes[0].set_ylim(bottom=0)

    # The text alternative, with the clients that never take part.
    never = int(np.count_nonzero(epsilons == 0))
    text = (
        f"The worst client has ε = {rounded_up(epsilons[0])}, half of the {epsilons.size:,} "
        f"clients have at most {rounded_up(float(np.median(epsilons)))}; {never:,} clients are "
        "never available and have ε = 0."
    )
    return Picture("clients", "What the run costs each client", text, draw)


def _availability(trace: TraceFindings, outcome: Outcome) -> Picture:
    """Picture of the share of available devices by time of day."""
    hours, width = _hours(outcome)
    profile = trace.statistics.day_profile

    def draw(axes: list[Axes], ink: str) -> None:
        axes[0].plot(hours, 100 * profile, color=LOOKS["available"].colour)
        axes[0].set_ylabel("available, %")
        _over_the_day(axes[0], width, "Share of phones available, where it is known")

    low, high = np.nanmin(profile), np.nanmax(profile)
    text = f"Availability varies over the day between {low:.1%} and {high:.1%} of the phones."
    return Picture("availability", "Availability over the day", text, draw)


def _day(trace: TraceFindings, outcome: Outcome) -> Picture:
    """Picture of the mean number of check-ins by time of day."""
    hours, width = _hours(outcome)
    counts = trace.check_ins_per_slot

    def draw(axes: list[Axes], ink: str) -> None:
        axes[0].bar(hours, counts, width=width, color=LOOKS["came"].colour)
        axes[0].set_ylabel("clients")
        _over_the_day(axes[0], width, "Check-ins a step, by time of day")

    low, high = np.nanmin(counts), np.nanmax(counts)
    text = f"Check-ins vary over the day between {low:.1f} and {high:.1f} a step."
    return Picture("day", "Participation over the day", text, draw)


def _hours(outcome: Outcome) -> tuple[NDArray[np.float64], float]:
    """Start of each slot of a day, shape (steps_per_day,), and length of a slot, in hours."""
    plan = outcome.prepared.plan.participation
    per_day = plan.steps_per_day if isinstance(plan, AvailabilitySection) else 24
    return 24 * np.arange(per_day) / per_day, 24 / per_day


def _over_the_day(axis: Axes, width: float, title: str) -> None:
    """Set title, label and limits of an axis with the hours of a day."""
    axis.set_title(title)
    axis.set_xlabel("hours since the trace's first slot of the day")
    axis.set_xlim(-0.5 * width, 24 - 0.5 * width)
    axis.set_ylim(bottom=0)


def _absence(trace: TraceFindings, outcome: Outcome) -> Picture:
    """Picture of the headline metric over the steps, with and without absent devices."""
    everyone, headline = trace.everyone, outcome.headline

    # The run as planned, and the run in which all devices are always available.
    def draw(axes: list[Axes], ink: str) -> None:
        for run, name, label, kind in (
            (everyone, "accuracy, all", LOOKS["accuracy, all"].words, DASHED),
            (outcome, "accuracy", "phones as they really were", SOLID),
        ):
            values, colour = run.history.metrics[headline.name], LOOKS[name].colour
            axes[0].plot(run.history.step, headline.drawn(values), kind, color=colour, label=label)
        axes[0].set(title=headline.title, xlabel="step", ylabel=headline.axis)

    # The text alternative.
    text = (
        f"With phones as they really were the model reaches {headline.text(outcome.result, 1)}; "
        f"with every phone always available {headline.text(everyone.result, 1)}."
    )
    return Picture("absence", f"What absent phones cost in {headline.words}", text, draw)
