"""Rounded Gaussian noise has its exact distribution, also at every rounding boundary."""

import random
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from turnout.core.errors import NumericalError, ParameterError
from turnout.randomness import (
    OSRandomness,
    SimulationStreams,
    lattice_noise,
    rounded_gaussian,
    system_bytes,
)
from turnout.testing import assert_rejects

DEVIATIONS = [0.3, 1.0, 30.7, 1e4]
DRAWS = 2_000_000
FALSE_ALARM = 1e-9


class Script:
    """Byte source that returns given 64-bit words and counts the words it has returned."""

    def __init__(self, *words: int) -> None:
        self.data, self.given = b"".join(word.to_bytes(8, "little") for word in words), 0

    def __call__(self, size: int) -> bytes:
        start, self.given = self.given, self.given + size
        assert self.given <= len(self.data), "asked for more than the script has"
        return self.data[start : self.given]


def tail(k: int, s: float) -> mpmath.mpf:
    """Gaussian tail probability G((k + ½)/s)."""
    return mpmath.erfc((2 * k + 1) / (2 * mpmath.mpf(s)) / mpmath.sqrt(2))


def word_for(noise: int, s: float) -> int:
    """First 64-bit word in the middle of the words that give the draw ``noise``."""
    with mpmath.workprec(200):
        k = abs(noise)
        low, high = tail(k, s), tail(k - 1, s) if k else mpmath.mpf(1)
        assert (high - low) * 2**63 > 4, "the first word alone does not decide this one"
        return int((low + high) / 2 * 2**63) << 1 | (noise < 0)


def assert_rounded_gaussian(drawn: np.ndarray, s: float) -> None:
    """Compare draws with the rounded Gaussian by a χ² test over at most 32 cells."""
    edges = np.unique(np.rint(stats.norm.ppf(np.arange(1, 32) / 32) * s)) + 0.5
    if s < 2:
        edges = np.arange(-4 * s, 4 * s) // 1 + 0.5
    chances = np.diff(np.concatenate([[0], stats.norm.cdf(edges / s), [1]]))
    kept = chances * drawn.size > 20
    seen = np.bincount(np.searchsorted(edges, drawn), minlength=chances.size)
    seen = np.append(seen[kept], drawn.size - seen[kept].sum())
    expected = np.append(chances[kept], 1 - chances[kept].sum()) * drawn.size
    present = expected > 5
    statistic = np.sum((seen - expected)[present] ** 2 / expected[present])
    p_value = stats.chi2.sf(statistic, np.count_nonzero(present) - 1)
    assert p_value > FALSE_ALARM, f"p = {p_value:.3g}"


@pytest.mark.parametrize("s", DEVIATIONS)
def test_rounded_gaussian_draws_fit_their_distribution_and_similar_draws_do_not(s):
    drawn = rounded_gaussian(s, DRAWS)
    assert drawn.dtype == np.int64
    assert_rounded_gaussian(drawn, s)
    normal = np.random.default_rng(3).normal(0, s, DRAWS)
    wrong = {
        "1 % more": rounded_gaussian(1.01 * s, DRAWS),
        "1 % less": rounded_gaussian(0.99 * s, DRAWS),
        "no sign": np.abs(drawn),
    }
    if s < 100:
        wrong["truncated, not rounded"] = np.trunc(normal).astype(np.int64)
        wrong["rounded down"] = np.floor(normal).astype(np.int64)
    assert_rejects(lambda observed: assert_rounded_gaussian(observed, s), wrong)
    assert_rounded_gaussian(np.rint(normal).astype(np.int64), s)


def boundaries() -> list[tuple[float, int]]:
    """Pairs (s, k) in the bulk, in the table's tail, beyond the table, and beyond 63 bits."""
    found = [(0.3, 0), (0.3, 1), (1.0, 0), (1.0, 4), (1.0, 8), (1.0, 11), (2.0**40, 7)]
    for s in (30.7, 1024.0, 1e6 / 3, 2.0**40):
        found += [(s, int(s * x)) for x in (0.0, 0.01, 0.6, 1.0, 2.5, 4.324, 4.326, 6.0, 9.9)]
    return [*found, (30.7, 368), (1024.0, 12_288)]


@pytest.mark.parametrize("sign", [0, 1])
def test_rounded_gaussian_draws_are_exact_on_both_sides_of_a_boundary(sign):
    with mpmath.workprec(700):
        for s, k in boundaries():
            scaled = tail(k, s) * mpmath.mpf(2) ** 191
            exact, last = divmod(int(scaled), 2**64)  # G in 127 bits, and the following 64 bits.
            outcomes = {
                # The bounds of G are up to two units apart.
                (exact - 3, 0): k + 1,
                (exact + 3, 0): k,
                (exact, last - 3): k + 1,
                (exact, last + 3): k,
            }
            for (value, third), magnitude in outcomes.items():
                first, second = divmod(value, 2**64)
                stream = Script(first << 1 | sign, second, third)
                drawn = int(rounded_gaussian(s, 1, stream)[0])
                assert drawn == (-magnitude if sign else magnitude), (s, k, value - exact)
                # Only the needed words are drawn.
                assert stream.given == (24 if value == exact else 16), (s, k)


@pytest.mark.parametrize("s", [0.7, 1024.0, 1e6, 2.0**40])
def test_the_rounded_gaussian_table_and_the_exact_comparison_agree(s):
    words = np.frombuffer(np.random.default_rng(9).bytes(8 * 400), "<u8")
    drawn = rounded_gaussian(s, 400, Script(*words.tolist()))
    for word, value in zip(words.tolist(), drawn.tolist(), strict=True):
        magnitude = lattice_noise._Uniform(word >> 1, Script()).magnitude(s)
        assert value == (-magnitude if word & 1 else magnitude)


def quantile(probability: mpmath.mpf) -> mpmath.mpf:
    """Gaussian quantile z(V), by Newton's method."""
    x = mpmath.mpf(stats.norm.isf(float(probability) / 2))
    for _ in range(4):
        density = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(x**2) / 2)
        x += (mpmath.erfc(x / mpmath.sqrt(2)) - probability) / density
    return x


def table_values() -> list[int]:
    """63-bit values in table cells of every octave, including the first and the last cell."""
    generator, values = random.Random(2), []
    for octave in range(47, 63):
        for cell in (0, 1, 40, 127):
            for within in (0.0, generator.random(), 0.5, 1 - 2**-40):
                values.append(int((1 + (cell + within) / 128) * 2.0**octave))
    return [*values, 2**63 - 2**10]


def test_the_error_bound_of_the_gaussian_table_holds_and_half_of_it_does_not():
    values = table_values()
    found = lattice_noise._enclosed(np.array(values, dtype=np.float64))
    with mpmath.workprec(200):
        ends = [(mpmath.mpf(v) / 2**63, mpmath.mpf(v + 1) / 2**63) for v in values]
        worst = max(
            abs(z - quantile(end))
            for z, pair in zip(found.tolist(), ends, strict=True)
            for end in pair
            if end < 1
        )
    assert lattice_noise.ENCLOSURE / 2 < worst < lattice_noise.ENCLOSURE


def test_the_interpolation_error_of_the_gaussian_table_is_below_its_bound():
    # (7z + 6z³) grows and Mills' ratio falls, so each cell of this grid is bounded by its ends.
    z = np.linspace(0, 4.4, 20_001)
    mills = np.sqrt(np.pi / 2) * special.erfcx(z / np.sqrt(2))
    largest = np.max((7 * z + 6 * z**3)[1:] * mills[:-1] ** 4)
    assert 2.5 < largest < 2.55
    assert largest / (384 * 128**4) < 0.86 * lattice_noise.ENCLOSURE
    assert lattice_noise._enclosed(np.array([2.0**47]))[0] < 4.4


def test_rounded_gaussian_draws_outside_the_table_are_decided_exactly():
    values = np.array([0, 1, 2**46, 2**47 - 1, 2**63 - 1], dtype=np.int64).astype(np.float64)
    assert np.isnan(lattice_noise._enclosed(values)).all()
    assert rounded_gaussian(1e9, 1, Script(2**64 - 2)).tolist() == [0]


def test_floats_without_the_error_bound_decide_boundary_draws_wrongly(monkeypatch):
    s, wrong = 1e9, 0
    with mpmath.workprec(200):
        monkeypatch.setattr(lattice_noise, "ENCLOSURE", 0.0)
        for k in range(10**8, 10**8 + 20):
            value = int(tail(k, s) * 2**63)
            drawn = rounded_gaussian(s, 2, Script(value - 1 << 1, value + 1 << 1, *[0] * 9))
            wrong += drawn.tolist() != [k + 1, k]
    assert wrong > 10


def test_the_rounded_gaussian_accepts_its_whole_range_of_standard_deviations():
    assert abs(rounded_gaussian(2.0**40, 1000)).max() > 2**40
    for tiny in (1e-3, 1e-300, 5e-324):
        assert not rounded_gaussian(tiny, 100_000).any()
    for refused in (0.0, -1.0, float("nan"), float("inf"), 2.0**40 * (1 + 2**-52)):
        with pytest.raises(ParameterError, match="standard_deviation"):
            rounded_gaussian(refused, 1)
    with pytest.raises(ParameterError, match="size"):
        rounded_gaussian(1.0, -1)
    assert rounded_gaussian(1.0, 0).shape == (0,)


def test_a_broken_byte_stream_raises_an_error_instead_of_a_draw():
    with pytest.raises(NumericalError, match="broken"):
        rounded_gaussian(1e6, 1, bytes)
    with pytest.raises(ParameterError, match="8 bytes"):
        rounded_gaussian(1.0, 1, lambda size: b"")


def test_equal_random_bytes_give_equal_rounded_gaussian_draws():
    def draw(step: int) -> np.ndarray:
        return rounded_gaussian(1024.0, 40_000, SimulationStreams(7).generator("n", step).bytes)

    assert np.array_equal(draw(3), draw(3))
    assert not np.array_equal(draw(3), draw(4))
    # The draw is longer than one chunk; chunks are independent.
    assert abs(np.corrcoef(draw(3)[:4096], draw(3)[4096:8192])[0, 1]) < 6.2 / 64


def test_system_random_bytes_are_aes_output_under_a_fresh_key(monkeypatch):
    assert len({system_bytes(16) for _ in range(500)}) == 500
    assert system_bytes(0) == b""
    keys = []

    def zeros(self, n, size):
        keys.append((n, size))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(OSRandomness, "below", zeros)
    # AES-256 of zeros under the zero key (NIST AESAVS, and block 1 of GCM test case 13).
    known = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"
    assert system_bytes(32).hex() == known
    assert system_bytes(5).hex() == known[:10]
    assert keys == [(256, 32)] * 2


def test_importing_the_protocol_does_not_load_the_cipher():
    script = "import sys, turnout.protocol; assert 'cryptography' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def reachable_in_float32(outputs: np.ndarray, x: float) -> np.ndarray:
    """Whether some float32 noise z satisfies x + z = output in float32 arithmetic."""
    nearest = np.float32(outputs.astype(np.float64) - x)
    found = np.zeros(outputs.shape, dtype=np.bool_)
    below = above = nearest
    for _ in range(3):
        for candidate in (below, above):
            found |= np.float32(x) + candidate == outputs
        below = np.nextafter(below, np.float32(-np.inf))
        above = np.nextafter(above, np.float32(np.inf))
    return found


def test_every_noisy_lattice_output_is_possible_for_both_neighbouring_sums():
    s, shift = 1024.0, 1024
    for x, other in ((0, shift), (shift, 0)):
        outputs = x + rounded_gaussian(s, 3000)
        needed = outputs - other
        words = [word_for(int(noise), s) for noise in needed]
        assert np.array_equal(other + rounded_gaussian(s, 3000, Script(*words)), outputs)


def test_many_noisy_float32_outputs_are_impossible_for_the_neighbouring_sum():
    outputs = np.random.default_rng(1).standard_normal(100_000, dtype=np.float32)
    assert reachable_in_float32(outputs, 0.0).all()
    impossible = 1 - reachable_in_float32(outputs, 1.0).mean()
    assert 0.42 < impossible < 0.44


def test_noise_from_floating_point_uniforms_leaves_gaps_on_the_lattice():
    # The inverse of a 24-bit uniform, all 2²³ values of one sign: few integers far out are hit.
    uniform = (np.arange(1, 2**20) - 0.5) / 2**24
    reached = np.unique(np.rint(stats.norm.isf(uniform) * 1e6).astype(np.int64))
    possible = reached[-1] - reached[0] + 1
    assert reached.size < 0.5 * possible
    for noise in (3_000_000, 3_000_001, 4_000_000):
        assert rounded_gaussian(1e6, 1, Script(word_for(noise, 1e6))).tolist() == [noise]
