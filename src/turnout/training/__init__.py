"""A plan from its file to its report: the one place that joins data, simulation and reporting."""

from turnout.training.execution import InterruptedRunError, Unwatched, Watcher
from turnout.training.runs import Finished, resume, train

__all__ = ["Finished", "InterruptedRunError", "Unwatched", "Watcher", "resume", "train"]
