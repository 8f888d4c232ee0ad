"""Randomness as an argument: one primitive, the operating system's or a simulation's."""

from turnout.randomness.lattice_noise import ByteStream, rounded_gaussian, system_bytes
from turnout.randomness.simulation import SimulationRandomness, SimulationStreams
from turnout.randomness.source import Source
from turnout.randomness.system import OSRandomness

__all__ = [
    "ByteStream",
    "OSRandomness",
    "SimulationRandomness",
    "SimulationStreams",
    "Source",
    "rounded_gaussian",
    "system_bytes",
]
