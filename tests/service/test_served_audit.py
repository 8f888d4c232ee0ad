"""Audits of a served task: engine, database, encoded updates and restarts."""

import pytest

import turnout as tn
from turnout.accounting import price
from turnout.api.audit import stated_by
from turnout.auditing import play
from turnout.auditing.releases import whole_noise
from turnout.core.aggregates import IntegerSum
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.plans import Plan
from turnout.protocol.messages import Updates
from turnout.service.contract.charter import Timing
from turnout.service.coordinator.engine import Engine
from turnout.service.coordinator.new_task import new_task
from turnout.service.coordinator.releases import Releases
from turnout.service.coordinator.served_game import ServedGame

PLAN = {
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "participation": {"law": "check-in", "window": 3, "windows": 2},
    "privacy": {"relation": "add-remove", "noise_multiplier": 1.0, "delta": 1e-4},
    "optimizer": {"learning_rate": 1.0},
}


def plan_with(**tables):
    return {name: {**PLAN.get(name, {}), **tables.get(name, {})} for name in {*PLAN, *tables}}


@pytest.fixture(scope="module")
def charter(tmp_path_factory):
    text = Plan.from_mapping(PLAN).to_toml()
    return new_task(text, tmp_path_factory.mktemp("plan"), Timing()).charter


@pytest.fixture(scope="module")
def stated(charter):
    return stated_by(price(charter.scheme, 0.05))


def played(game, stated, trials=3000, seed=1):
    return play([game], "", stated, trials=trials, confidence=0.999, seed=seed)


def test_a_served_task_passes_its_audit(charter, stated):
    found = played(ServedGame(charter), stated)
    assert found.consistent
    assert found.epsilon_lower > 0.5 * stated.epsilon.upper


def test_the_audit_of_a_served_task_detects_noise_that_is_too_small(charter, stated):
    def quieter(generator):
        noise = whole_noise(generator)
        return lambda deviation, size: noise(0.7 * deviation, size)

    assert not played(ServedGame(charter, noise=quieter), stated).consistent


class CountsAgain(Releases):
    """Faulty releases that count stored updates twice after a restart."""

    restarted = False

    def _stored_updates(self, tx, step):
        updates = super()._stored_updates(tx, step)
        total = IntegerSum(updates.sum.total * (1 + self.restarted), updates.sum.count)
        return Updates(step, updates.clients, total)


def test_the_audit_of_a_served_task_detects_updates_counted_twice(
    charter, stated, monkeypatch, mutate
):
    class Restarted(Engine):
        def _resume_step(self, view):
            super()._resume_step(view)
            self._releases.restarted = self._step > 0 or view.arrived(0).size > 0

    monkeypatch.setattr("turnout.service.coordinator.engine.Releases", CountsAgain)
    mutate("turnout.service.coordinator.served_game", "_RESTARTED", 0.5)
    assert not played(ServedGame(charter, engine=Restarted), stated, trials=6000).consistent


def test_the_audit_of_a_served_task_reports_its_progress(tmp_path):
    told = []
    found = tn.audit(PLAN, served=True, trials=200, tell=lambda *done: told.append(done))
    assert told[-1] == (400, 400)
    assert found.consistent
    assert found.to_dict()["game"] == "a served task of the plan, with restarts"


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_served_tasks_are_audited_under_other_relations(relation):
    plan = plan_with(privacy={"relation": relation}, participation={"windows": 1})
    found = tn.audit(plan, served=True, trials=1500)
    assert found.consistent
    assert all(counted.epsilon > 0 for counted in found.found.also[0].found.values())


def test_audits_of_served_tasks_refuse_invalid_plans_and_games(charter):
    with pytest.raises(ParameterError, match="served"):
        tn.audit(charter.scheme, delta=1e-4, served=True)
    with pytest.raises(ParameterError, match="served"):
        tn.audit(PLAN, served=True, one_run=True)
    with pytest.raises(UnsupportedError, match="aggregated"):
        tn.audit(plan_with(protocol={"release": "one-client"}), served=True, trials=200)
