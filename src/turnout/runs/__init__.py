"""Runs of plans: load the data, simulate the run, and write the report."""

from turnout.runs.execution import Unwatched, Watcher
from turnout.runs.folders import InterruptedRunError
from turnout.runs.training import Finished, resume, train

__all__ = ["Finished", "InterruptedRunError", "Unwatched", "Watcher", "resume", "train"]
