"""`turnout join` and `turnout fleet` with a coordinator on a real socket."""

from dataclasses import replace

import numpy as np
import pytest
from fake_coordinator import charter_of, invitation
from hurried import hurry_fleet
from served_fake import ServedFake
from test_device_trainer import COMPUTATION, DIMENSION, PLAN

from turnout import data as datasets
from turnout.cli.main import main
from turnout.core.errors import ParameterError
from turnout.core.installation import install_line
from turnout.randomizers.vectors import L1Randomizer
from turnout.schemes import CheckIn
from turnout.service.contract.wire import WireAnswer, WireReceipt
from turnout.service.device.fleet import tokens_from

CHARTER = charter_of(
    CheckIn(2),
    dimension=DIMENSION,
    population=40,
    plan=PLAN.replace("window = 3", "window = 2"),
    step_seconds=3600.0,
    computation=COMPUTATION,
)
LENGTH = "the run has 2 steps of 3600 s and takes 2.0 hours\n"
"""First line of a fleet, once it has the charter."""


@pytest.fixture(autouse=True)
def hurried_devices(monkeypatch):
    hurry_fleet(monkeypatch.setattr)


def ran(capsys, *arguments):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return end.value.code, printed.out, printed.err


@pytest.fixture
def records(tmp_path):
    data = datasets.digits().train
    path = tmp_path / "mine.npz"
    np.savez(path, inputs=data.inputs[:3], labels=data.labels[:3])
    return path


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("\n".join(invitation(CHARTER, client).encoded() for client in range(6)) + "\n")
    return path


def test_join_sends_all_updates_of_one_device_and_exits(tmp_path, capsys, records, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TURNOUT_TOKEN", invitation(CHARTER).encoded())
    with ServedFake(CHARTER, 1, tmp_path / "turnout") as served:
        code, out, err = ran(capsys, "join", served.url, "--data", records, "--log-turns")
        assert (code, out) == (0, "turns: 1 accepted\n")
        assert err == f"client 3 of task {CHARTER.task[:16]}: 1 turns to come\nturns: 1 accepted\n"
        code, out, err = ran(capsys, "join", served.url, "--data", records)
        assert (code, out) == (0, "turns: 1 accepted\n")
        assert err == f"client 3 of task {CHARTER.task[:16]}: 0 turns to come\n"
    assert set(served.coordinator.rows) == served.drawn()


def test_join_prints_each_error_on_one_line(tmp_path, capsys, records):
    token, state = invitation(CHARTER).encoded(), tmp_path / "state.json"
    with ServedFake(CHARTER, 1, tmp_path / "turnout") as served:
        cases = [
            (2, (served.url, "--token", "x" + token, "--data", records), "token"),
            (2, (served.url, "--token", token, "--data", tmp_path / "none.npz"), "--data"),
            (2, ("http://example.org", "--token", token, "--data", records), "https://"),
            (2, (served.url, "--data", records), "--token"),
            (4, (served.url, "--token", token, "--data", records, "--state", tmp_path), "state"),
        ]
        for expected, arguments, why in cases:
            more = () if "--state" in arguments else ("--state", state)
            code, out, err = ran(capsys, "join", *arguments, *more)
            assert (code, out) == (expected, "")
            assert err.startswith("turnout: ")
            assert why in err
            assert err.count("\n") == 1
            assert invitation(CHARTER).secret.hex() not in err
    assert served.coordinator.requests == []


@pytest.mark.parametrize("processes", [1, 2])
def test_fleet_sends_the_updates_of_all_its_devices(tmp_path, capsys, tokens, processes):
    folder = tmp_path / "states"
    arguments = ("--tokens", tokens, "--devices", 4, "--processes", processes, "--folder", folder)
    with ServedFake(CHARTER, 4, folder) as served:
        code, out, err = ran(capsys, "fleet", served.url, *arguments)
    assert (code, out) == (0, "4 devices, turns: 4 accepted\n")
    assert err == LENGTH
    assert set(served.coordinator.rows) == served.drawn()
    assert len(served.drawn()) == 4


def test_fleet_reports_failed_devices_with_reasons(tmp_path, capsys, tokens):
    with ServedFake(CHARTER, 3, tmp_path / "states", {1}) as served:
        served.coordinator.keys[1] = bytes(32)
        arguments = ("--tokens", tokens, "--devices", 3, "--folder", tmp_path / "states")
        code, out, err = ran(capsys, "fleet", served.url, *arguments)
    assert code == 5
    assert out == "3 devices, turns: 2 accepted, 1 to come\n"
    assert err.splitlines() == [
        LENGTH.rstrip(),
        "turnout: 1 devices ended early: the coordinator refuses the invitation: "
        "the invitation was used",
        "turnout: warning: 2 of 3 expected turns were taken; 1 to come: their devices ended early",
    ]


class Ending(ServedFake):
    """Coordinator that stops answering after requests chosen by `ends`."""

    def __init__(self, *how, ends, after=1):
        super().__init__(*how)
        self._ends, self._left = ends, after
        self.coordinator.on_request = self._seen

    def _seen(self, method, path, headers, body):
        self._left -= self._ends(path)
        self.gone = self._left <= 0


@pytest.mark.parametrize("path", ["/v1/charter", "/v1/enrolments", "/v1/status"])
def test_fleet_exits_with_an_error_after_the_coordinator_stopped(tmp_path, capsys, tokens, path):
    folder = tmp_path / "states"
    arguments = ["--tokens", tokens, "--folder", folder]
    with Ending(CHARTER, 6, folder, ends=lambda asked: asked == path) as served:
        code, out, err = ran(capsys, "fleet", served.url, *arguments, "--patience", 0.3)
    assert code == 5
    assert out in ("6 devices, turns: 6 to come\n", "6 devices, turns: 1 checked in, 5 to come\n")
    assert err.removeprefix(LENGTH) == (
        "turnout: the coordinator gave no answer for 0.3 s and the run is not over: "
        "6 devices ended with 6 turns to come\n"
    )


def test_fleet_reports_steps_that_it_missed_before_the_run_ended(tmp_path, capsys, tokens):
    folder = tmp_path / "states"
    slow = charter_of(
        CheckIn(2),
        dimension=DIMENSION,
        population=40,
        computation=COMPUTATION,
        plan=PLAN.replace("window = 3", "window = 2"),
        step_seconds=3600.0,
    )
    tokens.write_text("\n".join(invitation(slow, client).encoded() for client in range(6)))

    def finishes(path):
        """Let the run end after all devices have enrolled; one device is notified."""
        if len(served.coordinator.keys) == 6:
            served.coordinator.shift, served.coordinator.says = 2 * 3600.0, {}
        return path == "/v1/status" and served.coordinator.shift > 0

    with Ending(slow, 6, folder, ends=finishes, after=2) as served:
        served.coordinator.says = {"phase": "closed"}
        code, out, err = ran(capsys, "fleet", served.url, "--tokens", tokens, "--folder", folder)
    assert (code, served.coordinator.rows) == (0, {})
    assert out.startswith("6 devices, turns: ")
    assert err.startswith(LENGTH + "turnout: warning: 0 of 6 expected turns were taken; ")


def test_fleet_warns_about_late_updates(tmp_path, capsys, tokens):
    with ServedFake(CHARTER, 6, tmp_path / "states") as served:
        served.coordinator._wrong_time = lambda client, step, phase: WireReceipt(
            WireAnswer.LATE, CHARTER.task, client, step
        )
        arguments = ("--tokens", tokens, "--folder", tmp_path / "states")
        code, out, err = ran(capsys, "fleet", served.url, *arguments)
    assert (code, out) == (0, "6 devices, turns: 6 late\n")
    assert err == LENGTH + (
        "turnout: warning: 0 of 6 expected turns were taken; 6 late: their updates arrived "
        "late: steps are too short for so many devices in one process; use more --processes, or "
        "longer steps\n"
    )


@pytest.mark.parametrize("patience", ["0", "-1", "x", "nan"])
def test_fleet_refuses_a_patience_that_is_not_a_number_of_seconds(capsys, tokens, patience):
    arguments = ("fleet", "http://127.0.0.1:1", "--tokens", tokens, "--patience", patience)
    assert ran(capsys, *arguments)[0] == 2


def test_fleet_refuses_a_data_set_other_than_that_of_the_plan(tmp_path, capsys, tokens):
    with ServedFake(CHARTER, 3, tmp_path / "states", {1}) as served:
        arguments = ("--tokens", tokens, "--data", "mnist", "--folder", tmp_path / "states")
        code, _, err = ran(capsys, "fleet", served.url, *arguments)
        assert code == 2
        assert "as in the task's plan" in err
        assert served.coordinator.keys == {}


def test_the_number_of_devices_is_limited_by_the_number_of_invitations(tmp_path, tokens):
    assert len(tokens_from(tokens, None)) == 6
    assert len(tokens_from(tokens, 2)) == 2
    for devices in (0, 7):
        with pytest.raises(ParameterError, match="1 to 6"):
            tokens_from(tokens, devices)
    with pytest.raises(ParameterError, match="a file of tokens"):
        tokens_from(tmp_path / "none", 1)


def test_the_error_for_a_missing_package_contains_the_install_command(
    capsys, monkeypatch, records, tmp_path
):
    import sys

    monkeypatch.setitem(sys.modules, "httpx", None)
    code, _, err = ran(capsys, "join", "https://x", "--token", "x", "--data", records)
    assert code == 2
    assert err == f"turnout: turnout join needs httpx: {install_line('device')}\n"


MESSAGES = L1Randomizer(DIMENSION, 4.0, 0.5)
LOCAL = replace(
    charter_of(
        CheckIn(2),
        dimension=DIMENSION,
        population=40,
        step_seconds=3600.0,
        computation=COMPUTATION,
        messages=MESSAGES,
    ),
    plan=PLAN.replace("window = 3", "window = 2")
    .replace('relation = "add-remove"', 'relation = "replace-one"\ntrust = "local"')
    .replace("noise_multiplier = 1.0", "epsilon = 4.5")
    .replace("[client]", '[randomizer]\nnorm = "l1"\nepsilon0 = 4.0\n[client]'),
    target=4.5,
    charged=(4.5,),
)


def test_join_sends_randomized_messages_under_local_trust(tmp_path, capsys, records):
    state, token = tmp_path / "state.json", invitation(LOCAL).encoded()
    with ServedFake(LOCAL, 1, tmp_path) as served:
        how = ("--token", token, "--data", records, "--state", state)
        code, out, err = ran(capsys, "join", served.url, *how)
    assert (code, out) == (0, "turns: 1 accepted\n")
    assert err == f"client 3 of task {LOCAL.task[:16]}: 1 turns to come\n"
    (body,) = served.coordinator.rows.values()
    assert LOCAL.encoding.decode(body) < MESSAGES.radices


def test_join_refuses_a_charter_whose_messages_exceed_its_epsilon(tmp_path, capsys, records):
    liar = replace(LOCAL, charged=(2.0,))
    state, token = tmp_path / "state.json", invitation(liar).encoded()
    with ServedFake(liar, 1, tmp_path) as served:
        how = ("--token", token, "--data", records, "--state", state)
        code, out, err = ran(capsys, "join", served.url, *how)
    assert (code, out, err.count("\n")) == (5, "", 1)
    assert "states epsilon = 2, but its messages cost 3.99" in err
    assert {method for method, *_ in served.coordinator.requests} == {"GET"}  # not even enrolled
