"""Simulation: whole runs on this machine, through the objects that a service would drive."""

from turnout.simulation.checkpoints import Checkpoint, CheckpointStore, FileCheckpoints, History
from turnout.simulation.engine import Progress, Simulation, SimulationResult

__all__ = [
    "Checkpoint",
    "CheckpointStore",
    "FileCheckpoints",
    "History",
    "Progress",
    "Simulation",
    "SimulationResult",
]
