"""Objectives: the loss that clients minimise, and metrics of a model's outputs on held-out data.

`build_objective` joins a loss with metrics. A `MeanMetric` is added up batch by batch; a
`WholeMetric`, such as the area under a curve, needs all outputs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, isnan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import is_reference
from turnout.learning import losses
from turnout.learning.losses import IGNORED, Loss, Reference, imported, reference_of, token_losses

Totals = Callable[[Tensor, Tensor], tuple[float, int]]
"""Function of outputs and labels of some examples that returns a sum and its number of terms."""


@dataclass(frozen=True, slots=True)
class MeanMetric:
    """Metric that is a function of a mean over examples, tokens or numbers.

    Attributes:
        name: name of the metric.
        higher_is_better: whether larger values are better.
        targets: kinds of label that the metric accepts.
        totals: function from outputs and labels of a batch to the sum of the terms of the mean,
            and the number of these terms.
        finish: function from the mean to the metric.
    """

    name: str
    higher_is_better: bool
    targets: tuple[str, ...]
    totals: Totals
    finish: Callable[[float], float] = float

    def resume_parts(self) -> Mapping[str, object]:
        """Name of the metric, for checkpoints."""
        return {"name": self.name}


@dataclass(frozen=True, slots=True)
class WholeMetric:
    """Metric that is a function of the outputs and labels of all examples.

    Attributes:
        name: name of the metric.
        higher_is_better: whether larger values are better.
        targets: kinds of label that the metric accepts; not used for a custom metric.
        value: function from all outputs and labels to the metric.
        reference: name and code digest of a custom metric; None for a built-in one.
    """

    name: str
    higher_is_better: bool
    targets: tuple[str, ...]
    value: Callable[[Tensor, Tensor], float]
    reference: Reference | None = None

    def resume_parts(self) -> Mapping[str, object]:
        """Name of the metric and, for a custom metric, the digest of its code."""
        return {"name": self.name, "reference": self.reference}


Metric = MeanMetric | WholeMetric


def _accuracy(outputs: Tensor, labels: Tensor) -> tuple[float, int]:
    """Number of correct predictions of classes, tags or tokens, and number of all predictions."""
    if labels.is_floating_point():
        raise ParameterError("model.metrics", "accuracy", "a metric of numbers, such as rmse")
    if outputs.shape == labels.shape:
        return int(((outputs > 0) == (labels != 0)).sum()), labels.numel()
    right = outputs.argmax(-1) == labels
    return int(right.sum()), int((labels != IGNORED).sum())


def _top(k: int, outputs: Tensor, labels: Tensor) -> tuple[float, int]:
    """Number of labels whose score is among the k highest, and the number of labels."""
    best = outputs.topk(min(k, outputs.shape[-1]), dim=-1).indices
    return int((best == labels.unsqueeze(-1)).any(-1).sum()), int((labels != IGNORED).sum())


def _errors(power: int, outputs: Tensor, labels: Tensor) -> tuple[float, int]:
    """Sum of the absolute errors, each raised to ``power``, and the number of errors."""
    difference = (outputs.double() - labels.double()).abs()
    return float((difference**power).sum()), labels.numel()


def _token_loss(outputs: Tensor, labels: Tensor) -> tuple[float, int]:
    """Total cross-entropy of the counted tokens, in nats, and the number of these tokens."""
    each, counted = token_losses(outputs.double(), labels)
    return float(each.sum()), int(counted.sum())


def _exponential(mean: float) -> float:
    """Exponential of a mean; infinity on overflow."""
    return exp(mean) if mean < 700 else float("inf")


def area_under_curve(scores: Tensor, positive: Tensor) -> float:
    """Probability that a random positive example scores above a random negative example.

    A tie counts one half. The result is NaN if there are no positive or no negative examples.

    Args:
        scores: score of each example, (n,).
        positive: whether each example is positive, bool, (n,).
    """
    order, where = np.unique(scores.double().numpy(), return_inverse=True)
    counts = np.bincount(where, minlength=order.size)
    middle = np.cumsum(counts) - (counts - 1) / 2  # ranks from 1; equal scores have the mean rank
    chosen = positive.numpy()
    positives, negatives = int(chosen.sum()), int((~chosen).sum())
    if not positives or not negatives:
        return float("nan")
    above = middle[where][chosen].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def _auc(outputs: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve of two classes, or the mean area of tags that have both labels."""
    if labels.ndim == 1:
        return area_under_curve(outputs[:, 1] - outputs[:, 0], labels == 1)
    areas = [area_under_curve(outputs[:, k], labels[:, k] != 0) for k in range(labels.shape[1])]
    known = [area for area in areas if not isnan(area)]
    return sum(known) / len(known) if known else float("nan")


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        MeanMetric("accuracy", True, ("class", "tags", "tokens"), _accuracy),
        MeanMetric("rmse", False, ("numbers",), partial(_errors, 2), sqrt),
        MeanMetric("mae", False, ("numbers",), partial(_errors, 1)),
        MeanMetric("perplexity", False, ("tokens",), _token_loss, _exponential),
        WholeMetric("auc", True, ("class", "tags"), _auc),
    )
}
"""Metrics by their names in plans; `metric_named` also makes top-k metrics such as "top-5"."""

DEFAULTS = {
    "class": ("accuracy",),
    "tags": ("accuracy", "auc"),
    "numbers": ("rmse", "mae"),
    "tokens": ("perplexity", "accuracy"),
}
"""Default metrics of each kind of label; the first is the headline metric of a report."""


def metric_named(name: str) -> Metric | None:
    """Metric with the given name; None if the name is unknown."""
    start, _, number = name.partition("-")
    if start == "top" and number.isdecimal() and int(number) > 0:
        return MeanMetric(name, True, ("class", "tokens"), partial(_top, int(number)))
    return METRICS.get(name)


def own_metric(
    function: Callable[[Tensor, Tensor], float], reference: Reference, name: str
) -> WholeMetric:
    """Metric from a custom function of all outputs and labels, (n, …) each for n examples.

    Larger values are better, unless the function has an attribute ``higher_is_better = False``. A
    call of the metric raises a ParameterError if the function fails or returns no number.
    """

    def value(outputs: Tensor, labels: Tensor) -> float:
        try:
            return float(function(outputs, labels))
        except Exception as error:  # whatever the custom function raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            expected = f"a function that returns a number ({reason})"
            raise ParameterError("model.metrics", name, expected) from None

    higher = bool(getattr(function, "higher_is_better", True))
    return WholeMetric(name, higher, (), value, reference)


def values(
    metrics: tuple[Metric, ...],
    totals: list[dict[str, tuple[float, int]]],
    outputs: Tensor | None,
    labels: Tensor,
) -> dict[str, float]:
    """Values of all metrics, by name.

    Args:
        metrics: all metrics.
        totals: for each batch, the sum and the number of terms of each `MeanMetric`, by name.
        outputs: outputs of all examples, (n, …); None if no metric is a `WholeMetric`.
        labels: labels of all examples, (n, …).
    """
    found: dict[str, float] = {}
    for metric in metrics:
        if isinstance(metric, WholeMetric):
            assert outputs is not None
            with torch.no_grad():
                found[metric.name] = metric.value(outputs, labels)
        else:
            count = sum(part[metric.name][1] for part in totals)
            mean = sum(part[metric.name][0] for part in totals) / max(count, 1)
            found[metric.name] = metric.finish(mean)
    return found


LOSS = "loss"
"""Name of the metric that every objective has: the mean loss of the held-out examples."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Training loss, with evaluation metrics of which the first is the headline metric.

    Attributes:
        target: kind of label: "class", "tags", "numbers" or "tokens".
        loss: training loss.
        metrics: metrics of held-out examples; `LOSS` is always added.
    """

    target: str
    loss: Loss
    metrics: tuple[Metric, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all metrics: the headline metric first, the loss last."""
        return (*(metric.name for metric in self.metrics), LOSS)

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger headline metric is better."""
        return bool(self.metrics) and self.metrics[0].higher_is_better


def build_objective(
    target: str = "class",
    loss: str | Callable[..., Any] | None = None,
    metric: Sequence[str | Callable[..., Any]] | None = None,
    folder: Path = Path(),
) -> Objective:
    """Objective with the requested loss and metrics for a kind of label.

    Args:
        target: "class", "tags", "numbers" or "tokens".
        loss: name of a built-in loss, reference "module:name" to a custom function, or a function
            of outputs (n, …) and labels (n, …) that returns the loss of each example, (n,); None
            for the default loss of the kind of label.
        metric: metrics, the headline metric first. Each is a name, a reference "module:name", or a
            function of all outputs and labels that returns a number; None for the default metrics
            of the kind of label.
        folder: folder of the plan, which is searched first for the module of a reference.

    Raises:
        ParameterError: an unknown kind of label, a loss or metric that is unknown or for another
            kind of label, or two metrics with the same name.

    >>> build_objective("numbers").names
    ('rmse', 'mae', 'loss')
    """
    if target not in losses.DEFAULTS:
        raise ParameterError("target", target, f"one of {', '.join(losses.DEFAULTS)}")
    chosen = DEFAULTS[target] if metric is None else tuple(metric)
    found = tuple(_metric(one, target, folder) for one in chosen)
    names = [one.name for one in found]
    if len({*names, LOSS}) != len(names) + 1:
        raise ParameterError(
            "model.metrics", names, f"different names, without {LOSS!r}, which is always reported"
        )
    return Objective(target, _loss(loss, target, folder), found)


def _loss(given: str | Callable[..., Any] | None, target: str, folder: Path) -> Loss:
    """Requested loss, after a check that it accepts this kind of label."""
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
    """Requested metric, after a check that it accepts this kind of label."""
    key = "model.metrics"
    if not isinstance(given, str):
        name = getattr(given, "__name__", "own")
        return own_metric(_called(key, given), reference_of(given), name)
    if is_reference(given):
        function, reference = imported(key, given, folder)
        return own_metric(_called(key, function), reference, given.rpartition(":")[2])
    found = metric_named(given)
    if found is None or target not in found.targets:
        suited = [name for name, one in METRICS.items() if target in one.targets]
        more = ", top-k such as top-5" if target in ("class", "tokens") else ""
        expected = f"{', '.join(suited)}{more} for target = {target!r}, or module:name"
        raise ParameterError(key, given, expected)
    return found


def _called(key: str, given: object) -> Callable[..., Any]:
    """Custom function of a loss or metric, after a check that the function can be called."""
    if not callable(given):
        raise ParameterError(key, repr(given), "a function of outputs and labels")
    return given
