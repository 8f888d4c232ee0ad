"""Registered policies are selected in plans by their names."""

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
def test_a_plan_selects_a_registered_policy_by_name(name):
    plan = BanditPlan.from_toml(PLAN.format(name=name))
    assert plan.policy.first_batch == registered_policies()[name].first
    assert hasattr(policy_of(plan), "update")
    assert mechanism_of(plan).delta == 1e-4


def test_an_error_about_an_unknown_policy_lists_the_registered_ones():
    names = ", ".join(f"'{name}'" for name in list(registered_policies())[:-1])
    with pytest.raises(ParameterError, match=names):
        BanditPlan.from_toml(PLAN.format(name="greedy"))


def test_registering_a_policy_name_twice_is_refused():
    with pytest.raises(ParameterError, match="a name that no other policy has"):
        register_policy("thompson", "another policy")(thompson_from_plan)
