"""What the operator's monitoring reads: Prometheus metrics, and none of them about a device."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from turnout.service.charter import Charter
from turnout.service.storage.interface import Scored

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_JOBS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one coordinator, in a registry of their own."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter(
            "turnout_requests",
            "Requests by route and status",
            ["route", "status"],
            registry=own,
        )
        self.commit_seconds = Histogram(
            "turnout_commit_seconds", "Time of one commit", buckets=_SECONDS, registry=own
        )
        self.batch_jobs = Histogram(
            "turnout_commit_jobs", "Jobs that shared a commit", buckets=_JOBS, registry=own
        )
        self.request_seconds = Histogram(
            "turnout_signed_request_seconds",
            "From the last byte of a signed request to its durable answer",
            buckets=_SECONDS,
            registry=own,
        )
        self.waiting_jobs = Gauge(
            "turnout_waiting_jobs", "Jobs that are not committed yet", registry=own
        )
        self.waiting_bytes = Gauge(
            "turnout_waiting_bytes", "Bodies that are not committed yet", registry=own
        )
        self.step = Gauge("turnout_step", "The step in progress", registry=own)
        self.steps = Gauge("turnout_steps", "Steps of the run", registry=own)
        self.epsilon = Gauge(
            "turnout_epsilon_spent", "Spent by what is published, an upper bound", registry=own
        )
        self.target = Gauge("turnout_epsilon_target", "What must not be exceeded", registry=own)
        self.late_seconds = Histogram(
            "turnout_publication_late_seconds",
            "How long after its time a model was published",
            buckets=_SECONDS,
            registry=own,
        )
        self.wrong_passwords = Counter(
            "turnout_wrong_passwords",
            "Passwords for the operator's pages that were refused, or not compared",
            ["answer"],
            registry=own,
        )
        self.accuracy = Gauge("turnout_accuracy", "Of the newest evaluated model", registry=own)
        self.evaluation = Gauge(
            "turnout_evaluation", "Whether models are evaluated, or about to be", registry=own
        )
        self.evaluation.set(True)
        self.loss = Gauge("turnout_loss", "Of the newest evaluated model", registry=own)

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
