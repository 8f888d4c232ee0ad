"""Certainty of an observer on the dashboard: the bounds of `--explain`, computed in background."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from turnout.accounting.meaning import membership
from turnout.core.errors import NumericalError
from turnout.schemes import AvailabilityCheckIn, CheckIn, GaussianNoise, Relation, Scheme
from turnout.service.web.views import EVEN, Certainties

DELTA = 1e-3


def certainties(participation=None, charged_steps=(0, 4, 8, 12)) -> Certainties:
    participation = participation or CheckIn(4, windows=3)
    scheme = Scheme(GaussianNoise(1.5), participation, Relation.ADD_REMOVE)
    terms = SimpleNamespace(
        scheme=scheme, delta=DELTA, charged_steps=charged_steps, steps=charged_steps[-1]
    )
    return Certainties(terms)  # type: ignore[arg-type]


def settled(found: Certainties, steps: int) -> tuple[float, float] | None:
    found.after(steps)
    found.settle()
    return found.after(steps)


def test_certainty_after_the_last_step_equals_that_of_the_explain_option():
    scheme = Scheme(GaussianNoise(1.5), CheckIn(4, windows=3), Relation.ADD_REMOVE)
    assert settled(certainties(), 12) == membership.scheme_certainty(scheme, DELTA).sides


def test_certainty_of_an_observer_never_decreases_with_more_releases():
    found = certainties()
    assert found.after(0) == EVEN
    sides = [settled(found, steps) for steps in (1, 4, 5, 12)]
    assert sides[0] == sides[1]  # between charged steps the next charged step counts
    presence = [side[0] for side in sides if side is not None]
    assert 0.5 < presence[0] < presence[2] < presence[3] < 1


def test_dashboard_requests_do_not_wait_for_a_privacy_profile(monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    true = membership.scheme_certainty

    def slow(*given, **named):
        begun.set()
        assert go_on.wait(60)
        return true(*given, **named)

    monkeypatch.setattr(membership, "scheme_certainty", slow)
    found = certainties()
    assert found.after(12) is None
    assert begun.wait(60)
    assert found.after(4) is None
    go_on.set()
    found.settle()
    whole, part = found.after(12), found.after(4)
    assert whole is not None
    assert part is not None
    assert part[0] < whole[0]


def test_an_uncertified_privacy_profile_counts_as_full_certainty(monkeypatch):
    def refuses(*_given, **_named):
        raise NumericalError("nothing can be certified")

    monkeypatch.setattr(membership, "scheme_certainty", refuses)
    assert settled(certainties(), 12) == (1.0, 1.0)


def test_certainty_of_an_observer_is_for_the_client_with_the_largest_epsilon():
    participation = AvailabilityCheckIn(np.array([[True] * 6, [True, False] * 3]), 6)
    found = certainties(participation, (0, 6))
    part = settled(found, 1)
    assert part == settled(found, 6)
    assert part == pytest.approx(
        membership.scheme_certainty(
            Scheme(GaussianNoise(1.5), participation, Relation.ADD_REMOVE), DELTA
        ).sides
    )
