"""Logs, as lines of JSON that never link a device to a step, and Prometheus metrics.

`configure` sets up logging, and `logger` returns the service's logger. `Metrics` is for the
operator; no metric is about a single device.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import Any, TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from turnout.service.contract.charter import Charter
from turnout.service.storage.interface import Scored

_DEVICE = frozenset({"client", "clients", "device", "public_key", "peer"})
_SLOT = frozenset({"step", "slot", "turn", "block", "window"})
WITHHELD = "withheld"


def without_devices_at_steps(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Log event without its device ids if it also names a step, also in nested values.

    >>> without_devices_at_steps(None, "info", {"event": "check-in", "client": 3, "step": 7})
    {'event': 'check-in', 'step': 7, 'withheld': ['client']}
    """
    names = _names(event)
    if not (names & _DEVICE and names & _SLOT):
        return event
    kept = _without_devices(event)
    kept[WITHHELD] = sorted(names & _DEVICE)
    return kept


def configure(stream: TextIO | None = None) -> None:
    """Send the log entries of service and server to a stream, by default standard error."""
    # Processors of all lines, those of other libraries included.
    shared = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_devices_at_steps,
    ]
    # One handler renders JSON for the service's loggers and asyncio's.
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    for name in ("turnout.service", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    # The service's own lines go through structlog to the same handler.
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def logger() -> Any:
    """Structured logger of the service."""
    return structlog.stdlib.get_logger("turnout.service")


def _names(event: Any) -> set[str]:
    """Names of all keys of a log event in lower case, also in nested values."""
    if isinstance(event, Mapping):
        return {str(key).lower() for key in event}.union(*map(_names, event.values()))
    if isinstance(event, list | tuple):
        return set[str]().union(*map(_names, event))
    return set()


def _without_devices(event: Any) -> Any:
    """Log event without the keys that identify devices, also in nested values."""
    if isinstance(event, Mapping):
        return {k: _without_devices(v) for k, v in event.items() if str(k).lower() not in _DEVICE}
    if isinstance(event, list | tuple):
        return [_without_devices(value) for value in event]
    return event


_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_JOBS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Prometheus metrics of one coordinator, in a separate registry."""

    def __init__(self) -> None:
        # Requests, their commits, and the queue of the writer.
        own = self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=own), partial(Gauge, registry=own)
        seconds = partial(Histogram, registry=own, buckets=_SECONDS)
        self.requests = counter(
            "turnout_requests", "Requests by route and status", ["route", "status"]
        )
        self.commit_seconds = seconds("turnout_commit_seconds", "Time of one commit")
        self.batch_jobs = Histogram(
            "turnout_commit_jobs", "Jobs that shared a commit", buckets=_JOBS, registry=own
        )
        self.request_seconds = seconds(
            "turnout_signed_request_seconds",
            "From the last byte of a signed request to its durable answer",
        )
        self.waiting_jobs = gauge("turnout_waiting_jobs", "Jobs that are not committed yet")
        self.waiting_bytes = gauge("turnout_waiting_bytes", "Bytes that are not committed yet")
        # The run, its ε and its models.
        self.step = gauge("turnout_step", "Step in progress")
        self.steps = gauge("turnout_steps", "Steps of the run")
        self.epsilon = gauge("turnout_epsilon_spent", "Upper bound, for all published models")
        self.target = gauge("turnout_epsilon_target", "Largest epsilon of the task")
        self.late_seconds = seconds(
            "turnout_publication_late_seconds",
            "Time from the due moment of a publication to the publication",
        )
        self.wrong_passwords = counter(
            "turnout_wrong_passwords",
            "Wrong passwords for the operator's pages, by answer",
            ["answer"],
        )
        self.accuracy = gauge("turnout_accuracy", "Accuracy of the newest evaluated model")
        self.evaluation = gauge("turnout_evaluation", "1 while models are evaluated, otherwise 0")
        self.evaluation.set(True)
        self.loss = gauge("turnout_loss", "Loss of the newest evaluated model")

    def published(self, charter: Charter, steps: int) -> None:
        """Set the metrics of progress and ε after ``steps`` published releases."""
        self.step.set(steps)
        self.steps.set(charter.steps)
        self.epsilon.set(charter.spent(steps))
        self.target.set(charter.target)

    def committed(self, seconds: float, jobs: int) -> None:
        """Record a commit of ``jobs`` jobs that took ``seconds``."""
        self.commit_seconds.observe(seconds)
        self.batch_jobs.observe(jobs)

    def scored(self, scored: Scored) -> None:
        """Set accuracy and loss of the newest evaluated model."""
        self.accuracy.set(scored.accuracy)
        self.loss.set(scored.loss)

    def text(self, waiting: tuple[int, int]) -> bytes:
        """All metrics in Prometheus' text format.

        ``waiting`` has the numbers of jobs and bytes that wait for the writer.
        """
        self.waiting_jobs.set(waiting[0])
        self.waiting_bytes.set(waiting[1])
        return generate_latest(self.registry)
