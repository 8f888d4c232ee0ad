"""A plan from its file to its report: the one place that joins data, simulation and reporting."""

from turnout.runs.execution import InterruptedRunError, Unwatched, Watcher
from turnout.runs.training import Finished, resume, train

__all__ = ["Finished", "InterruptedRunError", "Unwatched", "Watcher", "resume", "train"]
