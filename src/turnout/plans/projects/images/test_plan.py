"""Test of two steps of the plan: its ε is at most the target. Run it with pytest."""

from __future__ import annotations

import tomllib
from pathlib import Path

import make_records

import turnout as tn

HERE = Path(__file__).parent


def test_the_plan_trains_for_two_steps_at_its_epsilon(monkeypatch):
    """Train for two steps of the plan, with noise calibrated for two steps."""
    monkeypatch.chdir(HERE)
    make_records.main()
    plan = tomllib.loads((HERE / "plan.toml").read_text())
    plan["participation"] |= {"window": 2, "windows": 1}
    run = tn.train(plan)
    assert run.guarantee.epsilon.upper <= plan["privacy"]["epsilon"]
