"""A participation law that one reader knows and another does not is refused by the other."""

from dataclasses import dataclass

import numpy as np
import pytest

from turnout.accounting import decomposition
from turnout.accounting.budgets.plan import window_steps
from turnout.accounting.decomposition import decompose
from turnout.accounting.divergence.dominating_pairs import Dominating
from turnout.accounting.divergence.neighbour_bounds import Hop
from turnout.accounting.divergence.pairs import GaussianPair
from turnout.core.errors import UnsupportedError
from turnout.participation import (
    Block,
    blocks,
    draw,
    drawing,
    expectations,
    expected_check_ins,
    windows,
)
from turnout.participation import expected_empty_steps as expected_empty
from turnout.participation.sampling import check_in
from turnout.plans import Plan
from turnout.protocol import admissions
from turnout.protocol.admissions import Admissions, quota
from turnout.randomness import OSRandomness
from turnout.service.device.memory import law_of
from turnout.spec import CheckIn, GaussianNoise, KSubset, Relation, ReleaseRule, Scheme, TrustModel
from turnout.spec import codec as records
from turnout.spec import scheme as spec_scheme
from turnout.spec.codec import scheme_from_dict, scheme_to_dict
from turnout.verification import cost, terms

NOISE = GaussianNoise(1.0)
POPULATION = 6


@pytest.fixture
def law_class():
    """A new law of the same shape as `CheckIn`, which no reader has been told of."""

    @dataclass(frozen=True)
    class Weekly:
        window: int = 4
        windows: int = 2
        probability: float = 0.5

        @property
        def steps(self):
            return self.window * self.windows

    return Weekly


def past_the_spec(law, **changes):
    """A scheme with this law, as if the spec had let it in."""
    scheme = Scheme(NOISE, CheckIn(4, 2, 0.5), "add-remove", population=POPULATION)
    for name, value in {"participation": law, **changes}.items():
        object.__setattr__(scheme, name, value)
    return scheme


def charter_of(law):
    """The scheme as the charter of a coordinator that knows the law would have it."""
    known = scheme_to_dict(Scheme(NOISE, CheckIn(4, 2, 0.5), "add-remove"))
    return known | {"participation": known["participation"] | {"is": type(law).__name__}}


def hop(law, upper, lower, steps):
    worst = Dominating(GaussianPair(1.0))
    known = decomposition.blocks_of(CheckIn(law.window, law.windows), worst, worst, steps)
    return Hop(known.upper, known.lower, "weekly")


# How each reader is told of a law, and how it is asked about one.
TELL = {
    "spec": lambda kind, patch: patch.setattr(spec_scheme, "_LAWS", (*spec_scheme._LAWS, kind)),
    "blocks": lambda kind, _: windows._block_length.register(kind, lambda law: law.window),
    "sampler": lambda kind, patch: patch.setitem(drawing._SAMPLERS, kind, check_in),
    "expectations": lambda kind, _: expectations._candidates.register(
        kind, lambda law, n: (n, 0.1)
    ),
    "admissions": lambda kind, patch: patch.setitem(
        admissions._RULES, kind, admissions._RULES[CheckIn]
    ),
    "accounting": lambda kind, _: decomposition.blocks_of.register(kind, hop),
    "own draws": lambda kind, patch: patch.setattr(decomposition, "_OWN_DRAWS", (kind,)),
    "records": lambda kind, patch: patch.setattr(
        records, "_CLASSES", {**records._CLASSES, kind.__name__: kind}
    ),
    "verifier": lambda kind, _: cost._windows.register(kind, lambda law, noise, steps: ((), ())),
    "verifier's charters": lambda kind, patch: patch.setattr(
        terms, "_CLASSES", {**terms._CLASSES, kind.__name__: kind}
    ),
}
ASK = {
    "spec": lambda law: Scheme(NOISE, law, Relation.ADD_REMOVE),
    "blocks": blocks,
    "draw": lambda law: draw(law, POPULATION, Block(0, 0, 4), OSRandomness()),
    "one client's draw": lambda law: draw(
        law, POPULATION, Block(0, 0, 4), OSRandomness(), client=1
    ),
    "check-ins": lambda law: expected_check_ins(law, POPULATION),
    "empty steps": lambda law: expected_empty(law, POPULATION),
    "admissions": lambda law: Admissions(law, POPULATION),
    "quota": quota,
    "aggregated": lambda law: decompose(past_the_spec(law)),
    "a part": lambda law: decompose(past_the_spec(law), 3),
    "replace-one": lambda law: decompose(past_the_spec(law, relation=Relation.REPLACE_ONE)),
    "one-client": lambda law: decompose(past_the_spec(law, release=ReleaseRule.ONE_CLIENT)),
    "averaged": lambda law: decompose(
        past_the_spec(law, release=ReleaseRule.AVERAGED, relation=Relation.ZERO_OUT)
    ),
    "shuffled": lambda law: decompose(
        past_the_spec(law, trust=TrustModel.SHUFFLED, relation=Relation.REPLACE_ONE)
    ),
    "a ledger's windows": lambda law: window_steps(past_the_spec(law)),
    "written": lambda law: scheme_to_dict(past_the_spec(law)),
    "read": lambda law: scheme_from_dict(charter_of(law)),
    "an invitation": lambda law: law_of(charter_of(law)["participation"]),
    "a plan": lambda law: Plan.from_toml(PLAN.format(type(law).__name__.lower())),
    "verified cost": lambda law: cost.way(past_the_spec(law), 8),
    "verified charter": lambda law: terms._scheme(charter_of(law)),
}
NEEDS = {
    "spec": {"spec"},
    "blocks": {"blocks"},
    "draw": {"blocks", "sampler"},
    "one client's draw": {"blocks", "sampler"},
    "check-ins": {"sampler", "expectations"},
    "empty steps": {"sampler", "expectations"},
    "admissions": {"blocks", "admissions"},
    "quota": {"admissions"},
    "aggregated": {"accounting"},
    "a part": {"accounting"},
    "replace-one": {"accounting", "own draws"},
    "one-client": {"accounting", "own draws"},
    "written": {"records"},
    "read": {"records", "spec"},
    "an invitation": {"records", "spec"},
    "verified cost": {"verifier"},
    "verified charter": {"verifier's charters", "spec"},
}
"""Who must have been told before an answer is given; the others never give one."""

PLAN = """
[data]
name = "digits"
[model]
name = "logistic"
[participation]
law = "{}"
window = 4
[privacy]
relation = "add-remove"
delta = 1e-4
epsilon = 3.0
[optimizer]
learning_rate = 0.5
"""


def refuses(question, law) -> bool:
    try:
        ASK[question](law)
    except (UnsupportedError, ValueError) as error:
        refused = error
    else:
        return False
    assert "weekly" in str(refused).lower()
    return True


@pytest.mark.parametrize("told", [None, *TELL])
def test_a_law_that_one_reader_was_told_of_is_refused_by_all_others(told, law_class, monkeypatch):
    if told is not None:
        TELL[told](law_class, monkeypatch)
    answering = {question for question in ASK if not refuses(question, law_class())}
    assert answering == {question for question, needed in NEEDS.items() if needed == {told}}


def test_a_law_that_all_were_told_of_is_read_by_all_who_can_be_told(law_class, monkeypatch):
    for tell in TELL.values():
        tell(law_class, monkeypatch)
    assert {question for question in ASK if not refuses(question, law_class())} == set(NEEDS)


def test_a_law_that_is_known_is_read_by_all():
    plan = Plan.from_toml(PLAN.format("check-in"))
    assert plan.law(POPULATION) == CheckIn(4)
    for question in NEEDS:
        ASK[question](CheckIn(4, 2, 0.5))


def test_an_unknown_law_is_not_admitted_even_once(law_class):
    """It was, at every step, because a quota of one and a chance at each step were the default."""
    windows._block_length.register(law_class, lambda law: law.window)
    with pytest.raises(UnsupportedError, match="who may check in is not known for the law Weekly"):
        Admissions(law_class(), POPULATION)


def test_known_laws_are_admitted_as_before():
    batch = np.arange(3)
    for law, quota_ in ((CheckIn(4, 2), 1), (KSubset(4, 2), 2)):
        record = Admissions(law, POPULATION)
        accepted = [int((record.admit(batch, step) == 0).sum()) for step in range(4)]
        assert sum(accepted) == 3 * quota_ == 3 * quota(law)
