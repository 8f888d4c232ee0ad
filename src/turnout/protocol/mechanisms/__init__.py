"""Mechanisms, one a file, named as the scheme's release rule is.

A scheme's mechanism is built by `mechanism_for`. One of your own needs no name here: whatever has
the members of `Mechanism` can be handed to a coordinator.
"""

from turnout.protocol.mechanisms.gaussian import (
    GaussianMechanism,
    IndependentNoise,
    mechanism_for,
    public_divisor,
)
from turnout.protocol.mechanisms.interface import (
    Mechanism,
    NoiseProcess,
    Released,
    SensitivityBound,
    State,
)

__all__ = [
    "GaussianMechanism",
    "IndependentNoise",
    "Mechanism",
    "NoiseProcess",
    "Released",
    "SensitivityBound",
    "State",
    "mechanism_for",
    "public_divisor",
]
