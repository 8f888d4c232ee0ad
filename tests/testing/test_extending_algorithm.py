"""The algorithm of docs/extending.md works as documented, as one file."""

import pytest
from test_extending import example

ALGORITHM = example("algorithm: own_offsets.py")
RUN, SUITE = example("run of the algorithm"), example("test of the algorithm")


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Names that the documented file defines."""
    (tmp_path / "own_offsets.py").write_text(ALGORITHM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "own_offsets", raising=False)
    return {"OwnOffsets": __import__("own_offsets").OwnOffsets}


def test_the_documented_algorithm_example_is_short():
    assert len(ALGORITHM.splitlines()) < 40


def test_the_documented_algorithm_example_passes_the_conformance_suite(names):
    exec(SUITE, names)


def test_an_algorithm_that_reads_data_of_other_clients_fails_the_conformance_suite(names):
    class Nosy(names["OwnOffsets"]):
        def client_update(self, sent, client_state, client, generator):
            return super().client_update(sent, client_state, 1, generator)

    with pytest.raises(AssertionError, match="depends on other clients' data"):
        exec(SUITE, names | {"OwnOffsets": Nosy})


def test_the_documented_algorithm_with_personal_offsets_reduces_the_loss(names):
    exec(RUN, names)
    kept = names["run"].history.metrics["loss"]
    assert kept[-1] < 0.01 < kept[0]

    class Forgetful(names["OwnOffsets"]):
        """Faulty variant in which clients lose their offset after every step."""

        def client_update(self, sent, client_state, client, generator):
            update, _ = super().client_update(sent, client_state, client, generator)
            return update, client_state

    names |= {"OwnOffsets": Forgetful}
    exec(RUN, names)
    assert names["run"].history.metrics["loss"][-1] > 0.5
