"""Sources of randomness, passed as arguments: the operating system's, or a simulation's."""

from typing import TYPE_CHECKING

from turnout.core.optional import loaded_on_demand

if TYPE_CHECKING:
    from turnout.randomness.lattice_noise import rounded_gaussian
    from turnout.randomness.simulation import SimulationRandomness, SimulationStreams
    from turnout.randomness.source import Source
    from turnout.randomness.system import ByteStream, OSRandomness, system_bytes

__getattr__ = loaded_on_demand(
    __name__,
    {
        "lattice_noise": "rounded_gaussian",
        "simulation": "SimulationRandomness SimulationStreams",
        "source": "Source",
        "system": "ByteStream OSRandomness system_bytes",
    },
)

__all__ = [
    "ByteStream",
    "OSRandomness",
    "SimulationRandomness",
    "SimulationStreams",
    "Source",
    "rounded_gaussian",
    "system_bytes",
]
