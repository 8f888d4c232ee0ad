"""New kinds of draws that no table lists and unregistered participations are refused."""

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
"""Draws without a row, by the quantity of their table; all other draws have one."""
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
    """A draw like `OneOf`, for which no table has a row."""

    steps: ClassVar[int] = 4
    probability: float = 0.5


@pytest.fixture
def participation():
    """Registered participation of this draw, for one test."""

    @register_participation("weekly", "A participation.")
    @dataclass(frozen=True)
    class Weekly:
        windows: int = 2

        @property
        def steps(self):
            return 4 * self.windows

        def form(self):
            return Form.of(Twice(), self.windows)  # pyright: ignore[reportArgumentType]

    yield Weekly()
    del registry._NAMES[Weekly]


@dataclass(frozen=True)
class Unregistered:
    """Class with the attributes of a participation that is not registered."""

    window: int = 4
    windows: int = 2
    probability: float = 0.5

    @property
    def steps(self):
        return self.window * self.windows

    def form(self):
        return Form.of(OneOf(self.window, self.probability), self.windows)


def scheme(participation, **changes):
    """Scheme with this participation, although `Scheme` would refuse it."""
    known = Scheme(NOISE, CheckIn(4, 2, 0.5), "add-remove", population=POPULATION)
    for name, value in {"participation": participation, **changes}.items():
        object.__setattr__(known, name, value)
    return known


def charter_of(participation):
    """Dictionary of a scheme with this participation, as a charter holds it."""
    known = scheme_to_dict(Scheme(NOISE, CheckIn(4, 2, 0.5), "add-remove"))
    return known | {"participation": {"is": type(participation).__name__}}


def bound(draw, worst, full, rest, side):
    return neighbours._one_of(OneOf(4, 0.5), worst, full, rest, side)


READERS = {
    "draw": lambda participation: draw(
        participation, POPULATION, blocks(participation)[1], OSRandomness()
    ),
    "one client's draw": lambda participation: draw(
        participation, POPULATION, blocks(participation)[1], OSRandomness(), client=1
    ),
    "check-ins": lambda participation: expected_check_ins(participation, POPULATION),
    "empty steps": lambda participation: expected_empty_steps(participation, POPULATION),
    "admissions": lambda participation: Admissions(participation, POPULATION),
    "quota": quota,
    "aggregated": lambda participation: decompose(scheme(participation)),
    "a part": lambda participation: decompose(scheme(participation), 3),
    "price": lambda participation: price(scheme(participation), 1e-5),
    "one-client": lambda participation: decompose(
        scheme(participation, release=ReleaseRule.ONE_CLIENT)
    ),
    "replace-one": lambda participation: decompose(
        scheme(participation, relation=Relation.REPLACE_ONE)
    ),
    "averaged": lambda participation: decompose(
        scheme(participation, release=ReleaseRule.AVERAGED, relation=Relation.ZERO_OUT)
    ),
    "shuffled": lambda participation: decompose(
        scheme(participation, trust=TrustModel.SHUFFLED, relation=Relation.REPLACE_ONE)
    ),
    "verified cost": lambda participation: cost.analysis(scheme(participation), 8),
}
"""Functions that read the draws of a participation."""
OTHERS = {
    "a scheme": lambda participation: Scheme(NOISE, participation, Relation.ADD_REMOVE),
    "blocks": blocks,
    "a ledger's windows": lambda participation: window_steps(scheme(participation)),
    "written": lambda participation: scheme_to_dict(scheme(participation)),
    "read": lambda participation: scheme_from_dict(charter_of(participation)),
    "an invitation": lambda participation: participation_from_dict(
        charter_of(participation)["participation"]
    ),
    "a plan": lambda participation: Plan.from_toml(
        PLAN.format(type(participation).__name__.lower())
    ),
    "verified charter": lambda participation: document.rebuilt(charter_of(participation)),
}
"""Functions that read a participation, but not its draws."""
ROWS = {
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
"""Tables by name, each with a row for the new draw."""
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
"""Tables that need a row before a function answers; the other functions always refuse."""

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


def refuses(question, participation) -> bool:
    try:
        question(participation)
    except (UnsupportedError, ParameterError, ValueError) as error:
        refused = error
    else:
        return False
    assert any(word in str(refused).lower() for word in ("twice", "unregistered", "weekly"))
    return True


@pytest.mark.parametrize("reader", READERS)
def test_a_new_kind_of_draw_is_refused_by_every_function(reader, participation):
    assert refuses(READERS[reader], participation)
    assert not refuses(READERS["draw"], CheckIn(4, 2, 0.5))


@pytest.mark.parametrize("table_name", ROWS)
def test_a_new_kind_of_draw_is_accepted_only_by_functions_whose_tables_list_it(
    table_name, participation, monkeypatch
):
    table, row = ROWS[table_name]
    monkeypatch.setitem(table.rows, Twice, row)
    answering = {name for name, ask in READERS.items() if not refuses(ask, participation)}
    assert answering == {name for name, needed in NEEDS.items() if needed == {table_name}}


def test_a_new_kind_of_draw_listed_in_all_tables_is_accepted_by_every_function(
    participation, monkeypatch
):
    for table, row in ROWS.values():
        monkeypatch.setitem(table.rows, Twice, row)
    assert {name for name, ask in READERS.items() if not refuses(ask, participation)} == set(NEEDS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.what)
def test_every_table_lists_each_expected_kind_of_draw(table):
    missing = {kind.__name__ for kind in DRAWS} - {kind.__name__ for kind in table.rows}
    assert missing == NO_ROW.get(table.what, set())


@pytest.mark.parametrize("reader", [*READERS, *OTHERS])
def test_an_unregistered_participation_is_refused_by_every_function(reader):
    assert refuses((READERS | OTHERS)[reader], Unregistered())


def test_a_registered_participation_is_accepted_by_every_function():
    plan = Plan.from_toml(PLAN.format("check-in"))
    assert plan.participation_for(POPULATION) == CheckIn(4)
    for reader in NEEDS:
        READERS[reader](CheckIn(4, 2, 0.5))


def test_clients_with_an_unknown_kind_of_draw_are_never_admitted(participation):
    """Regression: by default, a client had one check-in, at any step."""
    with pytest.raises(UnsupportedError, match="who may check in is not known for the draw Twice"):
        Admissions(participation, POPULATION)


def test_classes_of_draws_and_participations_cannot_be_subclassed(participation):
    for known in (*DRAWS, type(participation)):
        with pytest.raises(UnsupportedError, match="cannot be a subclass"):
            type("Mine", (known,), {})


def test_registering_a_participation_name_twice_is_refused():
    for name, word in (("CheckIn", "my-check-in"), ("MyCheckIn", "check-in")):
        mine = dataclass(frozen=True)(type(name, (), {"form": lambda self: None, "steps": 1}))
        with pytest.raises(ParameterError, match="a name that no other participation has"):
            register_participation(word, "A participation.")(mine)
    with pytest.raises(ParameterError, match="a frozen dataclass"):
        register_participation("another", "A participation.")(type("Another", (), {}))


def test_a_participation_whose_steps_contradict_its_form_is_refused():
    @register_participation("liar", "A participation.")
    @dataclass(frozen=True)
    class Liar:
        steps: int = 5

        def form(self):
            return Form.of(OneOf(4))

    try:
        with pytest.raises(UnsupportedError, match=r"Liar\.steps is 5, but Liar\.form"):
            Scheme(NOISE, Liar(), "add-remove", population=3)
        with pytest.raises(UnsupportedError, match="steps is 5"):
            normal_form(Liar())
        assert normal_form(Liar(4)).steps == 4
    finally:
        del registry._NAMES[Liar]


def test_no_client_is_admitted_with_probability_zero():
    record = Admissions(CheckIn(2, 1, 0.0), POPULATION)
    assert (record.admit(np.arange(3), 0) != 0).all()


def test_clients_are_admitted_up_to_their_quota():
    batch = np.arange(3)
    for participation, quota_ in ((CheckIn(4, 2), 1), (KSubset(4, 2), 2)):
        record = Admissions(participation, POPULATION)
        accepted = [int((record.admit(batch, step) == 0).sum()) for step in range(4)]
        assert sum(accepted) == 3 * quota_ == 3 * quota(participation)
