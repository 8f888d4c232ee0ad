"""Dealing records to clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError
from turnout.data import Records, deal


@given(
    records=st.integers(1, 300),
    share=st.floats(0.01, 1),
    dealing=st.sampled_from(["shuffled", "by-label"]),
    seed=st.integers(0, 2**32),
)
def test_numbers_of_records_of_two_clients_differ_by_at_most_one(records, share, dealing, seed):
    clients = max(1, round(records * share))
    generator = np.random.default_rng(seed)
    owners = deal(generator.integers(0, 10, records), clients, dealing, generator)
    sizes = np.bincount(owners, minlength=clients)
    assert sizes.sum() == records
    assert sizes.size == clients
    assert sizes.max() - sizes.min() <= 1


def test_dealing_records_by_label_gives_most_clients_one_label():
    labels = np.repeat(np.arange(10), 100)
    owners = deal(labels, 100, "by-label", np.random.default_rng(1))
    assert all(len(np.unique(labels[owners == client])) == 1 for client in range(100))
    mixed = deal(labels, 100, "shuffled", np.random.default_rng(1))
    assert np.mean([len(np.unique(labels[mixed == client])) for client in range(100)]) > 4


@pytest.mark.parametrize(
    ("clients", "dealing", "complaint"),
    [
        (0, "shuffled", "clients = 0: expected a whole number of at least 1"),
        (11, "shuffled", "clients = 11: expected at most records = 10"),
        (5, "sorted", "dealing = 'sorted': expected 'shuffled' or 'by-label'"),
    ],
)
def test_dealing_records_with_invalid_arguments_is_refused(clients, dealing, complaint):
    with pytest.raises(ParameterError, match=complaint):
        deal(np.zeros(10, dtype=np.int64), clients, dealing, np.random.default_rng(1))


def test_records_without_a_label_for_each_input_are_refused():
    with pytest.raises(ParameterError, match="labels = 2: expected one for each of 3 inputs"):
        Records(np.zeros((3, 2, 2), np.uint8), np.zeros(2, np.int64))
