"""Settings of the server: precedence of their sources, and refusal of unknown settings."""

from pathlib import Path

import click
import pytest

from turnout.cli.service import serve
from turnout.core.errors import ParameterError
from turnout.service.contract.charter import Timing
from turnout.service.web import heads
from turnout.service.web.server import head_file, witness_of
from turnout.service.web.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def gathered(file=None, environment=None, **given):
    return Settings.gathered(file, environment or {}, {"db": "db", **given})


def test_options_override_environment_variables_which_override_the_file(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('host = "::1"\nport = 1\nstep_seconds = 9\n')
    environment = {"TURNOUT_SERVE_PORT": "2", "TURNOUT_SERVE_HOST": "0.0.0.0", "PATH": "x"}
    settings = gathered(file, environment, port=3, host=None)
    assert (settings.port, settings.host, settings.step_seconds) == (3, "0.0.0.0", 9)
    assert gathered().port == 8000


@pytest.mark.parametrize(
    ("environment", "given", "reason"),
    [
        ({"TURNOUT_SERVE_PROT": "1"}, {}, "prot"),
        ({"TURNOUT_SERVE_PORT": "many"}, {}, "port"),
        ({}, {"port": 70000}, "port"),
        ({}, {"step_seconds": float("nan")}, "step_seconds"),
        ({}, {"step_seconds": 0.0}, "step_seconds"),
        ({}, {"answer_seconds": float("inf")}, "answer_seconds"),
        ({}, {"compute_seconds": 0.0}, "compute_seconds"),
        ({}, {"port": True}, "port = True: expected a number"),
        ({}, {"step_seconds": True}, "step_seconds = True: expected a number"),
        ({}, {"exit_when_finished": 1}, "exit_when_finished = 1: expected true or false"),
        ({"TURNOUT_SERVE_EXIT_WHEN_FINISHED": "perhaps"}, {}, "exit_when_finished"),
        ({"TURNOUT_SERVE_Port": "1"}, {}, "Port = '1': expected a known key; did you mean port"),
        ({}, {"port": 70000}, "port = 70000: expected less than or equal to 65535"),
    ],
)
def test_unknown_and_invalid_settings_are_refused(environment, given, reason):
    with pytest.raises(ParameterError, match=reason):
        gathered(None, environment, **given)


def test_a_missing_database_setting_is_refused():
    with pytest.raises(ParameterError, match=r"db = \(missing\): expected a value"):
        Settings.gathered(None, {}, {})


def test_unreadable_or_malformed_settings_files_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="readable"):
        gathered(tmp_path / "none")
    (tmp_path / "bad").write_text("port")
    with pytest.raises(ParameterError, match="TOML"):
        gathered(tmp_path / "bad")


def test_the_schedule_of_a_new_task_follows_from_its_settings():
    assert gathered().timing == Timing(60.0, 45.0, 10.0, None)
    assert gathered(step_seconds=6.0).timing == Timing(6.0, 4.5, 1.0, None)
    told = gathered(step_seconds=6.0, check_in_seconds=1.0, compute_seconds=0.25)
    assert told.timing == Timing(6.0, 1.0, 1.0, 0.25)
    with pytest.raises(ParameterError, match="step_seconds"):
        _ = gathered(step_seconds=1.0, check_in_seconds=2.0).timing


@pytest.mark.parametrize("db", ["a/b", "sqlite:///a/b", "postgresql://u:secret@h/d"])
def test_the_default_head_file_is_in_the_state_folder(db, tmp_path, monkeypatch):
    """The head file is never next to the database, and its address contains no password."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    task = "0123456789abcdef" * 4
    assert head_file(gathered(db=db), task).path == Path(
        "/state/turnout/heads/0123456789abcdef.head"
    )
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "/home/op")
    assert heads.default_folder() == Path("/home/op/.local/state/turnout/heads")
    assert head_file(gathered(db=db, head_file="h"), task).path == Path("h")
    assert "secret" not in heads.address_of(db)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"witness": "https://w"}, "witness_key"),
        ({"witness_key": "00" * 32}, "witness = "),
        ({"witness_ca": "ca.pem"}, "witness_ca"),
        ({"witness": "https://w", "witness_key": "no"}, "64 hexadecimal digits"),
        ({"witness": "http://example.org", "witness_key": "00" * 32}, "https://HOST"),
        ({"witness": "https://me:x@w", "witness_key": "00" * 32}, "https://HOST"),
        ({"witness": "https://w", "witness_key": "00" * 32, "witness_ca": "none"}, "certificates"),
        (
            {"witness": "https://w", "witness_key": "00" * 32, "witness_token_file": "none"},
            "readable file",
        ),
    ],
)
def test_a_witness_without_address_or_key_is_refused(given, reason):
    with pytest.raises(ParameterError, match=reason):
        witness_of(gathered(**given))


def test_a_witness_on_the_same_machine_needs_no_certificate():
    for url in ("http://127.0.0.1:8100", "http://[::1]:8100/", "https://w.example.org"):
        assert witness_of(gathered(witness=url, witness_key="ab" * 32)).key == bytes([0xAB] * 32)
    assert witness_of(gathered()) is None


def test_a_tls_certificate_without_its_key_is_refused(tmp_path):
    assert gathered().tls is None
    for one in ("tls_cert", "tls_key"):
        with pytest.raises(ParameterError, match="PEM"):
            _ = gathered(**{one: __file__}).tls


def test_every_serve_setting_is_an_option_and_documented():
    options = {p.name for p in serve.params if isinstance(p, click.Option)}
    assert options - {"config"} == set(Settings.model_fields)
    text = PAGE.read_text()
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in text, name
    assert "TURNOUT_SERVE_" in text
