"""What one step releases, given the updates of those who checked in."""

from __future__ import annotations

from enum import StrEnum


class ReleaseRule(StrEnum):
    """How a step turns check-ins into one public model change.

    Guarantees (docs/design/protocols.md derives what each is worth):
        AGGREGATED: the sum of all clipped updates plus one Gaussian, divided by the *public
            expected* number of check-ins; noise is released even when nobody came. A client
            moves the release by at most C when it is added, removed or zeroed out.
        ONE_CLIENT: Algorithm 1 of the check-in paper. One of those who checked in, drawn
            uniformly, sends a noisy update; a dummy (zero) update with noise when nobody
            came. It may displace somebody else's update, so adding a client moves the
            release by up to 2C.
        AVERAGED: Algorithm 2. The average of the noisy updates of all who came; the step is
            skipped when nobody came. The adversary learns the *counts*.
    """

    AGGREGATED = "aggregated"
    ONE_CLIENT = "one-client"
    AVERAGED = "averaged"

    @property
    def asks_one(self) -> bool:
        """Whether one of those who checked in is asked for an update, and not all."""
        return self is ReleaseRule.ONE_CLIENT

    @property
    def shows_counts(self) -> bool:
        """Whether a release tells how many came."""
        return self is ReleaseRule.AVERAGED
