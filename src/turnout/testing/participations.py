"""Conformance test of a participation: all parts of turnout agree with its sampler.

`assert_participation` enumerates the exact distribution of the sampler and compares it with the
documented guarantee, the expected check-ins, the admissions, the accountant's ε, the verifier and
the codec. So the participation must be small: few clients, and no more than about ten steps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from turnout.accounting import epsilon_upper, price
from turnout.core.errors import UnsupportedError
from turnout.participation.drawing import draw, expected_check_ins
from turnout.participation.schedule import Schedule, blocks
from turnout.protocol.coordinator import Admissions
from turnout.protocol.messages import Verdict
from turnout.schemes import (
    GaussianNoise,
    Participation,
    Relation,
    ReleaseRule,
    Scheme,
    TableRandomizer,
)
from turnout.schemes.codec import scheme_from_dict, scheme_to_dict
from turnout.schemes.normal_form import normal_form
from turnout.testing.enumeration import enumerate_outputs
from turnout.verification.cost import recomputed

ClientDistribution = Mapping[tuple[int, ...], Fraction]
"""Probabilities of the sets of steps in which one client takes part, each set ascending."""

_DELTA, _TOLERANCE = 0.02, 1e-2
_PRESENT, _ABSENT = (0.7, 0.3), (0.4, 0.6)


def assert_participation(
    participation: Participation,
    population: int,
    promise: Callable[[int], ClientDistribution] | None = None,
) -> None:
    """Fail unless all parts of turnout agree with a participation's sampler and its guarantee.

    Args:
        participation: participation with few enough draws for an enumeration.
        population: number of clients.
        promise: documented guarantee, as a function from a client to the probabilities of the sets
            of steps in which the client takes part; None for no comparison with a guarantee.

    Raises:
        AssertionError: a part of turnout disagrees with the sampler, or the sampler with
            ``promise``.
        UnsupportedError: too many draws for an enumeration.
    """
    found, stated = normal_form(participation).steps, participation.steps
    assert found == stated, f"the normal form has {found} steps: expected {stated}"
    clients: Sequence[ClientDistribution] = [
        client_distribution(participation, population, client) for client in range(population)
    ]
    if promise is not None:
        for client, sampled in enumerate(clients):
            wanted = {steps: weight for steps, weight in promise(client).items() if weight}
            assert sampled == wanted, (
                f"client {client} is drawn by the distribution {sampled}: expected {wanted}"
            )
    _assert_expected(participation, population, clients)
    for client, sampled in enumerate(clients):
        _assert_admitted(participation, population, client, sampled)
    _assert_written(participation)
    _assert_priced(participation, clients)
    _assert_verified(participation)


def client_distribution(
    participation: Participation, population: int, client: int
) -> dict[tuple[int, ...], Fraction]:
    """Exact probabilities of the sets of steps in which a client takes part, by enumeration.

    Args:
        participation: participation with few enough draws for an enumeration.
        population: number of clients.
        client: number of the client, from 0.

    Raises:
        UnsupportedError: too many draws for an enumeration.
    """
    run: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for block in blocks(participation):
        own = enumerate_outputs(
            lambda source, block=block: _steps_of(
                draw(participation, population, block, source), client
            )
        )
        longer: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for (before, weight), (steps, chance) in product(run.items(), own.items()):
            assert isinstance(steps, tuple)
            longer[before + steps] += weight * chance
        run = dict(longer)
    return {steps: weight for steps, weight in run.items() if weight}


def _steps_of(schedule: Schedule, client: int) -> tuple[int, ...]:
    """Steps of one client in a schedule, ascending."""
    return tuple(sorted(schedule.slots()[schedule.clients == client].tolist()))


def _assert_expected(
    participation: Participation, population: int, clients: Sequence[ClientDistribution]
) -> None:
    """Require that the expected check-ins of each step agree with the sampler."""
    counts = [Fraction(0)] * participation.steps
    for own in clients:
        for steps, weight in own.items():
            for step in steps:
                counts[step] += weight
    expected = expected_check_ins(participation, population)
    message = "the expected check-ins by step differ from those of the sampler"
    sampled = [float(c) for c in counts]
    np.testing.assert_allclose(expected, sampled, rtol=1e-9, atol=1e-12, err_msg=message)


def _assert_admitted(
    participation: Participation, population: int, client: int, own: ClientDistribution
) -> None:
    """Require that a client is admitted in all drawn steps, and in no more steps than possible."""
    for drawn in own:
        record = Admissions(participation, population)
        taken = [step for step in drawn if _admits(record, client, step)]
        assert taken == list(drawn), (
            f"client {client} drew the steps {drawn}, but is admitted only in {taken}"
        )
    greedy = Admissions(participation, population)
    admitted = [step for step in range(participation.steps) if _admits(greedy, client, step)]
    possible = {step for steps in own for step in steps}
    assert set(admitted) <= possible, (
        f"client {client} is admitted in the steps {admitted}: expected some of {sorted(possible)}"
    )
    for block in blocks(participation):
        inside = range(block.first_step, block.first_step + block.steps)
        most = max(sum(step in inside for step in steps) for steps in own)
        came = sum(step in inside for step in admitted)
        assert came <= most, (
            f"client {client} is admitted {came} times in {block}: expected at most {most}"
        )


def _admits(record: Admissions, client: int, step: int) -> bool:
    """Whether the coordinator's record admits a client in a step."""
    ids = np.array([client], dtype=np.int64)
    return int(record.admit(ids, step)[0]) == Verdict.ACCEPTED


def _assert_written(participation: Participation) -> None:
    """Require that the codec returns the scheme that was encoded."""
    scheme = Scheme(GaussianNoise(1.0), participation, Relation.ADD_REMOVE)
    written = scheme_to_dict(scheme)
    assert scheme_to_dict(scheme_from_dict(written)) == written, "a decoded scheme differs"


def _assert_priced(participation: Participation, clients: Sequence[ClientDistribution]) -> None:
    """Require a finite ε or an UnsupportedError for each scheme, and bounds that enclose δ."""
    # Each combination has a finite bound, or the accountant reports that it is not supported.
    for relation, release in product(Relation, ReleaseRule):
        try:
            upper = epsilon_upper(
                Scheme(GaussianNoise(4.0), participation, relation, release), _DELTA
            )
        except UnsupportedError:
            continue
        assert 0.0 <= upper < math.inf, (
            f"ε = {upper} under {relation.value} with {release.value} releases: expected finite"
        )
    # For a randomizer given as a table, the bounds are compared with the sampler's exact δ.
    table = TableRandomizer(_PRESENT, _ABSENT)
    try:
        found = price(Scheme(table, participation, Relation.ADD_REMOVE), _DELTA, _TOLERANCE).epsilon
    except UnsupportedError:
        return
    truths = [max(_deltas(own, participation.steps, found.upper)) for own in clients]
    assert max(truths) <= _DELTA * (1 + 1e-9), "the exact ε exceeds the accountant's upper bound"
    if found.lower > 0 and all(own == clients[0] for own in clients):
        reached = max(_deltas(clients[0], participation.steps, found.lower * (1 - 1e-9)))
        assert reached >= _DELTA * (1 - 1e-6), "the exact ε is below the lower bound"


def _deltas(own: ClientDistribution, steps: int, epsilon: float) -> tuple[float, float]:
    """Exact δ at ε for removing the client, and for adding the client."""
    worlds: list[tuple[float, float]] = []
    for outputs in product((0, 1), repeat=steps):
        absent = [_ABSENT[output] for output in outputs]
        present = [_PRESENT[output] for output in outputs]
        with_client = 0.0
        for drawn, weight in own.items():
            chances = [present[t] if t in drawn else absent[t] for t in range(steps)]
            with_client += float(weight) * math.prod(chances)
        worlds.append((with_client, math.prod(absent)))
    grown = math.exp(epsilon)
    remove = math.fsum(max(p - grown * q, 0.0) for p, q in worlds)
    add = math.fsum(max(q - grown * p, 0.0) for p, q in worlds)
    return remove, add


def _assert_verified(participation: Participation) -> None:
    """Require that the bounds of verifier and accountant overlap where both have an analysis."""
    scheme = Scheme(GaussianNoise(2.0), participation, Relation.ADD_REMOVE)
    try:
        found, _ = recomputed(scheme, participation.steps, _DELTA)
        priced = price(scheme, _DELTA, _TOLERANCE).epsilon
    except UnsupportedError:
        return
    below = found.lower <= priced.upper * (1 + 1e-9)
    assert below, "the verifier's lower bound on ε exceeds the accountant's upper bound"
    above = priced.lower <= found.upper * (1 + 1e-9)
    assert above, "the verifier's upper bound on ε is below the accountant's lower bound"
