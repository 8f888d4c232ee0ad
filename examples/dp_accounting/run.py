"""Composition of turnout's events by dp-accounting: python examples/dp_accounting/run.py"""

from __future__ import annotations

from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation

from turnout.integrations.dp_accounting import Accountant, random_allocation, shuffle
from turnout.schemes import KaryResponse

DELTA = 1e-6


def main() -> None:
    """Print ε of a training run with a histogram, and of a shuffled survey."""
    accountant = Accountant(value_discretization_interval=1e-3)
    accountant.compose(random_allocation(dp_event.GaussianDpEvent(1.0), 1, 1000), count=4)
    print(f"four epochs of 1,000 steps: epsilon = {accountant.get_epsilon(DELTA):.3f}")
    accountant.compose(dp_event.GaussianDpEvent(10.0))
    print(f"and a histogram: epsilon = {accountant.get_epsilon(DELTA):.3f}")
    survey = Accountant(NeighboringRelation.REPLACE_ONE, 1e-3)
    survey.compose(shuffle(KaryResponse(1.0, 4), clients=10_000))
    print(f"10,000 shuffled answers: epsilon = {survey.get_epsilon(DELTA):.3f}")


if __name__ == "__main__":
    main()
