"""Exported ledgers verify, and an export replaces only a file that it continues."""

from __future__ import annotations

import pytest
from ledger_samples import OTHER_KEY, FakeTransaction, charter, exported, parameters

from turnout.core.errors import StorageError
from turnout.service.coordinator.export import export_ledger, export_models, ledger_lines
from turnout.verification import VerificationOutcome, verify


def test_a_ledger_exported_to_a_file_equals_the_standard_output(tmp_path):
    path = tmp_path / "task.ledger"
    export_ledger(FakeTransaction(), path)
    assert path.read_bytes() == exported(FakeTransaction())
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_later_ledger_export_replaces_an_earlier_export(tmp_path):
    path = tmp_path / "task.ledger"
    for released in (0, 3, 3, 8):
        export_ledger(FakeTransaction(released=released), path)
        assert verify(path.read_bytes()).steps == released


def other_history(step):
    return parameters(step + (step == 2))


@pytest.mark.parametrize(
    "other",
    [
        FakeTransaction(released=4),
        FakeTransaction(charter(population=21)),
        FakeTransaction(model=other_history),
    ],
    ids=["older", "another task", "another history"],
)
def test_a_ledger_export_that_does_not_continue_the_file_is_refused(tmp_path, other):
    path = tmp_path / "task.ledger"
    export_ledger(FakeTransaction(released=5), path)
    before = path.read_bytes()
    with pytest.raises(StorageError, match="not an earlier export"):
        export_ledger(other, path)
    assert path.read_bytes() == before


def test_a_ledger_export_does_not_overwrite_an_unrelated_file(tmp_path):
    path = tmp_path / "thesis.txt"
    for content in (b"years of work", b"years\nof\nwork\n", b""):
        path.write_bytes(content)
        if content:
            with pytest.raises(StorageError, match="not an earlier export"):
                export_ledger(FakeTransaction(), path)
            assert path.read_bytes() == content


def test_a_failed_ledger_export_leaves_the_old_file_unchanged(tmp_path, monkeypatch):
    path = tmp_path / "task.ledger"
    export_ledger(FakeTransaction(released=2), path)
    before = path.read_bytes()

    def stop(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", stop)
    with pytest.raises(StorageError, match="No space left"):
        export_ledger(FakeTransaction(), path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_ledger_that_would_not_verify_is_not_exported(tmp_path):
    class Empty(FakeTransaction):
        def charter(self):
            return None

    class Gap(FakeTransaction):
        def records(self, first_step=0):
            return (record for record in super().records() if record.step != 3)

    cases = [
        (Empty(), "no task"),
        (Gap(), "step 4 does not follow"),
        (FakeTransaction(key=OTHER_KEY), "not the charter's"),
    ]
    for transaction, message in cases:
        with pytest.raises(StorageError, match=message):
            export_ledger(transaction, tmp_path / "task.ledger")
    assert list(tmp_path.iterdir()) == []


def test_exported_model_files_are_never_overwritten(tmp_path):
    assert export_models(FakeTransaction(released=3), tmp_path / "models") == 4
    assert export_models(FakeTransaction(), tmp_path / "models") == 9
    assert (tmp_path / "models" / "initial.f32").read_bytes() == parameters(-1)
    assert (tmp_path / "models" / "step-000007.f32").read_bytes() == parameters(7)
    with pytest.raises(StorageError, match=r"step-000002\.f32 has other contents"):
        export_models(FakeTransaction(model=other_history), tmp_path / "models")


def test_an_exported_ledger_does_not_contain_the_private_key():
    written = b"".join(ledger_lines(FakeTransaction()))
    assert FakeTransaction().key.private.hex().encode() not in written
    assert verify(written).outcome is VerificationOutcome.GOOD
