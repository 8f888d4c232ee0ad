"""Tasks that `simulated_world` simulates."""

from __future__ import annotations

import hashlib
from functools import cache

from turnout.protocol.lattice import Lattice
from turnout.protocol.randomized import MessageEncoding
from turnout.randomizers.vectors import SeededCode
from turnout.schemes import (
    CheckIn,
    FixedAssignment,
    GaussianNoise,
    KSubset,
    Relation,
    ReleaseRule,
    Scheme,
    SlidingWindow,
    TrustModel,
)
from turnout.service.contract.charter import Charter, Timing

DEVICES, DIMENSION = 6, 2
MESSAGES = SeededCode(DIMENSION, 2.0, directions=2, preferred=1)
SCENES = (
    (CheckIn(3, 2), ReleaseRule.AGGREGATED, 1),
    (KSubset(4, 2), ReleaseRule.AGGREGATED, 1),
    (SlidingWindow(3, 6, 1), ReleaseRule.AGGREGATED, 1),
    (FixedAssignment(3, 2), ReleaseRule.AGGREGATED, 1),
    (CheckIn(3, 2), ReleaseRule.ONE_CLIENT, 1),
    (CheckIn(3, 2), ReleaseRule.ONE_CLIENT, 2),
    (CheckIn(3, 2), ReleaseRule.AGGREGATED, 1, MESSAGES),
)
EPSILON_A_STEP = 0.25


@cache
def charter_of(participation, rule, minibatch, messages=None) -> Charter:
    steps = participation.steps
    scheme = Scheme(GaussianNoise(1.0), participation, Relation.ADD_REMOVE, rule)
    if messages is not None:
        scheme = Scheme(
            messages.priced_as, participation, Relation.REPLACE_ONE, rule, trust=TrustModel.LOCAL
        )
    return Charter(
        plan="",
        population=DEVICES,
        scheme=scheme,
        delta=1e-5,
        target=EPSILON_A_STEP * steps,
        charged_steps=tuple(range(steps + 1)),
        charged=tuple(EPSILON_A_STEP * s for s in range(steps + 1)),
        encoding=MessageEncoding(messages) if messages else Lattice(1 / 64, 1.0, DIMENSION),
        expected_check_ins=2.0 if rule is ReleaseRule.AGGREGATED else None,
        minibatch=minibatch,
        initial_model=hashlib.sha256(bytes(4 * DIMENSION)).digest(),
        timing=Timing(),
        coordinator_key=bytes(32),
    )
