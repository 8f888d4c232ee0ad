"""`turnout account` and `calibrate` for shuffled messages: output and errors."""

from __future__ import annotations

import json

import pytest
from command_flags import last_of_each

from turnout.cli.main import main

SHUFFLE = "--scheme shuffle --clients 5000 --delta 1e-6"


@pytest.fixture
def run(capsys):
    """Function that runs a command and returns its exit code, stdout and stderr."""

    def run(command: str, flags: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as end:
            main([command, *last_of_each(flags)])
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return run


def test_json_of_a_shuffle_lists_all_assumptions(run):
    code, out, err = run("account", f"{SHUFFLE} --epsilon0 1 --json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["randomizer"] == {"name": "pure", "epsilon0": 1.0}
    law = {"name": "shuffle", "clients": 5000, "rounds": 1, "order": "hidden"}
    assert answer["scheme"] == law
    assert (answer["relation"], answer["unit"]) == ("replace-one", "client")
    assert answer["trust_model"] == "shuffled"
    assert answer["without_shuffler"] == {"epsilon": 1.0, "delta": 0.0}
    follow, order = answer["assumptions"]
    assert follow == "all 5,000 clients follow the protocol"
    assert order.startswith("clients speak in a uniform order that neither an adversary nor")
    assert answer["published"]["epsilon"] > 1.2 * answer["epsilon"]
    assert list(answer["directions"]) == ["replace"]
    assert answer["directions"]["replace"]["epsilon"] == answer["epsilon"]
    assert answer["epsilon_lower"] <= answer["epsilon"] < 0.1
    assert "hint" not in answer


def test_the_table_of_a_shuffle_has_both_bounds_and_the_local_epsilon(run):
    code, out, err = run("account", f"{SHUFFLE} --epsilon0 0.1 --rounds 3")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    for part in (
        "scheme shuffle: clients 5000, rounds 3, order hidden",
        "randomizer pure: epsilon0 0.1",
        "ε upper bound 0.0",
        "ε lower bound 0",
        "direction replace",
        "relation replace-one: ",
        "unit client: ",
        "trust model shuffled: ",
        "method ",
        "no shuffler ε = 0.3 (pure, local): 3 messages of ε₀ = 0.1",
        "by clones 2021 (Feldman, McMillan and Talwar 2021, Theorem 3.1) no shuffler",
        "assumes all 5,000 clients follow the protocol; clients speak in a uniform order that",
    ):
        assert part in words
    assert "release" not in words


@pytest.mark.parametrize(
    ("flags", "without"),
    [
        ("--epsilon0 1 --delta0 1e-12 --rounds 2", {"epsilon": 2.0, "delta": 2e-12}),
        ("--noise-multiplier 5", {"epsilon": 1.7657, "delta": 1e-6}),
        ("--noise-multiplier 5 --rounds 3", {"epsilon": 3.2332, "delta": 1e-6}),
        ("--epsilon0 1 --randomizer sampled-bit-response", {"epsilon": 1.0, "delta": 0.0}),
    ],
)
def test_json_of_a_shuffle_states_epsilon_without_the_shuffler(run, flags, without):
    code, out, err = run("account", f"{SHUFFLE} {flags} --json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["without_shuffler"] == without
    assert answer["epsilon"] <= without["epsilon"]
    assert "published" not in answer  # of approximate and known ones no larger bound is here


@pytest.mark.parametrize("order", ["", "--order known", "--order hidden"])
def test_account_of_a_non_adaptive_randomizer_assumes_no_message_order(run, order):
    code, out, err = run(
        "account", f"{SHUFFLE} --epsilon0 1 --randomizer non-adaptive {order} --json"
    )
    assert (code, err) == (0, "")
    answer = json.loads(out)
    pure = json.loads(run("account", f"{SHUFFLE} --epsilon0 1 --json")[1])
    assert answer["epsilon"] == pure["epsilon"]
    assert answer["scheme"].get("order", "") == order.removeprefix("--order ")
    assert len(answer["assumptions"]) == (2 if "hidden" in order else 1)
    assert "published" not in answer


@pytest.mark.parametrize(
    ("flags", "rounds"),
    [
        ("--scheme subsampled-shuffle --sampled 500", 4),
        ("--scheme self-sampling-shuffle --rate 0.1", 1),
    ],
)
def test_shuffled_epsilon_is_smaller_if_clients_skip_rounds(run, flags, rounds):
    promise = f"--clients 5000 --delta 1e-6 --epsilon0 1 --json --rounds {rounds}"
    code, out, err = run("account", f"{flags} {promise}")
    assert (code, err) == (0, "")
    everybody = json.loads(run("account", f"--scheme shuffle {promise}")[1])
    answer = json.loads(out)
    assert answer["epsilon_lower"] < answer["epsilon"] < everybody["epsilon"]
    assert answer["without_shuffler"]["epsilon"] == rounds


AVERAGED = "--scheme check-in --window 4 --release averaged --relation replace-one --delta 1e-6"


def test_account_of_averaged_check_ins_suggests_the_clients_option(run):
    _, out, err = run("account", f"{AVERAGED} --noise-multiplier 3 --json")
    alone = json.loads(out)
    assert err == ""
    assert alone["hint"].startswith("--clients says how many clients there are")
    assert "clients" not in alone["scheme"]
    assert "assumptions" not in alone
    words = " ".join(run("account", f"{AVERAGED} --noise-multiplier 3")[1].split())
    assert "hint --clients says how many clients there are" in words
    known = json.loads(run("account", f"{AVERAGED} --noise-multiplier 3 --clients 9000 --json")[1])
    assert "hint" not in known
    assert known["scheme"]["clients"] == 9000
    assert known["assumptions"] == [
        "all 9,000 clients follow the protocol",
        "each client draws the step of a window unseen",
    ]
    assert known["epsilon"] <= alone["epsilon"]


def test_local_randomizers_under_central_trust_are_analysed_as_any_pure_randomizer(run):
    law = "--scheme poisson --rate 0.1 --steps 3 --delta 1e-6 --relation add-remove --epsilon0 1"
    pure = json.loads(run("account", f"{law} --randomizer pure --json")[1])
    for name in ("non-adaptive", "kary-response", "hadamard-response", "sampled-bit-response"):
        code, out, err = run("account", f"{law} --randomizer {name} --json")
        assert (code, err) == (0, "")
        answer = json.loads(out)
        assert answer["priced_as"].startswith("any ε₀-DP randomizer")
        assert answer["directions"] == pure["directions"]
    assert "priced_as" not in pure


def test_calibrate_finds_the_largest_local_epsilon(run):
    target = f"{SHUFFLE} --rounds 20 --epsilon 0.3"
    for named in ("", "--solve-for epsilon0"):
        code, out, err = run("calibrate", f"{target} {named} --json")
        assert (code, err) == (0, "")
        answer = json.loads(out)
        assert answer["solved_for"] == "epsilon0"
        assert answer["randomizer"] == {"name": "pure", "epsilon0": answer["value"]}
        assert 0.29 < answer["epsilon"] <= 0.3
        assert answer["value"] < answer["next_refused"] < 1.01 * answer["value"]
    words = " ".join(run("calibrate", target)[1].split())
    assert f"epsilon0 {answer['value']:g}, the largest certified to meet ε ≤ 0.3" in words
    assert f"20 messages of ε₀ = {answer['value']:g}" in words


def test_calibrate_finds_the_smallest_number_of_clients(run):
    target = "--scheme shuffle --epsilon0 1 --delta 1e-6 --epsilon 0.3 --solve-for clients"
    code, out, err = run("calibrate", f"{target} --json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    fewest = answer["value"]
    assert answer["scheme"]["clients"] == fewest
    assert answer["next_refused"] == fewest - 1
    assert f"all {fewest:,} clients follow the protocol" in answer["assumptions"]
    words = " ".join(run("calibrate", target)[1].split())
    assert f"clients {fewest:,}, the smallest certified to meet ε ≤ 0.3" in words


def test_account_explains_the_epsilon_of_one_client_for_shuffled_messages(run, tmp_path):
    picture = tmp_path / "shuffled.svg"
    flags = f"{SHUFFLE} --epsilon0 2 --explain --prior 0.1"
    code, out, err = run("account", f"{flags} --picture {picture}")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert (
        "An adversary who knows all other clients' data and sees all shuffled messages guesses"
        in words
    )
    assert "prior 10 %" in words
    assert "released model" not in words
    assert "quoted" in picture.read_text()


@pytest.mark.parametrize(
    ("command", "flags", "line"),
    [
        (
            "account",
            "--epsilon0 1 --window 9",
            "--window = 9: expected only with --scheme ",
        ),
        ("account", "--epsilon0 1 --relation zero-out", "--relation = 'zero-out': expected replac"),
        ("account", "--epsilon0 1 --clients 0", "--clients = 0: expected a whole number of at"),
        ("account", "--epsilon0 1 --delta 2", "--delta = 2.0: expected a number strictly between"),
        ("account", "", "--epsilon0 = (missing): expected the ε₀ of one message, or --noi"),
        ("account", "--epsilon0 1 --clients many", "Invalid value for '--clients': 'many' is not"),
        ("account", "--epsilon0 1 --clients 1.5", "Invalid value for '--clients': '1.5' is not a"),
        ("account", "--epsilon0 1 --clients 1e99999999999", "Invalid value for '--clients': '1e9"),
        ("calibrate", "--epsilon0 1 --epsilon 1", "--epsilon0 = 1.0: expected no value with"),
        ("calibrate", "--solve-for sampled --epsilon 1", "--solve-for = 'sampled': expected one"),
        ("calibrate", "--epsilon0 1 --solve-for rounds", "--epsilon = (missing): expected a finit"),
    ],
)
def test_invalid_options_of_a_shuffle_are_refused_in_one_line(run, command, flags, line):
    code, out, err = run(command, f"{SHUFFLE} {flags}")
    assert code == 2
    assert out == ""
    assert err.startswith(f"turnout: {line}")
    assert err.count("\n") == 1


def test_shuffle_without_number_of_clients_is_refused(run):
    code, _, err = run("account", "--scheme shuffle --epsilon0 1 --delta 1e-6")
    assert code == 2
    assert err.startswith("turnout: --clients = (missing): expected a value (number of clients")


def test_check_ins_accept_the_clients_option_only_with_averaged_releases(run):
    flags = f"{AVERAGED} --noise-multiplier 3 --clients 9".replace("averaged", "aggregated")
    code, _, err = run("account", flags)
    assert code == 2
    assert err == "turnout: --clients = 9: expected only with --release averaged\n"


@pytest.mark.parametrize("written", ["5000", "5e3", "5_000", "5000.0"])
def test_whole_numbers_are_accepted_in_several_notations(run, written):
    command = f"--scheme shuffle --epsilon0 1 --delta 1e-6 --json --clients {written}"
    code, out, err = run("account", command)
    assert (code, err) == (0, "")
    assert json.loads(out)["scheme"]["clients"] == 5000


def test_account_reports_that_a_lower_bound_is_missing(run):
    rounds = f"{SHUFFLE} --epsilon0 1 --rounds 1000000000"
    words = " ".join(run("account", rounds)[1].split())
    lower = json.loads(run("account", f"{rounds} --json")[1])["epsilon_lower"]
    assert ("ε lower bound 0: no lower bound is known" in words) is (lower == 0)


def test_a_shuffle_of_one_client_has_no_amplification(run):
    code, out, _ = run("account", "--scheme shuffle --epsilon0 1 --clients 1 --delta 1e-6")
    assert code == 0
    assert "the client is the only one: no other client hides it" in " ".join(out.split())


@pytest.mark.parametrize("command", ["account", "calibrate"])
def test_the_help_of_account_groups_options_by_topic(run, command):
    _, out, _ = run(command, "--help")
    headings = [line for line in out.splitlines() if line.endswith(":") and line[0] != " "]
    about = ["Participation of the clients:", "Randomizer of a contribution:", "Privacy target:"]
    about += ["Output:"]
    assert "Options:" not in headings
    assert set(about) <= set(headings)
    assert max(map(len, out.splitlines())) <= 80
    _, promise = out.split("Privacy target:")
    assert "--delta" in promise.split("Output:")[0]
