"""A draw that one reader knows and another does not is refused by the other; so is any object
that is no registered law."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from turnout.accounting import price
from turnout.accounting.budgets.plan import window_steps
from turnout.accounting.decomposition import decompose
from turnout.accounting.participation import drawn_blocks, neighbours
from turnout.core.errors import ParameterError, UnsupportedError
from turnout.participation import drawing
from turnout.participation.drawing import draw, expected_check_ins, expected_empty_steps, one_of
from turnout.participation.schedule import blocks
from turnout.plans import Plan
from turnout.protocol import coordinator
from turnout.protocol.coordinator import Admissions, quota
from turnout.randomness import OSRandomness
from turnout.schemes import (
    CheckIn,
    GaussianNoise,
    KSubset,
    Relation,
    ReleaseRule,
    Scheme,
    TrustModel,
    registry,
)
from turnout.schemes.codec import participation_from_dict, scheme_from_dict, scheme_to_dict
from turnout.schemes.normal_form import DRAWS, Form, OneOf, normal_form
from turnout.schemes.registry import register_participation
from turnout.verification import cost, document

NOISE = GaussianNoise(1.0)
POPULATION = 6
NO_ROW = {
    "an analysis": {"Cohort", "OneOfOwn"},  # priced by functions of their own
    "an independent analysis": {"Cohort", "OneOfOwn"},
    "the same chance of several clients at each step": {"OneOfOwn"},
    "the number of participations": {"OneOfOwn"},
}
"""Draws that a table refuses, and nothing else is missing from any."""
TABLES = (
    drawing.SAMPLERS,
    drawing.EXPECTED,
    drawing._CANDIDATES,
    coordinator.RULES,
    neighbours.NEIGHBOUR_BOUNDS,
    drawn_blocks._DRAWN_BLOCKS,
    cost._WINDOWS,
)


@dataclass(frozen=True)
class Twice:
    """A draw of the same shape as `OneOf`, which no reader has been told of."""

    steps: ClassVar[int] = 4
    probability: float = 0.5


@pytest.fixture
def law():
    """A law of this draw, and nothing of it is left behind."""

    @register_participation("weekly", "A law.")
    @dataclass(frozen=True)
    class Weekly:
        windows: int = 2

        @property
        def steps(self):
            return 4 * self.windows

        def form(self):
            return Form.of(Twice(), self.windows)

    yield Weekly()
    del registry._NAMES[Weekly]


@dataclass(frozen=True)
class Unregistered:
    """All that a law has, but it is none."""

    window: int = 4
    windows: int = 2
    probability: float = 0.5

    @property
    def steps(self):
        return self.window * self.windows

    def form(self):
        return Form.of(OneOf(self.window, self.probability), self.windows)


def scheme(law, **changes):
    """A scheme with this law, as if the spec had let it in."""
    known = Scheme(NOISE, CheckIn(4, 2, 0.5), "add-remove", population=POPULATION)
    for name, value in {"participation": law, **changes}.items():
        object.__setattr__(known, name, value)
    return known


def charter_of(law):
    """The scheme as the charter of a coordinator that knows the law would have it."""
    known = scheme_to_dict(Scheme(NOISE, CheckIn(4, 2, 0.5), "add-remove"))
    return known | {"participation": {"is": type(law).__name__}}


def bound(draw, worst, full, rest, side):
    return neighbours._one_of(OneOf(4, 0.5), worst, full, rest, side)


READERS = {
    "draw": lambda law: draw(law, POPULATION, blocks(law)[1], OSRandomness()),
    "one client's draw": lambda law: draw(
        law, POPULATION, blocks(law)[1], OSRandomness(), client=1
    ),
    "check-ins": lambda law: expected_check_ins(law, POPULATION),
    "empty steps": lambda law: expected_empty_steps(law, POPULATION),
    "admissions": lambda law: Admissions(law, POPULATION),
    "quota": quota,
    "aggregated": lambda law: decompose(scheme(law)),
    "a part": lambda law: decompose(scheme(law), 3),
    "price": lambda law: price(scheme(law), 1e-5),
    "one-client": lambda law: decompose(scheme(law, release=ReleaseRule.ONE_CLIENT)),
    "replace-one": lambda law: decompose(scheme(law, relation=Relation.REPLACE_ONE)),
    "averaged": lambda law: decompose(
        scheme(law, release=ReleaseRule.AVERAGED, relation=Relation.ZERO_OUT)
    ),
    "shuffled": lambda law: decompose(
        scheme(law, trust=TrustModel.SHUFFLED, relation=Relation.REPLACE_ONE)
    ),
    "verified cost": lambda law: cost.analysis(scheme(law), 8),
}
"""Whoever makes something of a draw."""
OTHERS = {
    "spec": lambda law: Scheme(NOISE, law, Relation.ADD_REMOVE),
    "blocks": blocks,
    "a ledger's windows": lambda law: window_steps(scheme(law)),
    "written": lambda law: scheme_to_dict(scheme(law)),
    "read": lambda law: scheme_from_dict(charter_of(law)),
    "an invitation": lambda law: participation_from_dict(charter_of(law)["participation"]),
    "a plan": lambda law: Plan.from_toml(PLAN.format(type(law).__name__.lower())),
    "verified charter": lambda law: document.rebuilt(charter_of(law)),
}
"""Whoever asks for a law, but not for its draws."""
TELL = {
    "sampler": (drawing.SAMPLERS, one_of),
    "expectations": (drawing.EXPECTED, drawing.EXPECTED.rows[OneOf]),
    "chances": (drawing._CANDIDATES, lambda draw, n: (n, 0.125)),
    "admissions": (coordinator.RULES, coordinator.RULES.rows[OneOf]),
    "accounting": (
        neighbours.NEIGHBOUR_BOUNDS,
        neighbours._Analysis(bound, "a new draw"),
    ),
    "drawn blocks": (
        drawn_blocks._DRAWN_BLOCKS,
        lambda draw, full, rest: drawn_blocks._one_of(OneOf(4, 0.5), full, rest),
    ),
    "verifier": (cost._WINDOWS, lambda draw, noise, full, rest: ((), ())),
}
"""The tables, and a row for the new draw."""
NEEDS = {
    "draw": {"sampler"},
    "one client's draw": {"sampler"},
    "check-ins": {"expectations", "chances"},
    "empty steps": {"expectations", "chances"},
    "admissions": {"admissions"},
    "quota": {"admissions"},
    "aggregated": {"accounting", "drawn blocks"},
    "a part": {"accounting", "drawn blocks"},
    "price": {"accounting", "drawn blocks"},
    "verified cost": {"verifier"},
}
"""Tables that must have a row before an answer is given; others never give one."""

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
        question(law)
    except (UnsupportedError, ParameterError, ValueError) as error:
        refused = error
    else:
        return False
    assert any(word in str(refused).lower() for word in ("twice", "unregistered", "weekly"))
    return True


@pytest.mark.parametrize("reader", READERS)
def test_a_draw_that_nobody_was_told_of_is_refused_by_every_reader(reader, law):
    assert refuses(READERS[reader], law)
    assert not refuses(READERS["draw"], CheckIn(4, 2, 0.5))


@pytest.mark.parametrize("told", TELL)
def test_a_draw_that_one_reader_was_told_of_is_refused_by_all_others(told, law, monkeypatch):
    table, row = TELL[told]
    monkeypatch.setitem(table.rows, Twice, row)
    answering = {name for name, ask in READERS.items() if not refuses(ask, law)}
    assert answering == {name for name, needed in NEEDS.items() if needed == {told}}


def test_a_draw_that_all_were_told_of_is_read_by_all_who_can_be_told(law, monkeypatch):
    for table, row in TELL.values():
        monkeypatch.setitem(table.rows, Twice, row)
    assert {name for name, ask in READERS.items() if not refuses(ask, law)} == set(NEEDS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.what)
def test_every_table_has_every_draw_or_is_known_to_refuse_it(table):
    missing = {kind.__name__ for kind in DRAWS} - {kind.__name__ for kind in table.rows}
    assert missing == NO_ROW.get(table.what, set())


@pytest.mark.parametrize("reader", [*READERS, *OTHERS])
def test_an_object_that_is_no_registered_law_is_refused_by_all(reader):
    assert refuses((READERS | OTHERS)[reader], Unregistered())


def test_a_law_that_is_known_is_read_by_all():
    plan = Plan.from_toml(PLAN.format("check-in"))
    assert plan.participation_for(POPULATION) == CheckIn(4)
    for reader in NEEDS:
        READERS[reader](CheckIn(4, 2, 0.5))


def test_an_unknown_draw_is_not_admitted_even_once(law):
    """It was, at every step, because a quota of one and a chance at each step were the default."""
    with pytest.raises(UnsupportedError, match="who may check in is not known for the draw Twice"):
        Admissions(law, POPULATION)


def test_a_subclass_of_a_law_or_a_draw_cannot_be_made(law):
    for known in (*DRAWS, type(law)):
        with pytest.raises(UnsupportedError, match="cannot be a subclass"):
            type("Mine", (known,), {})


def test_a_name_is_taken_once():
    for name, word in (("CheckIn", "my-check-in"), ("MyCheckIn", "check-in")):
        mine = dataclass(frozen=True)(type(name, (), {"form": lambda self: None, "steps": 1}))
        with pytest.raises(ParameterError, match="a name that no other participation has"):
            register_participation(word, "A law.")(mine)
    with pytest.raises(ParameterError, match="a frozen dataclass"):
        register_participation("another", "A law.")(type("Another", (), {}))


def test_a_law_that_contradicts_its_form_is_refused():
    @register_participation("liar", "A law.")
    @dataclass(frozen=True)
    class Liar:
        steps: int = 5

        def form(self):
            return Form.of(OneOf(4))

    try:
        with pytest.raises(UnsupportedError, match="Liar has 5 steps, but its draws have 4"):
            Scheme(NOISE, Liar(), "add-remove", population=3)
        with pytest.raises(UnsupportedError, match="5 steps"):
            normal_form(Liar())
        assert normal_form(Liar(4)).steps == 4
    finally:
        del registry._NAMES[Liar]


def test_nobody_is_admitted_where_nobody_may_come():
    record = Admissions(CheckIn(2, 1, 0.0), POPULATION)
    assert (record.admit(np.arange(3), 0) != 0).all()


def test_known_laws_are_admitted_as_before():
    batch = np.arange(3)
    for law, quota_ in ((CheckIn(4, 2), 1), (KSubset(4, 2), 2)):
        record = Admissions(law, POPULATION)
        accepted = [int((record.admit(batch, step) == 0).sum()) for step in range(4)]
        assert sum(accepted) == 3 * quota_ == 3 * quota(law)
