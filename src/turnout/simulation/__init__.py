"""Simulation of whole runs on one machine, with the protocol objects that a service uses."""

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
