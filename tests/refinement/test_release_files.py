"""Release and key files: a change of any byte is refused."""

import math
import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import ParameterError, StorageError
from turnout.randomness import SimulationStreams
from turnout.refinement import Key, KeyMismatchError, LayeredRelease, multi_level, refine
from turnout.refinement.release import key_name, pack_release, read_key, read_release, write_release

VALUES = np.arange(50) % 7
LABELS = ("ö", "b", "c", "d", "e", "f", "g")


def released(mechanism="k-ary", epsilons=(1.0, 0.5), values=VALUES, seed=1, labels=()):
    source = SimulationStreams(seed).source("release")
    levels = multi_level(7, epsilons, mechanism, source=source)
    return refine(levels, values, labels=labels, source=source)


@pytest.mark.parametrize(
    ("mechanism", "epsilons"),
    [
        ("one-bit", (4.0, 1.0, 0.5)),
        ("k-ary", (math.inf, 4.0, 0.5)),
        ("hadamard", (math.inf, 1.0)),
        ("hadamard", (2.0, 0.3)),
        ("projective", (math.inf, 2.0, 0.3)),
    ],
)
def test_release_files_round_trip(mechanism, epsilons):
    release, keys = released(mechanism, epsilons, labels=LABELS)
    again = LayeredRelease.from_bytes(release.data)
    assert again.levels == release.levels
    assert again.digest == release.digest
    assert again.labels == LABELS
    assert np.array_equal(again.messages, release.messages)
    assert [key.epsilon for key in keys] == list(epsilons[:-1])
    for key in keys:
        copy = Key.from_bytes(key.data)
        assert copy.data == key.data
        assert np.array_equal(again.at(copy).raw, release.at(key).raw)
    if math.isinf(epsilons[0]):
        assert np.array_equal(again.recovered(keys[0]), VALUES)
        assert release.at(keys[0]).raw == pytest.approx(np.bincount(VALUES) / 50, abs=1e-12)
        assert release.at(keys[0]).guarantee.startswith("no privacy")


@pytest.mark.parametrize("mechanism", ["one-bit", "k-ary", "hadamard"])
def test_release_and_key_files_have_the_stated_number_of_bits(mechanism):
    release, keys = released(mechanism)
    payload = -(-50 * release.levels.message_bits // 8)
    assert len(keys[0].noise) == payload
    # Besides the bits, a file has 28 bytes of name, 8 of length, the header, and 32 of checksum.
    start = len(b"turnout refinement release 1\n")
    header = int.from_bytes(release.data[start : start + 8], "little")
    assert len(release.data) == start + 8 + header + payload + 32


def test_every_changed_byte_of_a_release_or_key_file_is_detected():
    release, keys = released()
    for kind, data in ((LayeredRelease, release.data), (Key, keys[0].data)):
        for place in range(len(data)):
            wrong = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
            with pytest.raises(StorageError):
                kind.from_bytes(wrong)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_random_bytes_are_not_accepted_as_a_release_or_key_file(noise, cut):
    release, keys = released()
    for kind, data in ((LayeredRelease, release.data), (Key, keys[0].data)):
        for wrong in (noise, data[:cut], data + noise + b"x", data[: cut + 1] + noise):
            if wrong != data:
                with pytest.raises(StorageError):
                    kind.from_bytes(wrong)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda data: data.replace(b"release 1\n", b"release 2\n"), "format 2"),
        (lambda data: data.replace(b"refinement release", b"refinement key"), "expected a release"),
        (lambda data: b"PK\x03\x04" + data, "not a release"),
        (lambda data: data[:-1], "damaged or cut short"),
        (lambda data: b"", "not a release"),
    ],
)
def test_errors_for_release_files_name_file_and_cause(change, match):
    release, _ = released()
    with pytest.raises(StorageError, match=match):
        LayeredRelease.from_bytes(change(release.data), "public")


def test_an_invalid_release_with_a_valid_checksum_is_refused():
    release, keys = released()
    good = {
        "bits": 62,
        "clients": 50,
        "design": {
            "family": "k-ary",
            "size": 7,
            "draw": 0,
            "heavy_count": 1,
            "place_bits": 0,
            "prime": 0,
            "dimension": 0,
        },
        "epsilons": [1.0, 0.5],
        "labels": [],
        "weights": [[step.heavy, step.light] for step in release.levels.cascade.steps],
    }
    payload = bytes(19)
    assert (
        LayeredRelease.from_bytes(pack_release("release", good, payload)).levels == release.levels
    )
    for change in (
        {"clients": 51},
        {"clients": -50},
        {"epsilons": [0.5, 1.0]},
        {"epsilons": []},
        {"bits": 70},
        {"weights": [[1, 1], [1, 1]]},
        {"labels": ["a"]},
        {"design": {"family": "k-ary"}},
        {"design": {"family": "one-bit", "size": 7, "seed": "00", "variant": "default"}},
    ):
        with pytest.raises(StorageError):
            LayeredRelease.from_bytes(pack_release("release", good | change, payload))
    with pytest.raises(StorageError):  # symbol 7 is not below 7
        LayeredRelease.from_bytes(pack_release("release", good, b"\xff" * 19))
    with pytest.raises(StorageError, match="header"):
        Key.from_bytes(pack_release("key", {"level": 0}, keys[0].noise))


def test_a_key_decodes_only_its_own_release():
    release, keys = released(epsilons=(2.0, 1.0, 0.5))
    other, other_keys = released(epsilons=(2.0, 1.0, 0.5), seed=2)
    assert np.array_equal(release.levels.epsilons, other.levels.epsilons)
    for key in other_keys:
        with pytest.raises(KeyMismatchError, match="belongs to release"):
            release.at(key)
    # The same key with another level or fewer clients.
    for change in ({"level": 1}, {"level": 2}, {"level": -1}, {"epsilon": 0.7}, {"clients": 49}):
        fields = {name: getattr(keys[0], name) for name in Key.__dataclass_fields__}
        with pytest.raises(KeyMismatchError, match="none of its levels"):
            release.at(Key(**fields | change))
    with pytest.raises(StorageError, match="does not fit 50 clients"):
        release.at(Key(**fields | {"noise": keys[0].noise[:-1]}))
    with pytest.raises(ParameterError, match="epsilon = inf"):
        release.recovered(keys[0])


def test_an_altered_release_refuses_its_key():
    release, keys = released()
    messages = release.messages.copy()
    messages[0] = (messages[0] + 1) % 7
    with pytest.raises(KeyMismatchError):
        LayeredRelease(release.levels, messages).at(keys[0])


def test_the_repr_of_a_refinement_key_hides_its_secret():
    _, keys = released()
    assert keys[0].noise.hex()[:8] not in repr(keys[0])
    assert repr(keys[0].noise)[2:10] not in repr(keys[0])


def test_every_release_has_newly_drawn_keys():
    levels = multi_level(7, (1.0, 0.5), "k-ary")
    first, second = (refine(levels, VALUES)[1][0].noise for _ in range(2))
    assert first != second


def test_a_release_folder_contains_one_public_file_and_private_key_files(tmp_path):
    release, keys = released(epsilons=(4.0, 1.0, 0.5))
    old = os.umask(0)
    try:
        paths = write_release(tmp_path / "a" / "b", release, keys)
    finally:
        os.umask(old)
    assert [path.name for path in paths] == ["public", "key-4", "key-1"]
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"public", "key-4", "key-1"}
    assert stat.S_IMODE(paths[0].stat().st_mode) == 0o644
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in paths[1:])
    for place in (paths[0], paths[0].parent):
        assert np.array_equal(
            read_release(place).at(read_key(paths[1])).raw, release.at(keys[0]).raw
        )


def test_writing_a_release_overwrites_no_file_and_leaves_no_partial_key(tmp_path):
    release, keys = released(epsilons=(4.0, 1.0, 0.5))
    (tmp_path / "key-1").write_text("mine")
    with pytest.raises(StorageError, match="never overwritten"):
        write_release(tmp_path, release, keys)
    assert [path.name for path in tmp_path.iterdir()] == ["key-1"]
    (tmp_path / "key-1").unlink()
    (tmp_path / "public.partial").mkdir()
    with pytest.raises(StorageError):
        write_release(tmp_path, release, keys)
    assert [path.name for path in tmp_path.iterdir()] == ["public.partial"]


def test_errors_for_missing_release_files_name_the_file(tmp_path):
    with pytest.raises(StorageError, match="nowhere: No such file"):
        read_key(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="public: No such file"):
        read_release(tmp_path)


def test_the_file_name_of_a_key_contains_its_epsilon():
    assert [key_name(e) for e in (4.0, 0.25, math.inf)] == ["key-4", "key-0.25", "key-inf"]


@pytest.mark.parametrize(
    ("values", "labels", "match"),
    [([], (), "at least one client"), ([1], ("a", "b"), "7 different labels")],
)
def test_releases_with_invalid_values_or_labels_are_refused(values, labels, match):
    levels = multi_level(7, (1.0, 0.5), "k-ary")
    with pytest.raises(ParameterError, match=match):
        refine(levels, np.array(values, dtype=int), labels=labels)
