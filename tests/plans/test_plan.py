"""Plans as TOML: the objects that are read, and one-line errors."""

from __future__ import annotations

import re

import pytest

from turnout.core.errors import ParameterError, StorageError
from turnout.plans import Plan, all_keys, read_plan
from turnout.plans.refusals import variants
from turnout.schemes import (
    CheckIn,
    EveryStep,
    FixedAssignment,
    FixedSize,
    KSubset,
    PoissonSampling,
    Relation,
    ReleaseRule,
    SelfSampling,
    SlidingWindow,
)


def test_missing_keys_of_a_plan_have_defaults(small_plan):
    plan = Plan.from_toml(small_plan)
    assert plan.privacy.relation is Relation.ADD_REMOVE
    assert plan.protocol.release is ReleaseRule.AGGREGATED
    assert plan.client.steps == 1
    assert plan.run.seed == 1
    assert plan.participation_for(1437) == CheckIn(10, 3)


@pytest.mark.parametrize(
    ("table", "participation"),
    [
        ('law = "every-step"\nsteps = 3', EveryStep(3)),
        ('law = "poisson"\nrate = 0.1\nsteps = 3', PoissonSampling(0.1, 3)),
        ('law = "self-sampling"\nrate = 0.1\nsteps = 3', SelfSampling(0.1, 3)),
        ('law = "fixed-size"\nsize = 5\nsteps = 3', FixedSize(5, 60, 3)),
        ('law = "check-in"\nwindow = 5\nprobability = 0.5', CheckIn(5, 1, 0.5)),
        ('law = "sliding"\nwindow = 5\nclients_per_slot = 3', SlidingWindow(5, 20, 3)),
        ('law = "k-subset"\nwindow = 5\npicks = 2\nwindows = 3', KSubset(5, 2, 3)),
        ('law = "fixed-assignment"\nwindow = 5\nepochs = 3', FixedAssignment(5, 3)),
        (
            'law = "fixed-assignment"\nwindow = 5\nepochs = 3\nprobability = 0.25',
            FixedAssignment(5, 3, 0.25),
        ),
    ],
)
def test_each_law_in_a_plan_builds_its_participation(small_plan, table, participation):
    text = small_plan.replace('law = "check-in"\nwindow = 10\nwindows = 3', table)
    assert Plan.from_toml(text).participation_for(60) == participation


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("epsilon", "epsilom", "privacy.epsilom = 3.0: expected a known key; did you mean "
         "privacy.epsilon?"),
        ("window = 10", "window = 10\nclip_norm = 0.1", "participation.clip_norm = 0.1: expected "
         "a known key; did you mean privacy.clip_norm?"),
        ("windows = 3", "rate = 0.1", "participation.rate = 0.1: expected one of the keys law, "
         "window, windows, probability"),
        ("[privacy]", "[privcy]", "privcy = {'relation': 'add-remove', 'delta': 0.0001, "
         "'epsilon': 3.0}: expected a known key; did you mean privacy?"),
        ("delta = 1e-4", "delta = nan", "privacy.delta = nan: expected a number strictly between "
         "0 and 1"),
        ("delta = 1e-4", "delta = 1", "privacy.delta = 1: expected a number strictly between 0 "
         "and 1"),
        ("epsilon = 3.0", "epsilon = inf", "privacy.epsilon = inf: expected a finite number above "
         "0"),
        ("epsilon = 3.0", "noise_multiplier = -1", "privacy.noise_multiplier = -1: expected a "
         "finite number above 0"),
        ("epsilon = 3.0", "", "privacy.epsilon = (missing): expected a target epsilon or a "
         "noise_multiplier (a number above 0)"),
        ("window = 10", "window = 0", "participation.window = 0: expected a whole number of at "
         "least 1"),
        ("window = 10", "window = 10.0", "participation.window = 10.0: expected a whole number of "
         "at least 1"),
        ("window = 10", "window = true", "participation.window = True: expected a whole number of "
         "at least 1"),
        ("window = 10\n", "", "participation.window = (missing): expected a value (number of "
         "steps of a window)"),
        ("windows = 3", "probability = 1.5", "participation.probability = 1.5: expected a number "
         "from 0 to 1"),
        ('relation = "add-remove"', "", "privacy.relation = (missing): expected the neighbouring "
         "relation, which has no default: one of 'add-remove', 'zero-out', 'replace-one'"),
        ("add-remove", "add", "privacy.relation = 'add': expected 'add-remove', 'zero-out' or "
         "'replace-one'"),
        ('law = "check-in"', "", "participation.law = (missing): expected one of 'every-step', "),
        ('"check-in"', '"checkin"', "participation.law = 'checkin': expected one of 'every-step'"),
        ("[optimizer]", "[protocol]\nminibatch = 3\n[optimizer]", "protocol.minibatch = 3: "
         "expected 1 with release = 'aggregated'"),
        ("[optimizer]\nlearning_rate = 0.5", "", "optimizer = (missing): expected a table "
         "[optimizer]"),
        ("= 10", "= ", "plan = 'x.toml': expected a TOML file, but invalid value (at line 8, "
         "column 10)"),
    ],
)  # fmt: skip
def test_an_invalid_plan_is_refused_in_one_line(small_plan, before, after, line):
    assert before in small_plan
    with pytest.raises(ParameterError, match=re.escape(line)) as error:
        Plan.from_toml(small_plan.replace(before, after, 1), "x.toml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ('law = "k-subset"\nwindow = 5\npicks = 6', "participation.picks = 6: expected at most"),
        ('law = "fixed-size"\nsize = 61\nsteps = 1', "participation.size = 61: expected at most"),
        (
            'law = "sliding"\nwindow = 5\nclients_per_slot = 7',
            "participation.clients_per_slot = 7: expected a divisor of the number of clients, 60",
        ),
        (
            'law = "sliding"\nwindow = 61',
            "participation.window = 61: expected at most 60, the number of slots",
        ),
        ('law = "availability"\nwindow = 5', "participation.law = 'availability'"),
    ],
)
def test_a_participation_that_does_not_fit_the_population_is_refused(small_plan, table, line):
    text = small_plan.replace('law = "check-in"\nwindow = 10\nwindows = 3', table)
    with pytest.raises(ParameterError, match=re.escape(line)):
        Plan.from_toml(text).participation_for(60)


def test_every_key_of_a_plan_has_a_description():
    assert all(description for description in all_keys(Plan).values())
    assert len(all_keys(Plan)) > 35


def test_the_first_key_of_every_participation_is_law():
    found = variants(Plan.model_fields["participation"])
    assert all(next(iter(table.keys)) == "law" for table in found)
    assert len({table.word for table in found}) == len(found) > 5


def test_a_plan_file_may_begin_with_a_byte_order_mark(tmp_path, small_plan):
    (tmp_path / "plan.toml").write_text(small_plan, encoding="utf-8-sig")
    assert Plan.from_toml(read_plan(tmp_path / "plan.toml")) == Plan.from_toml(small_plan)


def test_a_missing_or_binary_plan_file_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="expected a TOML file that exists"):
        read_plan(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageError, match="cannot be read"):
        read_plan(tmp_path / "bytes.toml")
