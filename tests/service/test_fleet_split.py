"""A fleet on a file of the user: the file is split by the plan's column of clients."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from turnout.cli.main import turnout
from turnout.core.errors import ParameterError
from turnout.plans import Plan
from turnout.runs.workload import gather
from turnout.service.contract.charter import Timing
from turnout.service.coordinator.new_task import new_task
from turnout.service.device.trainer import trainer_on, trainer_on_dealt, trainers_on_split


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("projects") / "table"
    CliRunner().invoke(turnout, ["new", str(folder)], catch_exceptions=False)
    rows = [f"p{k % 20:02},{20 + k},{50 + 37 * k % 90},{k % 2}" for k in range(60)]
    (folder / "records.csv").write_text("\n".join(["patient,age,pulse,ill", *rows]) + "\n")
    text = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(text.replace("window = 10", "window = 3"))
    return folder


@pytest.fixture(scope="module")
def charter(folder):
    return new_task((folder / "plan.toml").read_text(), folder, Timing.of(60.0)).charter


def test_each_device_of_a_fleet_trains_on_the_records_of_its_own_client(folder, charter):
    data = gather(Plan.from_toml(charter.plan), folder).data
    held = data.holdings
    assert held is not None
    trainers = trainers_on_split(folder / "records.csv")
    parameters = np.full(charter.encoding.dimension, 0.1, np.float32)
    updates = []
    for client in range(charter.population):
        own = held.records[held.offsets[client] : held.offsets[client + 1]]
        alone = trainer_on((data.train.inputs[own], data.train.labels[own]), client)(charter)
        found = trainers(client)(charter).update(parameters, client)
        assert np.array_equal(found, alone.update(parameters, client))
        updates.append(found.tobytes())
    assert updates != updates[1:] + updates[:1]  # the records of another client would show


def test_a_file_with_another_number_of_clients_is_refused(folder, charter, tmp_path):
    lines = (folder / "records.csv").read_text().splitlines()
    fewer = [line for line in lines if not line.startswith(("p01", "p02", "p03", "p04", "p05"))]
    (tmp_path / "fewer.csv").write_text("\n".join(fewer) + "\n")
    with pytest.raises(ParameterError, match=f"of {charter.population} training clients"):
        trainers_on_split(tmp_path / "fewer.csv")(0)(charter)


def test_a_fleet_needs_the_data_file_of_its_plan(charter):
    with pytest.raises(ParameterError, match="the file of records"):
        trainer_on_dealt()(charter)
