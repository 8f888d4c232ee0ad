"""Registered policies: each reaches plans by its name."""

from __future__ import annotations

import pytest

from turnout.bandits.policy import register_policy, registered_policies
from turnout.bandits.thompson import thompson_from_plan
from turnout.core.errors import ParameterError
from turnout.plans.bandit import BanditPlan
from turnout.runs.bandit import mechanism_of, policy_of

PLAN = """
[environment]
horizon = 2000
actions = 5
[privacy]
trust = "shuffled"
epsilon = 1.0
delta = 1e-4
[policy]
name = "{name}"
"""


@pytest.mark.parametrize("name", registered_policies())
def test_registered_policy_is_built_from_a_plan(name):
    plan = BanditPlan.from_toml(PLAN.format(name=name))
    assert plan.policy.first_batch == registered_policies()[name].first
    assert hasattr(policy_of(plan), "update")
    assert mechanism_of(plan).delta == 1e-4


def test_plan_lists_the_registered_policies():
    names = ", ".join(f"'{name}'" for name in list(registered_policies())[:-1])
    with pytest.raises(ParameterError, match=names):
        BanditPlan.from_toml(PLAN.format(name="greedy"))


def test_registering_a_policy_name_twice_is_refused():
    with pytest.raises(ParameterError, match="a name that no other policy has"):
        register_policy("thompson", "another policy")(thompson_from_plan)
