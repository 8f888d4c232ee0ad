"""Objectives: the loss that clients lower, and the metrics that the result is judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import is_reference
from turnout.learning import losses, metrics
from turnout.learning.losses import Loss
from turnout.learning.metrics import Metric
from turnout.learning.references import imported, reference_of

LOSS = "loss"
"""The metric that every objective has: the mean loss of the held-out examples."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss, and metrics of which the first is the headline.

    Attributes:
        target: the kind of label: "class", "tags", "numbers" or "tokens".
        loss: what an example's outputs cost.
        metrics: of held-out examples; `LOSS` is said beside them.
    """

    target: str
    loss: Loss
    metrics: tuple[Metric, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all metrics, the headline first and the loss last."""
        return (*(metric.name for metric in self.metrics), LOSS)

    @property
    def higher_is_better(self) -> bool:
        """Whether more of the headline metric is better."""
        return bool(self.metrics) and self.metrics[0].higher_is_better


def build_objective(
    target: str = "class",
    loss: str | Callable[..., Any] | None = None,
    metric: Sequence[str | Callable[..., Any]] | None = None,
    folder: Path = Path(),
) -> Objective:
    """The objective for a kind of label.

    Args:
        target: "class", "tags", "numbers" or "tokens".
        loss: a name, "module:name", or a function of outputs (n, …) and labels (n, …) that gives
            a loss an example, (n,); None for the usual one of the target.
        metric: names, "module:name", or functions of all outputs and labels that give a number;
            None for the usual ones.
        folder: of the plan, for "module:name".

    Raises:
        ParameterError: a loss or metric that is unknown, or not for this kind of label.

    >>> build_objective("numbers").names
    ('rmse', 'mae', 'loss')
    """
    if target not in losses.DEFAULTS:
        raise ParameterError("target", target, f"one of {', '.join(losses.DEFAULTS)}")
    chosen = metrics.DEFAULTS[target] if metric is None else tuple(metric)
    found = tuple(_metric(one, target, folder) for one in chosen)
    names = [one.name for one in found]
    if len({*names, LOSS}) != len(names) + 1:
        raise ParameterError("model.metrics", names, f"names that differ, and not {LOSS!r}")
    return Objective(target, _loss(loss, target, folder), found)


def _loss(given: str | Callable[..., Any] | None, target: str, folder: Path) -> Loss:
    """The loss that is asked for, if it takes such labels."""
    if given is None:
        return losses.DEFAULTS[target]
    if not isinstance(given, str):
        return losses.own_loss(_called("model.loss", given), reference_of(given))
    if is_reference(given):
        function, reference = imported("model.loss", given, folder)
        return losses.own_loss(_called("model.loss", function), reference, given)
    suited = [name for name, loss in losses.LOSSES.items() if loss.target == target]
    if given not in suited:
        expected = f"{' or '.join(map(repr, suited))} for target = {target!r}, or module:name"
        raise ParameterError("model.loss", given, expected)
    return losses.LOSSES[given]


def _metric(given: str | Callable[..., Any], target: str, folder: Path) -> Metric:
    """The metric that is asked for, if it takes such labels."""
    key = "model.metrics"
    if not isinstance(given, str):
        name = getattr(given, "__name__", "own")
        return metrics.own_metric(_called(key, given), reference_of(given), name)
    if is_reference(given):
        function, reference = imported(key, given, folder)
        return metrics.own_metric(_called(key, function), reference, given.rpartition(":")[2])
    found = metrics.metric_named(given)
    if found is None or target not in found.targets:
        suited = [name for name, one in metrics.METRICS.items() if target in one.targets]
        more = ", top-5 and the like" if target in ("class", "tokens") else ""
        expected = f"{', '.join(suited)}{more} for target = {target!r}, or module:name"
        raise ParameterError(key, given, expected)
    return found


def _called(key: str, given: object) -> Callable[..., Any]:
    """A function of the user's own."""
    if not callable(given):
        raise ParameterError(key, repr(given), "a function of outputs and labels")
    return given
