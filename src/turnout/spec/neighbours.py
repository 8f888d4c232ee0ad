"""Who is protected against what: neighbouring relation, privacy unit, trust model, order.

There is no default relation anywhere: a number without these three words is not a guarantee.
"""

from __future__ import annotations

from enum import StrEnum


class Relation(StrEnum):
    """Which two worlds an adversary must not tell apart."""

    ADD_REMOVE = "add-remove"
    """The client was never there."""
    ZERO_OUT = "zero-out"
    """The client takes part with the null record (a zero update)."""
    REPLACE_ONE = "replace-one"
    """The client's record is another one."""


class PrivacyUnit(StrEnum):
    """What "one record" means."""

    CLIENT = "client"
    """Everything that one client holds."""


class TrustModel(StrEnum):
    """Whom the client must trust for the guarantee to hold."""

    CENTRAL = "central"
    """A coordinator that sees updates and check-in times and adds or guards the noise."""
    LOCAL = "local"
    """Nobody: each message is private on its own."""
    SHUFFLED = "shuffled"
    """A shuffler that hides who sent what."""


class SpeakingOrder(StrEnum):
    """Who may know which client sends which message of a shuffled round.

    Bounds for randomizers that earlier messages may choose hold for `HIDDEN` alone: who is known to
    speak first can be singled out by what later clients are asked (docs/errata.md has numbers). One
    randomizer that all clients use and that is chosen before the round needs no such condition.
    """

    HIDDEN = "hidden"
    """Uniform, and unknown to the adversary and to whoever chooses the next randomizer."""
    KNOWN = "known"
    """Anything else: order of arrival, or a server that addresses clients one after the other."""
