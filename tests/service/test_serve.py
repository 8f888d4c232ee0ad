"""`turnout serve` and `turnout enrol` as processes: start, refusals, end and restart."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import httpx
import pytest
from forked import HANGS_SECONDS
from installed import program
from processes import environment, fresh, waited_for
from web_world import KEY, charter_of, signed, task_storage

from turnout.cli.main import main
from turnout.service.contract.ledger import Head
from turnout.service.contract.wire import Invitation, updates_path
from turnout.service.storage.opening import holds_nothing
from turnout.service.web import heads

PLAN, TASK = charter_of().plan, charter_of().task


@pytest.fixture
def folder(tmp_path):
    """Folder with a plan and the database of a task created without computing its ε."""
    (tmp_path / "plan.toml").write_text(PLAN)
    task_storage(tmp_path / "db", charter_of()).close()
    return tmp_path


@contextmanager
def serving(folder, *options, name="log"):
    """Coordinator process and its address; a process still running at the end is killed."""
    log = folder / name
    arguments = ("serve", folder / "plan.toml", "--db", folder / "db", "--port", 0, *options)
    process = fresh(*arguments, log=log)
    try:
        while not (found := re.search(r" on (https?://\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.01)
        if found[1].startswith("http:"):
            waited_for(f"{found[1]}/readyz", process, log)
        yield process, found[1], log
    finally:
        process.kill()
        process.wait()


def refused(*arguments, capsys, code):
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code == code
    return capsys.readouterr().err


def test_a_signal_ends_the_server_without_losing_updates(folder):
    charter = charter_of()
    body = charter.encoding.encode(charter.encoding.zero().total.astype("int32"))
    path = updates_path(0)
    with serving(folder) as (process, url, log):
        answer = httpx.post(
            url + path, content=body, headers=signed(charter.task, path, 1, body), trust_env=False
        )
        assert answer.status_code == 200
        assert "server" not in answer.headers
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_SECONDS) == 0, log.read_text()
    with serving(folder, name="again") as (process, url, log):
        again = httpx.post(
            url + path, content=body, headers=signed(charter.task, path, 1, body), trust_env=False
        )
        assert again.content == answer.content
        process.send_signal(signal.SIGINT)
        assert process.wait(HANGS_SECONDS) == 0, log.read_text()
    logged = [line for line in log.read_text().splitlines() if line.startswith("{")]
    assert {"level", "event", "timestamp"} <= set(json.loads(logged[0]))
    assert "/updates" not in log.read_text()  # no access log


def test_serve_accepts_requests_before_pytorch_is_imported(folder):
    """The test lists the imported modules at the time of the first accepted request."""
    script = (
        "import sys\n"
        "from turnout.service.web import server\n"
        "from pathlib import Path\n"
        "from turnout.service.web.settings import Settings\n"
        "from contextlib import nullcontext\n"
        "ran = []\n"
        "server._Process.run = lambda self, sockets: ran.append(1)\n"
        f"server.serve(Path({str(folder / 'plan.toml')!r}), Settings(db={str(folder / 'db')!r}, "
        "port=0), lambda text: nullcontext(), print)\n"
        "assert ran and 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
        "import os; os._exit(0)\n"
    )
    done = subprocess.run(
        [os.sys.executable, "-c", script], env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_serve_uses_https_with_certificate_files(folder):
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
    made += "-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    command = [program("openssl"), *made.split()]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    options = ("--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem")
    with serving(folder, *options) as (_, url, _):
        assert url.startswith("https://")
        import ssl

        trusted = ssl.create_default_context(cafile=str(folder / "cert.pem"))
        with urllib.request.urlopen(f"{url}/v1/charter", context=trusted) as answer:
            assert answer.read() == charter_of().canonical()


def test_enrol_works_while_a_coordinator_runs_and_a_second_coordinator_is_refused(folder, capsys):
    plan, db = folder / "plan.toml", folder / "db"
    with serving(folder):
        said = refused("serve", plan, "--db", db, "--port", 0, capsys=capsys, code=4)
        assert "another coordinator serves" in said
        with pytest.raises(SystemExit) as end:
            main(["enrol", "1", "--db", str(db), "--plan", str(plan)])
        assert end.value.code == 0
    assert Invitation.decoded(capsys.readouterr().out.strip()).client == 30


def test_serve_refuses_a_changed_plan_or_schedule(folder, capsys):
    arguments = ["--db", folder / "db", "--port", 0]
    other = folder / "other.toml"
    other.write_text(PLAN + "\n")
    said = refused("serve", other, *arguments, capsys=capsys, code=2)
    assert "to the letter" in said
    plan = folder / "plan.toml"
    said = refused("serve", plan, *arguments, "--step-seconds", 7, capsys=capsys, code=2)
    assert "step_seconds = 7.0: expected 60, which the task's charter fixes" in said


def test_serve_refuses_an_empty_database_with_an_existing_head_file(folder, capsys):
    plan, lost, head = folder / "plan.toml", folder / "lost", folder / "lost.head"
    head.write_text("task head")
    arguments = ("--db", lost, "--port", 0, "--head-file", head)
    said = refused("serve", plan, *arguments, capsys=capsys, code=4)
    assert "lost or replaced" in said


@pytest.mark.parametrize("command", [("serve",), ("enrol", 1, "--plan")])
def test_a_failed_task_creation_leaves_no_database(tmp_path, url, capsys, command):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.replace('"digits"', '"missing.csv"'))
    refused(*command, plan, "--db", url, capsys=capsys, code=2)
    assert holds_nothing(url)
    assert list(tmp_path.iterdir()) == [plan]


def test_enrol_prints_one_invitation_per_line(folder, capsys):
    with pytest.raises(SystemExit) as end:
        main(["enrol", "3", "--db", str(folder / "db")])
    assert end.value.code == 0
    tokens = capsys.readouterr().out.split()
    invitations = [Invitation.decoded(token) for token in tokens]
    assert [invitation.client for invitation in invitations] == [30, 31, 32]
    assert {invitation.task for invitation in invitations} == {charter_of().task}


def test_a_file_of_invitations_is_readable_only_by_its_owner(folder, capsys):
    out = folder / "tokens"
    with pytest.raises(SystemExit):
        main(["enrol", "2", "--db", str(folder / "db"), "--out", str(out)])
    assert out.stat().st_mode & 0o777 == 0o600
    assert len(out.read_text().split()) == 2
    assert capsys.readouterr().out == ""
    said = refused("enrol", 1, "--db", folder / "db", "--out", out, capsys=capsys, code=4)
    assert "only written to a new file" in said
    with pytest.raises(SystemExit) as end:  # The refusal used no invitation.
        main(["enrol", "8", "--db", str(folder / "db"), "--out", str(folder / "others")])
    assert end.value.code == 0


def test_enrol_refuses_a_changed_plan_or_schedule(folder, capsys):
    other = folder / "other.toml"
    other.write_text(PLAN + "\n")
    arguments = ["enrol", 1, "--db", folder / "db"]
    for options, reason in (
        (("--plan", other), "to the letter"),
        (("--step-seconds", 7), "step_seconds = 7.0: expected 60, which the task's charter fixes"),
        (("--check-in-seconds", 0), "check_in_seconds = 0.0: expected greater than 0"),
        (("--answer-seconds", 0), "answer_seconds = 0.0: expected greater than 0"),
    ):
        assert reason in refused(*arguments, *options, capsys=capsys, code=2)


def test_enrol_with_zero_clients_creates_no_task(folder, capsys):
    plan, lost = folder / "plan.toml", folder / "lost"
    refused("enrol", 0, "--db", lost, "--plan", plan, capsys=capsys, code=2)
    assert not lost.exists()


def test_enrol_refuses_to_create_a_task_whose_head_file_exists(folder, capsys, monkeypatch):
    plan, lost = folder / "plan.toml", folder / "lost"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    head = heads.signed_head(TASK, Head(0, bytes(32)), KEY)
    heads.HeadFile(heads.default_file(TASK), heads.address_of(str(lost))).export(TASK, head)
    said = refused("enrol", 1, "--db", lost, "--plan", plan, capsys=capsys, code=4)
    assert "lost or replaced" in said


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["0"], 2, "N = 0: expected a whole number of at least 1"),
        (["11"], 2, "the plan is for 40 clients"),
    ],
)
def test_enrol_issues_no_more_invitations_than_the_population(
    folder, capsys, arguments, code, reason
):
    said = refused("enrol", *arguments, "--db", folder / "db", capsys=capsys, code=code)
    assert reason in said


def test_enrol_without_a_database_is_refused(tmp_path, capsys):
    said = refused("enrol", 1, "--db", tmp_path / "none", capsys=capsys, code=4)
    assert "there is no database" in said
    assert not (tmp_path / "none").exists()
