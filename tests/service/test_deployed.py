"""A coordinator and devices in separate processes train to the accuracy of a simulation."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hurried import hurry, hurry_fleet
from paced import by_its_devices
from processes import done, free_port, turnout, waited_for

from turnout.plans import Plan, prepare
from turnout.runs.building import build_algorithm
from turnout.runs.workload import gather
from turnout.service.contract.charter import Charter
from turnout.service.contract.wire import Invitation
from turnout.service.device import Memory
from turnout.service.storage.opening import open_storage

PLAN = """
[data]
name = "digits"
clients = 90
[model]
name = "logistic"
features = "standardized"
[participation]
law = "{law}"
{shape}
[privacy]
relation = "add-remove"
delta = 1e-3
noise_multiplier = 0.6
clip_norm = 1.0
[protocol]
release = "{release}"
[optimizer]
learning_rate = 0.8
"""
AGGREGATED = PLAN.format(law="check-in", shape="window = 5\nwindows = 2", release="aggregated")
ONE_CLIENT = PLAN.format(law="check-in", shape="window = 6\nwindows = 1", release="one-client")
SLIDING = PLAN.format(law="sliding", shape="window = 5\nclients_per_slot = 6", release="aggregated")
SEEDS = range(12)
STEP_SECONDS = 3600
"""Time for computing; a step lasts until all devices that drew it have finished it."""


def simulated_accuracies(text: str) -> np.ndarray:
    """Final accuracies of simulations of the plan, one per seed."""
    from turnout.simulation import Simulation

    plan = Plan.from_toml(text)
    workload = gather(plan, Path())
    prepared = prepare(plan, workload.population, workload.participation)
    algorithm = build_algorithm(workload)
    accuracies = []
    for seed in SEEDS:
        simulation = Simulation(
            prepared.scheme,
            algorithm,
            seed=seed,
            evaluate_every=workload.participation.steps,
        )
        accuracies.append(simulation.run().history.metrics["accuracy"][-1])
    return np.array(accuracies)


class Trial:
    """Plan that is served to devices in other processes until the run ends."""

    def __init__(self, folder: Path, text: str, database: str, processes: int = 1) -> None:
        self.folder, self.database, self.log = folder, database, folder / "server.log"
        self.states, self.left, self.processes = folder / "states", folder / "left", processes
        self.plan = folder / "plan.toml"
        self.plan.write_text(text)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def invitations(self, count: int) -> list[str]:
        """Invitation tokens of a task created for ``count`` clients."""
        tokens = self.folder / "tokens.txt"
        options = ["--db", self.database, "--plan", self.plan, "--out", tokens]
        options += ["--step-seconds", STEP_SECONDS]
        done(turnout("enrol", count, *options, log=self.log), self.log)
        return tokens.read_text().split()

    def run(self, tokens: list[str]) -> None:
        """Run two single devices and a fleet of all others until the last step."""
        own, crowd = tokens[:2], self.folder / "crowd.txt"
        crowd.write_text("\n".join(tokens[2:]))
        serve = ["serve", self.plan, "--db", self.database, "--port", self.port]
        serve += ["--exit-when-finished", "--wait-for", len(tokens)]
        server = turnout(
            *serve, log=self.log, prepare=partial(by_its_devices, self.states, self.left)
        )
        others = []
        try:
            waited_for(f"{self.url}/readyz", server, self.log)
            for token in own:
                others.append(self._joined(token))
            fleet = ["fleet", self.url, "--tokens", crowd, "--processes", self.processes]
            log = self.folder / "fleet.log"
            fleet += ["--folder", self.states]
            others.append((turnout(*fleet, log=log, prepare=hurry_fleet), log))
            for process, log in others:
                done(process, log)
            self.left.touch()
            done(server, self.log)
        finally:
            for process in (server, *(process for process, _ in others)):
                if process.poll() is None:
                    process.kill()

    def _joined(self, token: str):
        """Process of one device with the records that the simulation deals to its client."""
        client = Invitation.decoded(token).client
        data, log = self.folder / f"client-{client}.npz", self.folder / f"client-{client}.log"
        inputs, labels = records_of(self.plan.read_text(), client)
        np.savez(data, inputs=inputs, labels=labels)
        state = self.states / f"client-{client}.json"
        options = ["--token", token, "--data", data, "--state", state]
        return turnout("join", self.url, *options, log=log, prepare=hurry), log

    def drawn(self, steps: int) -> Counter[int]:
        """Map from step to the number of devices that drew it."""
        memories = [Memory.decoded(path.read_bytes()) for path in self.states.glob("*.json")]
        slots = [slot for memory in memories for slot in memory.participant.slots]
        return Counter(slot for slot in slots if slot < steps)

    def outcome(self) -> Outcome:
        """Stored data at the end of the run."""
        with (
            closing(open_storage(self.database, serving=False)) as storage,
            storage.snapshot() as view,
        ):
            charter = Charter.from_canonical(view.charter())
            records = list(view.records())
            counts = list(view.counts())
            scores = list(view.scores())
        return Outcome(charter, records, counts, scores)


@dataclass
class Outcome:
    charter: Charter
    records: list
    counts: list
    scores: list

    def require_whole(self, drawn: Counter[int]) -> None:
        """Check that every step is released with all participants, charged up to the plan's ε."""
        assert {step: came for step, came, _ in self.counts if came} == drawn
        steps = self.charter.steps
        assert [record.step for record in self.records] == list(range(steps))
        assert self.records[-1].epsilon == self.charter.spent(steps) <= self.charter.target
        assert self.scores[-1].steps == steps


def records_of(text: str, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of a client in the simulation."""
    from turnout.data import deal
    from turnout.randomness import SimulationStreams

    plan = Plan.from_toml(text)
    workload = gather(plan, Path())
    train = workload.data.train
    generator = SimulationStreams(plan.run.seed).generator("dealing")
    owners = deal(train.labels, workload.population, plan.data.dealing, generator)
    mine = owners == client
    return train.inputs[mine], train.labels[mine]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "task.sqlite")
    return request.getfixturevalue("postgres_url")


def test_devices_in_separate_processes_train_to_the_simulated_accuracy(tmp_path, database):
    trial = Trial(tmp_path, AGGREGATED, database, 2 if database.endswith(".sqlite") else 1)
    trial.run(trial.invitations(90))
    outcome = trial.outcome()
    drawn = trial.drawn(outcome.charter.steps)
    assert drawn.total() == 90 * 2
    outcome.require_whole(drawn)
    simulated = simulated_accuracies(AGGREGATED)
    # Six deviations of one run: false alarms below 1e-8. An untrained model has about 0.1.
    assert abs(outcome.scores[-1].accuracy - simulated.mean()) <= 6 * simulated.std(ddof=1) + 0.01
    assert outcome.scores[0].accuracy < 0.5
    require_verified(trial)


def require_verified(trial: Trial) -> None:
    """Check that the exported ledger verifies without other data."""
    ledger, verdict = trial.folder / "ledger.jsonl", trial.folder / "verdict.json"
    export = ["ledger", "export", "--db", trial.database, "--out", ledger]
    done(turnout(*export, log=trial.log), trial.log)
    done(turnout("ledger", "verify", ledger, "--json", log=verdict), verdict)
    assert json.loads(verdict.read_text())["verdict"]


@pytest.mark.parametrize("text", [ONE_CLIENT, SLIDING], ids=["one-client", "sliding"])
def test_devices_in_separate_processes_follow_several_participations(tmp_path, text):
    trial = Trial(tmp_path, text, str(tmp_path / "task.sqlite"))
    trial.run(trial.invitations(90))
    outcome = trial.outcome()
    drawn = trial.drawn(outcome.charter.steps)
    outcome.require_whole(drawn)
    for step, came, served in outcome.counts:
        assert served == (min(came, 1) if text is ONE_CLIENT else came), step
    assert drawn.total() == 90 if text is ONE_CLIENT else drawn.total() >= 20
