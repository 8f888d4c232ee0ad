"""Logs as JSON, one line each, that never join a device with a slot; and Prometheus metrics.

`configure` and `logger` set up logging; `Metrics` is for the operator, and none of them is about a
device.
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


def part_devices_from_slots(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The event without its devices where it names slots as well, also inside of it.

    >>> part_devices_from_slots(None, "info", {"event": "came", "client": 3, "step": 7})
    {'event': 'came', 'step': 7, 'withheld': ['client']}
    """
    names = _names(event)
    if not (names & _DEVICE and names & _SLOT):
        return event
    kept = _without(event)
    kept[WITHHELD] = sorted(names & _DEVICE)
    return kept


def configure(stream: TextIO | None = None) -> None:
    """Sends the service's and the server's logs to a stream, standard error by default."""
    shared = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        part_devices_from_slots,
    ]
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
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def logger() -> Any:
    """The service's logger."""
    return structlog.stdlib.get_logger("turnout.service")


def _names(event: Any) -> set[str]:
    """All keys, inside of values too."""
    if isinstance(event, Mapping):
        return {str(key).lower() for key in event}.union(*map(_names, event.values()))
    if isinstance(event, list | tuple):
        return set[str]().union(*map(_names, event))
    return set()


def _without(event: Any) -> Any:
    if isinstance(event, Mapping):
        return {k: _without(v) for k, v in event.items() if str(k).lower() not in _DEVICE}
    if isinstance(event, list | tuple):
        return [_without(value) for value in event]
    return event


_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_JOBS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one coordinator, in a registry of their own."""

    def __init__(self) -> None:
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
        self.waiting_bytes = gauge("turnout_waiting_bytes", "Bodies that are not committed yet")
        self.step = gauge("turnout_step", "The step in progress")
        self.steps = gauge("turnout_steps", "Steps of the run")
        self.epsilon = gauge("turnout_epsilon_spent", "Spent by what is published, an upper bound")
        self.target = gauge("turnout_epsilon_target", "What must not be exceeded")
        self.late_seconds = seconds(
            "turnout_publication_late_seconds",
            "How long after its time a model was published",
        )
        self.wrong_passwords = counter(
            "turnout_wrong_passwords",
            "Passwords for the operator's pages that were refused, or not compared",
            ["answer"],
        )
        self.accuracy = gauge("turnout_accuracy", "Of the newest evaluated model")
        self.evaluation = gauge(
            "turnout_evaluation", "Whether models are evaluated, or about to be"
        )
        self.evaluation.set(True)
        self.loss = gauge("turnout_loss", "Of the newest evaluated model")

    def published(self, charter: Charter, steps: int) -> None:
        """So many releases are published."""
        self.step.set(steps)
        self.steps.set(charter.steps)
        self.epsilon.set(charter.spent(steps))
        self.target.set(charter.target)

    def committed(self, seconds: float, jobs: int) -> None:
        """So many jobs were committed together, which took so long."""
        self.commit_seconds.observe(seconds)
        self.batch_jobs.observe(jobs)

    def scored(self, scored: Scored) -> None:
        """A model was evaluated."""
        self.accuracy.set(scored.accuracy)
        self.loss.set(scored.loss)

    def text(self, waiting: tuple[int, int]) -> bytes:
        """All of them in Prometheus' text format."""
        self.waiting_jobs.set(waiting[0])
        self.waiting_bytes.set(waiting[1])
        return generate_latest(self.registry)
