"""Commands of docs/service.md, run in the order of the page on one machine.

Commands that need root, Docker or the network run against stand-ins that check their arguments.
Installed proxies check their own configuration files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from forked import HANGS_SECONDS, Forked
from installed import program
from pages import ROOT, Block, blocks
from programs import PROGRAMS, options, read_command, redirected
from transcripts import RUN_BY, one_line

from turnout.cli.service import serve
from turnout.core.installation import WHEEL
from turnout.plans import example_plan
from turnout.service.web.settings import PREFIX, Settings

PAGE = "docs/service.md"
BLOCKS = blocks(PAGE)
UNIT = ROOT / "examples" / "systemd" / "turnout.service"
CONTAINER = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
BUILT, _, SERVED = CONTAINER.rpartition("\nFROM ")
SETTINGS = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | {f"{PREFIX}CONFIG"}
SHOWN = {"turnout serve": r"Serving task [0-9a-f]{16} \(step 0 of \d+\) on (\S+)\n"}
SHOWN["turnout witness"] = r"Witness ([0-9a-f]{64}) on \S+\n"
STEP = "--step-seconds 60"


def commands(*, root: bool, docker: bool = False) -> list[tuple[str, str]]:
    """Command lines and their shown output, for the operator, for root, or for Docker."""
    found = []
    for block in (block for block in BLOCKS if block.language == "console"):
        for step in block.steps:
            line = one_line(step.source)
            kind = (line.startswith("docker "), "systemctl " in block.text)
            if kind == (docker, root):
                found.append((line, step.shown))
    return found


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Machine:
    """Terminals of an operator in one folder, with ports, steps and plan size for a test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ports = folder, {"8000": free_port(), "8100": free_port()}
        self.key, self.running = "", []
        kept = {k: v for k, v in os.environ.items() if k not in ("TURNOUT_DATA", "COLUMNS")}
        state = str(folder / "state")
        proxies = {"no_proxy": "127.0.0.1", "XDG_STATE_HOME": state, "TURNOUT_OFFLINE": "1"}
        self.environment = {**kept, **proxies, "OMP_NUM_THREADS": "1"}

    def typed(self, line: str) -> str:
        """Documented command, adapted to the test."""
        line = line.replace(STEP, "--step-seconds 1").replace("enrol 200", "enrol 20")
        line = line.replace("KEY", self.key) if self.key else line
        for shown, free in self.ports.items():
            line = re.sub(rf"(?<=[: ]){shown}\b", free, line)
        if line.startswith("turnout serve"):
            # The first step starts after the fleet is ready, however long that takes.
            line += f" --port {self.ports['8000']} --wait-for 20"
        return line

    def run(self, line: str, shown: str) -> None:
        """Run one command; a server keeps running in the background."""
        words, file = redirected(self.typed(line))
        if words[0] == "turnout":
            self._turnout(line, words[1:], shown)
        elif words[0] == "pip":
            read_command(line)
        else:
            done = subprocess.run(
                ["bash", "-ec", self.typed(line)],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (line, done.stderr)
            assert shown in done.stdout
            self.said = done.stdout
        if file == "plan.toml":
            plan = (self.folder / "train.out").read_text()
            small = plan.replace("clients = 200", "clients = 20")
            (self.folder / file).write_text(small.replace("windows = 8", "windows = 1"))

    def _turnout(self, line: str, arguments: list[str], shown: str) -> None:
        out, err = (self.folder / f"{arguments[0]}.{name}" for name in ("out", "err"))
        process = Forked(
            *arguments, folder=self.folder, environment=self.environment, outputs=(out, err)
        )
        self.running.append(process)
        pattern = SHOWN.get(" ".join(line.split()[:2]))
        if pattern is None:
            code = process.wait()
            assert code == 0, (line, out.read_text(), err.read_text())
            return
        assert re.fullmatch(pattern.replace("0-9a-f", "0-9a-zA-Z").replace("{64}", "+"), shown)
        deadline = time.monotonic() + HANGS_SECONDS
        while not (found := re.fullmatch(pattern, out.read_text() if out.exists() else "")):
            assert process.poll() is None, err.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if line.startswith("turnout witness"):
            self.key = found[1]

    def end(self) -> dict[str, int]:
        """Stop all running commands and return the exit code of each command."""
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        return {process.args[1]: process.wait() for process in self.running}

    def kill(self) -> None:
        for process in self.running:
            process.kill()


def test_the_commands_on_the_service_page_run_in_order(tmp_path):
    machine, seen = Machine(tmp_path), {}
    try:
        for line, shown in commands(root=False):
            machine.run(line, shown)
            if line.startswith("curl"):
                seen[line] = machine.said
        codes = machine.end()
    finally:
        machine.kill()
    assert codes.pop("witness") in (0, -signal.SIGTERM)  # the server commits before it answers
    assert set(codes.values()) == {0}
    ready, metrics = seen.values()
    assert json.loads(ready) == {"ready": True}
    assert "turnout_wrong_passwords_total" in metrics
    told = (tmp_path / "fleet.out").read_text()
    assert told.startswith("20 devices, turns: "), told
    assert (tmp_path / "heads" / "turnout.head").is_file()
    assert {*SHOWN} <= {" ".join(line.split()[:2]) for line, _ in commands(root=False)}


STAND_IN = """#!{python}
import json, sys
from pathlib import Path
place = Path({log!r})
said = json.loads(place.read_text()) if place.exists() else []
place.write_text(json.dumps([*said, [Path(sys.argv[0]).name, *sys.argv[1:]]]))
"""


def test_the_documented_root_commands_install_the_systemd_unit(tmp_path):
    """useradd, systemctl, python3 and pip are stand-ins; files are really installed."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(example_plan("trial"), tmp_path / "plan.toml")
    (tmp_path / "password").write_text("x" * 12)
    log, programs = tmp_path / "log.json", tmp_path / "programs"
    for place in (programs, tmp_path / "opt" / "turnout" / "bin"):
        place.mkdir(parents=True)
        for name in ("useradd", "systemctl", "python3", "pip"):
            (place / name).write_text(STAND_IN.format(python=sys.executable, log=str(log)))
            (place / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    for line, _ in commands(root=True):
        inside = re.sub(r"(?<![\w.])/(?=etc/|opt/)", f"{tmp_path}/", line)
        done = subprocess.run(
            ["bash", "-ec", inside], cwd=tmp_path, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr.decode())
    asked = json.loads(log.read_text())
    by_systemd = [words[1:] for words in asked if words[0] == "systemctl"]
    assert by_systemd == [
        ["daemon-reload"],
        ["enable", "--now", UNIT.stem],
        ["stop", UNIT.stem],
        ["start", UNIT.stem],
    ]
    assert ["pip", "install", "--upgrade", f"{WHEEL}[service,train]"] in asked
    assert ["useradd", "--system", "--no-create-home", unit()["User"][0]] in asked
    venv, *arguments = unit()["ExecStart"][0].split("/bin/turnout ")
    assert ["python3", "-m", "venv", f"{tmp_path}{venv}"] in asked
    plan = tmp_path / arguments[0].split()[-1].lstrip("/")
    password = tmp_path / unit()["LoadCredential"][0].partition(":")[2].lstrip("/")
    assert plan.is_file()
    assert password.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "etc" / "systemd" / "system" / UNIT.name).read_bytes() == UNIT.read_bytes()


def unit() -> dict[str, list[str]]:
    """Keys of the unit's section [Service], each with all its values."""
    found: dict[str, list[str]] = {}
    section = UNIT.read_text().partition("[Service]\n")[2].partition("\n[Install]")[0]
    for line in section.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_systemd_unit_starts_an_existing_turnout_command():
    keys = unit()
    words = shlex.split(keys["ExecStart"][0])
    assert Path(words[0]).name == "turnout"
    read_command(shlex.join(["turnout", *words[1:]]))
    named = {value.partition("=")[0] for value in keys["Environment"]}
    assert {name for name in named if name.startswith(PREFIX)} <= SETTINGS
    states = [f"/var/lib/{name}/" for name in keys["StateDirectory"][0].split()]
    values = dict(value.split("=", 1) for value in keys["Environment"])
    places = [values[f"{PREFIX}{name}"] for name in ("DB", "HEAD_FILE")]
    assert all(place.startswith(state) for place, state in zip(places, states, strict=True))
    assert set(keys["RestartPreventExitStatus"][0].split()) == {"2", "4", "71"}
    assert int(keys["LimitNOFILE"][0]) >= Settings.model_fields["connections"].default + 256
    assert keys["Restart"] == ["on-failure"]
    assert int(keys["TimeoutStopSec"][0]) > 20  # time for open requests


def test_systemd_accepts_the_unit_file(tmp_path):
    text = UNIT.read_text().replace("/opt/turnout/bin/turnout", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    command = [program("systemd-analyze"), "verify", "--man=no", str(copy)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not [line for line in found.stderr.splitlines() if UNIT.name in line], found.stderr


def instructions(name: str) -> list[str]:
    """Arguments of an instruction in the last stage of the Containerfile."""
    return re.findall(rf"^{name} (.*)$", SERVED, re.MULTILINE)


def test_documented_docker_commands_match_the_container_image():
    (build, _), (run, _), (inside, _) = commands(root=False, docker=True)
    _, _, _, image, _, file, folder = shlex.split(build)
    assert (ROOT / folder / file).is_file()
    words = shlex.split(run.replace("$PWD", str(ROOT)))
    assert words[-1] == image
    flags = {word for word in words if word.startswith("-")}
    given = {flag: [words[i + 1] for i, w in enumerate(words) if w == flag] for flag in flags}
    volumes = set(json.loads(instructions("VOLUME")[0]))
    mounted = {place.split(":")[1]: place.split(":")[0] for place in given["-v"]}
    plan = json.loads(instructions("CMD")[0])[1]
    assert mounted.keys() == volumes | {plan}
    assert len({mounted[volume] for volume in volumes}) == len(volumes)
    assert given["-p"][0].split(":")[2] == instructions("EXPOSE")[0]
    soft, hard = given["--ulimit"][0].removeprefix("nofile=").split(":")
    assert soft == hard
    assert int(soft) >= Settings.model_fields["connections"].default + 256
    words = shlex.split(inside)
    assert words[:3] == ["docker", "exec", given["--name"][0]]
    assert words[words.index("--db") + 1] == variables()[f"{PREFIX}DB"]
    read_command(shlex.join(words[3:]))


def variables() -> dict[str, str]:
    return dict(word.split("=", 1) for line in instructions("ENV") for word in line.split())


def test_the_container_image_has_its_own_user_and_separate_volumes():
    volumes = json.loads(instructions("VOLUME")[0])
    places = [Path(variables()[f"{PREFIX}{name}"]).parent for name in ("DB", "HEAD_FILE")]
    assert [str(place) for place in places] == volumes
    assert {name for name in variables() if name.startswith(PREFIX)} <= SETTINGS
    (user,) = instructions("USER")
    assert re.search(rf"useradd .*\b{user}\b", instructions("RUN")[0])
    assert f"chown {user}" in instructions("RUN")[0]
    entry, command = (json.loads(instructions(name)[0]) for name in ("ENTRYPOINT", "CMD"))
    read_command(shlex.join([*entry, *command]))
    assert f":{instructions('EXPOSE')[0]}/readyz" in instructions("HEALTHCHECK")[0]


def test_the_container_image_installs_hashed_files_from_one_index():
    installs = [shlex.split(one) for one in re.findall(r"/bin/(pip install .*?)(?:&&|$)", BUILT)]
    indexes = [
        words[words.index("--index-url") + 1 :][:1] for words in installs if "--index-url" in words
    ]
    assert indexes == [["https://download.pytorch.org/whl/cpu"]]
    *locked, own = installs
    assert [words[words.index("--requirement") + 1] for words in locked] == [
        "requirements/torch.lock",
        "requirements/container.lock",
    ]
    assert all({"--require-hashes", "--no-deps"} <= set(words) for words in locked)
    assert {"--no-index", "--no-deps", "--no-build-isolation", "."} <= set(own)
    copied = {
        name for line in re.findall(r"^COPY (.*)$", BUILT, re.MULTILINE) for name in line.split()
    }
    assert {"requirements/torch.lock", "requirements/container.lock", "LICENSE"} <= copied


def settings_of(language: str) -> Block:
    (block,) = (block for block in BLOCKS if block.language == language)
    return block


PROMISED = {
    "access_log": "off",
    "client_header_timeout": "10s",
    "client_body_timeout": "10s",
    "proxy_request_buffering": "on",
    "proxy_http_version": "1.1",
    "proxy_pass": "http://turnout",
    "limit_conn": "peers 64",
    "limit_req": "zone=logins burst=10 nodelay",
    "client_max_body_size": "1m",
}
FORWARDED = {"X-Forwarded-Proto $scheme", "X-Forwarded-For $remote_addr", 'Connection ""'}


def test_the_documented_nginx_configuration_adds_the_required_headers(tmp_path):
    text = re.sub(r"#.*", "", settings_of("nginx").text)
    assert text.count("{") == text.count("}")
    for line in filter(None, map(str.strip, text.splitlines())):
        assert line[-1] in "{};", line
    for name, value in PROMISED.items():
        assert set(re.findall(rf"\b{name}\s+([^;]*);", text)) == {value}, name
    for place in re.findall(r"location[^{]*\{[^}]*proxy_pass[^}]*\}", text):
        assert set(re.findall(r"proxy_set_header\s+([^;]*);", place)) == FORWARDED
    assert re.search(r"location = /metrics \{ deny all; \}", text)
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -keyout t.key -out t.pem"
    command = [program("openssl"), *made.split()]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    text = text.replace("/etc/ssl/turnout", f"{tmp_path}/t")
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; events {{}} http {{ {text} }}")
    tested = [program("nginx"), "-t", "-e", "stderr", "-c", str(tmp_path / "nginx.conf")]
    subprocess.run(tested, check=True, capture_output=True)


def test_the_documented_caddy_configuration_adds_the_required_headers(tmp_path):
    (tmp_path / "Caddyfile").write_text(settings_of("caddy").text)
    adapt = [program("caddy"), "adapt", "--config", str(tmp_path / "Caddyfile")]
    done = subprocess.run(adapt, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (server,) = json.loads(done.stdout)["apps"]["http"]["servers"].values()
    assert server["read_header_timeout"] == 10e9  # nanoseconds
    body, metrics, proxy = server["routes"][0]["handle"][0]["routes"]
    assert body["handle"][0]["max_size"] == 10**6
    assert metrics["match"] == [{"path": ["/metrics"]}]
    assert metrics["handle"][0]["status_code"] == 404
    buffers = {"buffer_requests": True, "max_buffer_size": 10**6}
    assert buffers.items() <= proxy["handle"][0].items()
    assert proxy["handle"][0]["upstreams"] == [{"dial": "127.0.0.1:8000"}]


def test_every_code_block_of_the_service_page_is_tested():
    """test_transcripts.py runs the Python blocks and parses the YAML blocks."""
    assert RUN_BY[PAGE] == str(Path(__file__).relative_to(ROOT))
    languages = {block.language for block in BLOCKS}
    assert languages == {"console", "nginx", "caddy", "yaml", "python"}
    lines = [one_line(s.source) for b in BLOCKS if b.language == "console" for s in b.steps]
    kinds = [{"root": False}, {"root": True}, {"root": False, "docker": True}]
    assert sorted(lines) == sorted(line for kind in kinds for line, _ in commands(**kind))
    assert {line.split()[0] for line in lines} <= set(PROGRAMS)
    assert {f"--{name}" for name in ("witness", "head-file")} <= options(serve)
