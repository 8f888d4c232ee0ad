"""The command `turnout witness`: settings that it refuses, and how it ends."""

import re
import signal
import time

import httpx
import pytest
from forked import HANGS_SECONDS
from processes import turnout
from storage_samples import KEY

from turnout.cli.main import main
from turnout.service.contract.ledger import SigningKey
from turnout.service.witness.messages import KEY_PATH

COORDINATOR = SigningKey(KEY)
TOKEN = "a token of the operator"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--host", "0.0.0.0"], 2, "other machines can connect to 0.0.0.0"),
        (["--host", "example.invalid"], 2, "token_file"),
        (["--token-file", "none"], 2, "a readable file"),
        (["--token-file", "short"], 2, "at least 16 characters"),
        (["--tls-cert", "short"], 2, "tls_key"),
        (["--port", "70000"], 2, "70000"),
        (["--host", "192.0.2.1", "--token-file", "long"], 2, "an address to listen at"),
    ],
)
def test_a_witness_with_unsafe_settings_does_not_start(
    tmp_path, capsys, monkeypatch, arguments, code, reason
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "long").write_text(f"{TOKEN}\n")
    with pytest.raises(SystemExit) as end:
        main(["witness", "--db", "witness.sqlite", *arguments])
    assert end.value.code == code
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "witness.sqlite").exists()


def test_the_witness_command_keeps_its_key_and_stops_on_a_signal(tmp_path):
    log, token = tmp_path / "log", tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    keys = []
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        log.write_text("")
        options = ["--db", tmp_path / "w.sqlite", "--port", 0, "--token-file", token]
        process = turnout("witness", *options, log=log)
        try:
            while not (said := re.search(r"Witness (\w{64}) on (http://\S+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.01)
            answer = httpx.get(said[2] + KEY_PATH, trust_env=False)
            assert answer.json() == {"key": said[1]}
            keys.append(said[1])
            process.send_signal(signal_number)
            assert process.wait(HANGS_SECONDS) in {0, 130, -signal_number}, log.read_text()
        finally:
            process.kill()
    assert keys[0] == keys[1]
