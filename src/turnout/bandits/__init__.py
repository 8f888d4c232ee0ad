"""Private linear bandits: policies, mechanisms that protect rewards, environments, and runs.

One object executes, simulates and analyses a mechanism. A policy has access only to the sums that
the mechanism releases. docs/bandits.md is the guide, docs/design/bandits.md has the proofs.
"""

from typing import TYPE_CHECKING

from turnout.core.optional import loaded_on_demand

if TYPE_CHECKING:
    from turnout.bandits.elimination import (
        CoreSet,
        Elimination,
        LinUCB,
        core_set,
        phased_elimination,
    )
    from turnout.bandits.environment import (
        ContextualEnvironment,
        LinearEnvironment,
        LoggedEnvironment,
        best_features,
        contextual_environment,
        contextual_log,
        parameter_net,
        read_log,
        rounded_rewards,
        sphere_environment,
        two_best_environment,
    )
    from turnout.bandits.mechanisms import (
        BareSums,
        BatchMechanism,
        CentralSums,
        Channels,
        LocalBits,
        ShuffledBits,
    )
    from turnout.bandits.policy import Batch, BatchRelease, Policy, Problem
    from turnout.bandits.private_ucb import PrivateLinUCB
    from turnout.bandits.simulation import Run, simulate_bandit
    from turnout.bandits.thompson import BatchedThompson

__getattr__ = loaded_on_demand(
    __name__,
    {
        "elimination": "CoreSet Elimination LinUCB core_set phased_elimination",
        "environment": (
            "ContextualEnvironment LinearEnvironment LoggedEnvironment best_features "
            "contextual_environment contextual_log parameter_net read_log rounded_rewards "
            "sphere_environment two_best_environment"
        ),
        "mechanisms": "BareSums CentralSums Channels LocalBits BatchMechanism ShuffledBits",
        "policy": "Batch Policy Problem BatchRelease",
        "private_ucb": "PrivateLinUCB",
        "simulation": "Run simulate_bandit",
        "thompson": "BatchedThompson",
    },
)

__all__ = [
    "BareSums",
    "Batch",
    "BatchMechanism",
    "BatchRelease",
    "BatchedThompson",
    "CentralSums",
    "Channels",
    "ContextualEnvironment",
    "CoreSet",
    "Elimination",
    "LinUCB",
    "LinearEnvironment",
    "LocalBits",
    "LoggedEnvironment",
    "Policy",
    "PrivateLinUCB",
    "Problem",
    "Run",
    "ShuffledBits",
    "best_features",
    "contextual_environment",
    "contextual_log",
    "core_set",
    "parameter_net",
    "phased_elimination",
    "read_log",
    "rounded_rewards",
    "simulate_bandit",
    "sphere_environment",
    "two_best_environment",
]
