"""Test of the plan with few clients: its ε is at most the target. Run it with pytest."""

from __future__ import annotations

import tomllib
from pathlib import Path

import turnout as tn


def test_the_plan_runs_with_few_clients_at_its_epsilon():
    """One run with few clients."""
    plan = tomllib.loads(Path(__file__).with_name("plan.toml").read_text())
    plan["environment"]["horizon"], plan["run"]["seeds"] = 500, 1
    run = tn.bandit(plan)
    assert run.guarantee is not None
    assert run.guarantee.epsilon.upper <= plan["privacy"]["epsilon"]
