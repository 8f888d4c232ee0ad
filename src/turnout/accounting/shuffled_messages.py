"""The price of shuffled messages of one randomizer that all clients use, chosen beforehand.

Nothing rests on who speaks when (Theorem 2 of docs/design/shuffling.md), and where two records'
laws are less apart than ε₀ allows (`BoundedVariation`), or are known altogether, less is shown than
by the worst pair of all ε₀-randomizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from turnout.accounting.divergence.blocks import Decomposition, NeighbourBound, merged
from turnout.accounting.pricing import decomposition_upper
from turnout.accounting.shuffling.messages import one_round
from turnout.core import checks
from turnout.core.errors import UnsupportedError
from turnout.schemes import NonAdaptiveRandomizer, PureRandomizer

Messages = Sequence[tuple[PureRandomizer, int]]
"""The laws of one client's messages, and how many there are of each."""


@lru_cache(maxsize=1024)
def _shuffled_price(laws: tuple[tuple[PureRandomizer, int], ...], n: int, delta: float) -> float:
    run = merged([(one_round(law, n).upper, count) for law, count in laws])
    cap = sum(count * law.epsilon0 for law, count in laws)
    bound = NeighbourBound(run, [], "shuffled messages", tight=False, symmetric=True, cap=cap)
    return decomposition_upper(Decomposition(bound), delta)


def shuffled_price(messages: Messages, clients: int, delta: float) -> float:
    """ε of the messages of n clients, each message shuffled with the others' of its number.

    Source: docs/design/shuffling.md; composed numerically over a client's messages.

    Args:
        messages: of each client, independent of each other given the client's record.
        clients: n ≥ 1, all of whom follow the protocol.
        delta: δ in (0, 1).

    Returns:
        ε under replace-one, never below the true one and never above the sum of the ε₀.

    Raises:
        UnsupportedError: a law that not all clients share.

    >>> from turnout.schemes import KaryResponse
    >>> round(shuffled_price([(KaryResponse(4.0, 2), 1)], 10**6, 1e-8), 4)
    0.032
    """
    _require_shared(messages)
    checks.count(clients=clients)
    checks.open_unit(delta=delta)
    return _shuffled_price(tuple(messages), clients, delta)


def shuffled_method(messages: Messages) -> str:
    """The analyses of `shuffled_price`, in a few words."""
    _require_shared(messages)
    return ", ".join(sorted({one_round(law, 1).method for law, _ in messages}))


def _require_shared(messages: Messages) -> None:
    for law, _ in messages:
        if not isinstance(law, NonAdaptiveRandomizer):
            raise UnsupportedError(
                f"shuffled messages of {type(law).__name__}: no law is known that all clients "
                "share; public randomness would tell who sent what"
            )
