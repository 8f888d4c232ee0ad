"""What a step does with updates: one mechanism a file, named as the scheme's release rule is.

A scheme's mechanism is built by `mechanism_for`. One of your own needs no name here: whatever has
the members of `Mechanism` can be handed to a coordinator.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

from turnout.core.errors import ParameterError, UnsupportedError
from turnout.protocol.mechanisms.interface import (
    IndependentNoise,
    Mechanism,
    NoiseProcess,
    Released,
    SensitivityBound,
    State,
)
from turnout.spec import GaussianNoise, Scheme

__all__ = [
    "IndependentNoise",
    "Mechanism",
    "NoiseProcess",
    "Released",
    "SensitivityBound",
    "State",
    "mechanism_for",
]


def mechanism_for(
    scheme: Scheme,
    bound: SensitivityBound,
    *,
    expected_check_ins: float | None = None,
    minibatch: int = 1,
) -> Mechanism:
    """The mechanism that executes a scheme's release rule with its noise.

    Args:
        scheme: names rule and randomizer.
        bound: what clients send: C and the dimension of updates.
        expected_check_ins: n̄, public divisor of aggregated sums; not used by the other rules.
        minibatch: b of one-client releases; 1 for the other rules.

    Raises:
        ParameterError: a value outside its domain, or a minibatch that the rule does not have.
        UnsupportedError: the randomizer is not Gaussian noise.
    """
    law = scheme.randomizer
    if not isinstance(law, GaussianNoise):
        raise UnsupportedError(f"training adds Gaussian noise, not {type(law).__name__}")
    built = import_module(f"{__name__}.{scheme.release.value.replace('-', '_')}").MECHANISM
    settings = {"expected_check_ins": expected_check_ins, "minibatch": minibatch}
    taken = {field.name for field in fields(built)}
    if minibatch != 1 and "minibatch" not in taken:
        raise ParameterError("minibatch", minibatch, f"1 with release rule '{scheme.release}'")
    return built(law, bound, **{name: settings[name] for name in settings if name in taken})
