"""The optimiser that a plan describes; numpy is all that it needs."""

from __future__ import annotations

from turnout.learning.optimizers import (
    Averaged,
    Optimizer,
    Projected,
    build_averaging,
    build_optimizer,
    build_schedule,
)
from turnout.plans.sections import OptimizerSection


def build_optimizer_of(section: OptimizerSection, steps: int) -> Optimizer:
    """The optimiser of a run in which the model moves so many times, averaging included."""
    rate = build_schedule(section.schedule, section.learning_rate, steps, section.warmup_steps)
    optimizer = build_optimizer(
        section.name, rate, momentum=section.momentum, weight_decay=section.weight_decay
    )
    if section.radius is not None:
        optimizer = Projected(optimizer, section.radius)
    if section.averaging == "none":
        return optimizer
    averaging = build_averaging(
        section.averaging, steps, section.averaging_decay, section.averaging_tail
    )
    return Averaged(optimizer, averaging)
