"""Runs of plans, from the plan's file to the report; they join data, simulation and reporting."""

from turnout.runs.execution import Unwatched, Watcher
from turnout.runs.folders import InterruptedRunError
from turnout.runs.training import Finished, resume, train

__all__ = ["Finished", "InterruptedRunError", "Unwatched", "Watcher", "resume", "train"]
