"""What one step releases, given the updates of those who checked in."""

from __future__ import annotations

from enum import StrEnum


class ReleaseRule(StrEnum):
    """How a step turns check-ins into one public model change.

    Guarantees (docs/design/protocols.md derives what each is worth):
        AGGREGATED: the sum of all clipped updates plus one Gaussian, divided by the *public
            expected* number of check-ins; noise is released even when nobody came. A client
            moves the release by at most C when she is added, removed or zeroed out.
        ONE_CLIENT: Algorithm 1 of the check-in paper. One of those who checked in, drawn
            uniformly, sends a noisy update; a dummy (zero) update with noise when nobody
            came. She may displace somebody else's update, so adding her moves the release
            by up to 2C.
        AVERAGED: Algorithm 2. The average of the noisy updates of all who came; the step is
            skipped when nobody came. The adversary learns the *counts*.
    """

    AGGREGATED = "aggregated"
    ONE_CLIENT = "one-client"
    AVERAGED = "averaged"
