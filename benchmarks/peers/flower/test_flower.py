"""Turnout's adapter with Flower itself, in the environment of environments/flower: make flower.

The tests run a simulation with 100 nodes, and a SuperLink with two SuperNodes, one of which is
killed during the run and restarted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.app import Error as FlowerError
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
    ServerApp,
)
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from flwr.supercore.task_identity import TaskIdentity

import turnout as tn
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.integrations.flower import CheckedAccountant, CheckInMod, CheckInStrategy, _shaped
from turnout.learning.optimizers import SGD
from turnout.schemes import CheckIn, EveryStep, GaussianNoise, Relation, Scheme

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "benchmarks" / "peers"))

from page_lines import PAGE, lines_of  # noqa: E402

EXAMPLE = ROOT / "examples" / "flower"
DELTA = 1e-5
ADD_REMOVE = (NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION)


def config(kind=ADD_REMOVE, **others) -> PrivacyConfig:
    return PrivacyConfig(DELTA, 1000, *kind, **others)


def model() -> ArrayRecord:
    return ArrayRecord({"weights": Array(np.zeros(8, np.float32))})


def strategy(ledger: Path, scheme: Scheme, nodes: int) -> CheckInStrategy:
    settings = {"clip_norm": 1.0, "nodes": nodes, "delta": DELTA}
    return CheckInStrategy(ledger, scheme, SGD(0.5), model(), **settings)


@pytest.mark.parametrize(
    "kind",
    [
        ADD_REMOVE,
        (NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON),
    ],
)
def test_the_accountant_is_below_flowers(kind):
    ours, theirs = CheckedAccountant(config(kind)), RdpAccountant(config(kind))
    # With fewer nodes, a new node replaces one that has ended.
    size = 1000 if kind is ADD_REMOVE else 50
    for accountant in (ours, theirs):
        accountant.compose(GaussianPrivacyEvent(1.1, size, 1000), 20)
        accountant.compose(GaussianPrivacyEvent(2.0, size, 1000), 5)
    assert ours.num_releases == theirs.num_releases == 25
    assert 0.7 * theirs.get_epsilon(DELTA) < ours.get_epsilon(DELTA) < theirs.get_epsilon(DELTA)
    assert ours.get_delta(ours.get_epsilon(DELTA)) == pytest.approx(DELTA, rel=0.05)
    loaded = CheckedAccountant(config(kind))
    loaded.load_state_dict(json.loads(json.dumps(ours.state_dict())))
    assert loaded.get_privacy_spent() == ours.get_privacy_spent()
    with pytest.raises(ParameterError, match="state"):
        CheckedAccountant(config(kind, max_epsilon=1.0)).load_state_dict(ours.state_dict())


def test_the_accountant_says_what_turnout_prices():
    accountant = CheckedAccountant(config(max_epsilon=5.0))
    assert accountant.get_epsilon(DELTA) == 0.0
    event = GaussianPrivacyEvent(4.0, 50, 1000)
    accountant.compose(event, 3)
    scheme = Scheme(GaussianNoise(4.0), EveryStep(3), Relation.REPLACE_ONE)
    assert accountant.get_epsilon(DELTA) == tn.price(scheme, delta=DELTA).epsilon.upper
    everybody = CheckedAccountant(config())
    everybody.compose(GaussianPrivacyEvent(4.0, 1000, 1000), 3)
    scheme = Scheme(GaussianNoise(4.0), EveryStep(3), Relation.ADD_REMOVE)
    assert everybody.get_epsilon(DELTA) == tn.price(scheme, delta=DELTA).epsilon.upper
    assert not accountant.would_exceed(event)
    assert accountant.would_exceed(event, count=20)
    assert accountant.num_releases == 3
    with pytest.raises(ParameterError, match="population_size"):
        accountant.compose(GaussianPrivacyEvent(2.0, 5, 10))
    kind = (NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT)
    replaced = CheckedAccountant(config(kind))
    replaced.compose(event, 3)
    assert 0 < replaced.get_epsilon(DELTA) < accountant.get_epsilon(DELTA)


def test_flowers_own_wrapper_takes_the_accountant():
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), 1.0, 1.0, 10, accountant=CheckedAccountant(config())
    )
    assert wrapped.privacy_spent().epsilon == 0.0


def test_the_lines_before_and_after_have_the_epsilon_on_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before: dict[str, object] = {}
    exec(lines_of("Flower", "-"), before)
    accountant = RdpAccountant(before["config"])
    accountant.compose(GaussianPrivacyEvent(4.0, 100, 100), 4)
    after = {"arrays": model()}
    exec(lines_of("Flower", "+"), after)
    epsilon = tn.price(after["scheme"], delta=DELTA).epsilon.upper
    told = f"ε = {accountant.get_epsilon(DELTA):.3f} before and {epsilon:.3f} after"
    assert told in PAGE.read_text()
    assert isinstance(before["strategy"], DifferentialPrivacyServerSideFixedClipping)
    assert after["strategy"].rounds_left == 4


def asked(book, step: int) -> Message:
    content = {"arrays": model(), "turnout": config_record(book, step)}
    return Message(RecordDict(content), dst_node_id=1, message_type="train")


def config_record(book, step: int):
    return ConfigRecord({"terms": json.dumps(book.terms), "step": step})


def test_a_reply_is_of_one_size_whether_a_node_takes_part_fails_or_abstains(tmp_path, monkeypatch):
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    book = strategy(tmp_path / "ledger", Scheme(GaussianNoise(1.0), CheckIn(3), "zero-out"), 9)
    context = Context(1, 7, {"partition-id": 0}, RecordDict(), {})
    called = []

    def trains(message, context):
        called.append(message)
        after = ArrayRecord({"weights": Array(np.full(8, -0.1, np.float32))})
        return Message(RecordDict({"arrays": after}), reply_to=message)

    def fails(message, context):
        called.append(message)
        return Message(FlowerError(1), reply_to=message)

    for inner, moved in ((trains, 1), (fails, 0)):
        called.clear()
        mod = CheckInMod(tmp_path / inner.__name__)
        (tmp_path / inner.__name__).mkdir()
        replies = [mod(asked(book.ledger, step), context, inner) for step in range(3)]
        updates = [reply.content.array_records["update"]["update"].numpy() for reply in replies]
        assert len(called) == 1
        assert {(u.dtype.str, u.shape) for u in updates} == {("<i4", (8,))}
        assert sum(bool(u.any()) for u in updates) == moved
    with pytest.raises(ParameterError, match="turnout-state"):
        CheckInMod()(asked(book.ledger, 0), context, trains)
    assert np.array_equal(_shaped(np.arange(8.0), model())["weights"].numpy(), np.arange(8))


def test_a_simulation_with_a_hundred_nodes(tmp_path, monkeypatch):
    for name, value in (
        ("TURNOUT_SIMULATED_NODES", str(tmp_path)),
        ("PYTHONPATH", str(EXAMPLE)),
        ("FLWR_TELEMETRY_ENABLED", "0"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from check_ins_app.client_app import app

    server, found = ServerApp(), {}
    scheme = Scheme(GaussianNoise(1.0), CheckIn(4), Relation.ZERO_OUT)

    @server.main()
    def main(grid, context):
        ours = strategy(tmp_path / "ledger", scheme, 100)
        result = ours.start(grid, model(), num_rounds=ours.rounds_left, timeout=120)
        found.update(weights=result.arrays["weights"].numpy(), spent=ours.privacy_spent())

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server, app, 100, backend_config=resources)
    assert found["spent"].epsilon == tn.price(scheme, delta=DELTA).epsilon.upper
    assert found["spent"].num_releases == 4
    assert np.all(found["weights"] > 0)  # the classes' true weights are 1
    kept = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert len(kept) == 100
    assert all(task["left"] == [] for node in kept for task in node.values())


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def started(log: Path, program: str, *arguments: str) -> Iterator[subprocess.Popen]:
    """Process of a Flower program, which ends together with its children."""
    command = [str(Path(sys.executable).with_name(program)), "--insecure", *arguments]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen) -> None:
    """Kill a program and its children immediately."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(what, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


def test_a_superlink_with_two_supernodes_one_of_which_is_killed(tmp_path, monkeypatch):
    link, *runtimes = free_ports(4)
    home = tmp_path / "home"
    home.mkdir()
    for name, value in (
        ("FLWR_HOME", str(home)),
        ("HOME", str(home)),
        ("FLWR_TELEMETRY_ENABLED", "0"),
        ("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}"),
    ):
        monkeypatch.setenv(name, value)
    address = f'[superlink]\ndefault = "l"\n[superlink.l]\naddress = "127.0.0.1:{link}"\n'
    (home / "config.toml").write_text(f"{address}insecure = true\n")
    ledger, logs = tmp_path / "ledger.jsonl", tmp_path / "log"

    def node(number: int, runtime: int):
        folder = tmp_path / f"node{number}"
        folder.mkdir(exist_ok=True)
        own = f"partition-id={number} turnout-state='{folder}'"
        arguments = ["--superlink", f"127.0.0.1:{link}", "--port", str(runtime)]
        return started(logs, "flower-supernode", *arguments, "--node-config", own)

    def drawn(number: int) -> list[int]:
        kept = json.loads((tmp_path / f"node{number}" / "turns.json").read_text())
        return next(iter(kept.values()))["left"]

    def steps(what: str) -> int:
        return ledger.read_text().count(f'"{what}"') if ledger.exists() else 0

    flags = ["--port", str(link), "--disable-runtime-dependency-installation"]
    with started(logs, "flower-superlink", *flags), node(0, runtimes[0]):
        with node(1, runtimes[1]) as doomed:
            settings = f"ledger='{ledger}' nodes=2 window=6 windows=2 seconds=20"
            run = [str(Path(sys.executable).with_name("flwr")), "run", str(EXAMPLE), "l"]

            def asked_for() -> bool:
                done = subprocess.run([*run, "--run-config", settings], check=False, text=True)
                return done.returncode == 0

            until(asked_for)
            until(lambda: steps("released") == 2)
            before = drawn(1)
            stop(doomed)
        with node(1, runtimes[2]):
            until(lambda: steps("released") == 12, 300)
    assert steps("charged") == 12
    # The node had drawn its second window by then.
    assert [step for step in before if step > 5] != []
    assert drawn(0) == []
    assert set(drawn(1)) < set(before)


def test_replies_have_one_release_and_nodes_one_reply(tmp_path):
    scheme = Scheme(GaussianNoise(1.0), CheckIn(2), "zero-out")
    own = strategy(tmp_path / "ledger", scheme, 2)
    with pytest.raises(UnsupportedError, match="replies to another step"):
        own.aggregate_train(1, [])
    assert own.ledger.step == 0
    answers, heard = np.ones(8, np.int32), []
    own.ledger.release = lambda given: heard.append(list(given)) or np.zeros(8)
    own._asked = 0
    content = RecordDict({"update": ArrayRecord({"update": Array(answers)})})
    replies = [
        SimpleNamespace(
            metadata=SimpleNamespace(src_node_id=node), has_error=lambda: False, content=content
        )
        for node in (1, 1, 2)
    ]
    own.aggregate_train(1, replies)
    assert len(heard[0]) == 2
    with pytest.raises(UnsupportedError, match="replies to another step"):
        own.aggregate_train(1, replies)
    with pytest.raises(ParameterError, match="zero-out or replace-one"):
        strategy(tmp_path / "other", Scheme(GaussianNoise(1.0), CheckIn(2), "add-remove"), 2)
