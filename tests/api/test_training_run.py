"""Training runs by records, batch size and epochs: schemes, ε by sampler, and the commands."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import turnout as tn
from turnout.cli.main import turnout as command

RUN = {"records": 6_000, "batch_size": 256, "epochs": 3, "noise_multiplier": 1.1}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in RUN.items()] + ["--delta=1e-5"]


def invoke(*arguments: str) -> str:
    """Output of a command that succeeds."""
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_epsilon_of_a_training_run_with_poisson_sampling_equals_dp_accounting():
    dp = pytest.importorskip("dp_accounting")
    scheme = tn.training_run(**RUN, sampler="poisson", relation="add-remove")
    event = dp.SelfComposedDpEvent(
        dp.PoissonSampledDpEvent(1 / 23, dp.GaussianDpEvent(1.1)), 24 * 3
    )
    accountant = dp.pld.PLDAccountant(value_discretization_interval=1e-3)
    theirs = accountant.compose(event).get_epsilon(1e-5)
    ours = tn.price(scheme, delta=1e-5).epsilon
    assert ours.lower <= theirs
    assert ours.upper <= theirs * 1.001 + 1e-3


@pytest.mark.parametrize(
    ("sampler", "participation"),
    [
        ("poisson", tn.PoissonSampling(1 / 23, 72)),
        ("check-in", tn.CheckIn(23, 3)),
        ("fixed-size", tn.FixedSize(256, 6_000, 72)),
        ("shuffle", tn.EveryStep(3)),
    ],
)
def test_each_sampler_becomes_a_participation_with_the_largest_rate(sampler, participation):
    scheme = tn.training_run(**RUN, sampler=sampler, relation="zero-out")
    assert scheme.participation == participation
    assert scheme.unit.value == "example"


@pytest.mark.parametrize("relation", ["add-remove", "zero-out", "replace-one"])
def test_epsilon_covers_every_sampling_rate_and_batch_count_that_libraries_use(relation):
    scheme = tn.training_run(**RUN, sampler="poisson", relation=relation)
    upper = tn.price(scheme, delta=1e-5).epsilon.upper
    for rate, batches in ((256 / 6_000, 24), (1 / 23, 23), (1 / 24, 24)):
        other = tn.Scheme(scheme.randomizer, tn.PoissonSampling(rate, batches * 3), relation)
        assert upper >= tn.price(other, delta=1e-5).epsilon.lower


@pytest.mark.parametrize("sampler", ["fixed-size", "shuffle"])
def test_samplers_with_batches_of_fixed_size_are_refused_under_add_remove(sampler):
    with pytest.raises(tn.UnsupportedError, match="use another relation"):
        tn.training_run(**RUN, sampler=sampler, relation="add-remove")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sampler": "loader"}, "sampler = 'loader': expected one of 'poisson'"),
        ({"batch_size": 6_001}, "batch_size = 6001: expected at most the number of records"),
        ({"epochs": 0}, "epochs = 0"),
        ({"noise_multiplier": 0.0}, "noise_multiplier = 0"),
        ({"relation": "swap"}, "relation = 'swap'"),
    ],
)
def test_settings_of_a_training_run_outside_their_domain_are_refused(changed, message):
    run = {**RUN, "sampler": "poisson", "relation": "zero-out", **changed}
    with pytest.raises(tn.ParameterError, match=message):
        tn.training_run(**run)


def test_the_table_has_the_epsilon_of_each_sampler_and_relation():
    found = tn.compare_samplers(**RUN, delta=1e-5, relation="add-remove")
    rows = {row["sampler"]: row for row in found.to_dict()["rows"]}
    for sampler in ("poisson", "check-in"):
        scheme = tn.training_run(**RUN, sampler=sampler, relation="add-remove")
        priced = tn.price(scheme, delta=1e-5, tolerance=1e-2).epsilon
        assert rows[sampler]["epsilon"] == priced.upper
        assert rows[sampler]["epsilon_lower"] == priced.lower
    assert rows["shuffle"]["epsilon"] is None
    assert "under add-remove" in rows["shuffle"]["reason"]


def test_a_shuffling_loader_has_no_lower_bound():
    found = tn.compare_samplers(**RUN, delta=1e-5, sampler="shuffle", relation="zero-out")
    (row,) = found.to_dict()["rows"]
    known = tn.Scheme(tn.GaussianNoise(1.1), tn.EveryStep(3), "zero-out")
    assert row["epsilon"] == tn.price(known, delta=1e-5).epsilon.upper
    assert row["epsilon_lower"] is None


def test_account_prints_a_table_of_all_samplers():
    shown = invoke("account", *FLAGS, "--relation", "zero-out")
    assert all(word in shown for word in ("poisson", "check-in", "fixed-size", "shuffle"))
    assert "DataLoader(shuffle=True)" in shown


def test_the_table_has_only_the_notes_about_its_samplers():
    poisson = invoke("account", *FLAGS, "--sampler", "poisson")
    assert "poisson: Poisson sampling" in poisson
    assert "check-in: random check-in" not in poisson
    assert "draw batches by independent check-ins" not in poisson
    loader = invoke("account", *FLAGS, "--sampler", "shuffle")
    assert "Quote zero-out" in loader
    assert "draw batches by independent check-ins" in loader
    assert "none of the first three" not in loader


def test_calibrate_prints_the_least_noise_of_each_sampler_and_relation():
    numbers = [*FLAGS[:3], "--delta=1e-5", "--epsilon=3"]
    rows = json.loads(invoke("calibrate", *numbers, "--relation=zero-out", "--json"))["rows"]
    assert [row["sampler"] for row in rows] == ["poisson", "check-in", "fixed-size", "shuffle"]
    run = {name: value for name, value in RUN.items() if name != "noise_multiplier"}
    for row in rows:
        one = tn.training_run(
            **run,
            noise_multiplier=row["noise_multiplier"],
            sampler=row["sampler"],
            relation="zero-out",
        )
        assert tn.price(one, delta=1e-5, tolerance=1e-2).epsilon.upper == row["epsilon"] <= 3
    found = tn.compare_samplers(**run, epsilon=3, delta=1e-5, relation="zero-out")
    assert found.to_dict()["rows"] == rows
    assert f"{rows[0]['noise_multiplier']:g}" in found.to_markdown()


def test_calibrate_prints_a_table_without_a_relation():
    numbers = [*FLAGS[:3], "--delta=1e-5", "--epsilon=3", "--sampler=shuffle"]
    shown = invoke("calibrate", *numbers)
    assert "σ for ε ≤ 3, δ = 1e-05" in shown
    assert "For a smaller σ at the same ε" in shown


@pytest.mark.parametrize("given", [{}, {"noise_multiplier": 1.0, "epsilon": 3.0}])
def test_a_table_of_samplers_needs_exactly_one_of_noise_multiplier_and_target(given):
    run = {name: value for name, value in RUN.items() if name != "noise_multiplier"}
    with pytest.raises(tn.ParameterError, match="noise_multiplier"):
        tn.compare_samplers(**run, delta=1e-5, **given)


def test_a_shuffling_loader_is_explained_by_upper_bounds_alone():
    one = ["--sampler=shuffle", "--relation=zero-out"]
    shown = " ".join(invoke("account", *FLAGS, *one, "--explain").split())
    run = tn.training_run(**RUN, sampler="shuffle", relation="zero-out")
    explained = tn.explain(run, delta=1e-5)
    known = tn.Scheme(run.randomizer, run.participation, run.relation, unit=run.unit)
    assert explained.epsilon.upper == tn.price(known, delta=1e-5).epsilon.upper
    assert explained.epsilon.lower == 0
    assert "upper bound for a loader that shuffles" in shown
    for sentence in explained.sentences.values():
        assert sentence in shown
        assert "at least" not in sentence
        assert "not below" not in sentence
    assert "(at least" in tn.explain(known, delta=1e-5).sentences["advantage"]


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_privacy_curve_of_a_shuffling_loader_has_no_lower_bounds(relation):
    run = tn.training_run(**RUN, sampler="shuffle", relation=relation)
    known = tn.Scheme(run.randomizer, run.participation, relation, unit=run.unit)
    curve, exact = tn.PrivacyCurve.of(run) * 2, tn.PrivacyCurve.of(known) * 2
    for mine, theirs in (
        (curve.epsilon(1e-5), exact.epsilon(1e-5)),
        (curve.delta(2.0), exact.delta(2.0)),
    ):
        assert mine.lower == 0 < theirs.lower
        assert mine.upper == pytest.approx(theirs.upper, rel=1e-9)


def test_calibrate_prints_no_lower_bound_for_a_shuffling_loader():
    numbers = [*FLAGS[:3], "--delta=1e-5", "--epsilon=3"]
    answer = json.loads(
        invoke("calibrate", *numbers, "--sampler=shuffle", "--relation=zero-out", "--json")
    )
    assert answer["epsilon_lower"] == 0
    assert "a loader that shuffles" in answer["method"]


def test_account_and_calibrate_accept_a_single_sampler():
    one = ["--sampler", "poisson", "--relation", "add-remove"]
    scheme = tn.training_run(**RUN, sampler="poisson", relation="add-remove")
    answer = json.loads(invoke("account", *FLAGS, *one, "--json"))
    assert answer["epsilon"] == tn.price(scheme, delta=1e-5).epsilon.upper
    numbers = [*FLAGS[:3], "--delta=1e-5", "--epsilon=3"]
    solved = json.loads(invoke("calibrate", *numbers, *one, "--json"))
    assert solved["epsilon"] <= 3
    assert (
        solved["randomizer"][
            "noise-multiplier" if "noise-multiplier" in solved["randomizer"] else "noise_multiplier"
        ]
        > 0
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--batch-size", "3"], "--batch-size = 3: expected only with --records"),
        (
            [*FLAGS, "--window", "3"],
            "--window = 3: expected no value, since --records describes a training run",
        ),
        (FLAGS[:2], "--epochs = (missing)"),
        ([*FLAGS, "--explain"], "only with --relation and one --sampler"),
    ],
)
def test_flags_that_do_not_describe_a_training_run_are_refused(flags, message):
    done = CliRunner().invoke(command, ["account", *flags])
    assert message in str(done.exception)


def test_a_sampling_rate_may_be_written_as_a_fraction():
    flags = ["--steps=10", "--noise-multiplier=1", "--delta=1e-6", "--relation=add-remove"]
    answers = [
        json.loads(invoke("account", "--scheme", "poisson", "--rate", rate, *flags, "--json"))
        for rate in ("3/1000", "0.003")
    ]
    assert answers[0]["epsilon"] == answers[1]["epsilon"]
