"""Feature expressions run functions in parallel and in sequence; users' functions are checked."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from turnout.core.errors import ParameterError
from turnout.core.feature_expressions import MOST_NAMES, feature_stages, names_code
from turnout.learning.features import apply_features, build_features

IMAGES = np.random.default_rng(1).uniform(0, 1, (40, 12, 12)).astype(np.float32)

OWN = """
import torch

def halves(inputs):
    return inputs.flatten(1)[:, ::2]

def mixed(inputs):
    return inputs.flatten(1) - inputs.flatten(1).mean(0)

def outshone(images):
    flat = images.flatten(1)
    return torch.cat([flat[:, :1] + 3e4, flat - flat.mean(0)], 1)

def lone(images):
    flat = images.flatten(1)
    return flat - (flat.mean(0) if len(flat) == 3 else 0)

def drawn(inputs):
    return torch.rand_like(inputs)

def failing(inputs):
    raise RuntimeError("no such layer")

def scalar(inputs):
    return inputs.mean()

def huge(inputs):
    return 1e6 + inputs

layer = torch.nn.Linear(12, 3)
number = 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own_features.py").write_text(OWN)
    return tmp_path


def own(name: str, folder):
    return apply_features(build_features(f"own_features:{name}", folder), IMAGES)


def test_feature_expressions_are_parsed():
    assert feature_stages("hog") == (("hog",),)
    assert feature_stages(" deskewed|scattering +hog ") == (("deskewed",), ("scattering", "hog"))
    assert names_code("hog + mine:f")
    assert not names_code("hog + scattering")


@pytest.mark.parametrize(
    "text", ["", "hog +", "| hog", "hogs", "hog, scattering", "mine:", "a b:c", "mine:f:g"]
)
def test_invalid_expressions_are_refused(text):
    with pytest.raises(ParameterError, match="features"):
        feature_stages(text)


def test_a_plan_with_too_many_feature_stages_is_refused():
    assert feature_stages("|".join(["hog"] * MOST_NAMES))
    with pytest.raises(ParameterError, match="at most 16 names"):
        feature_stages("|".join(["hog"] * (MOST_NAMES + 1)))


def test_parallel_feature_functions_have_equal_weight():
    both = apply_features("scattering + hog", IMAGES).astype(float)
    one, other = (apply_features(name, IMAGES).astype(float) for name in ("scattering", "hog"))
    first, second = one.shape[1], other.shape[1]
    scales = [np.sqrt((first + second) / (2 * size)) for size in (first, second)]
    assert both[:, :first] == pytest.approx(scales[0] * one, abs=5e-3)
    assert both[:, first:] == pytest.approx(scales[1] * other, abs=5e-3)


def test_feature_stages_are_applied_in_order():
    upright = apply_features("deskewed", IMAGES)
    chained = apply_features("deskewed | hog", IMAGES).astype(float)
    assert chained == pytest.approx(apply_features("hog", upright).astype(float), abs=2e-2)
    assert abs(chained - apply_features("hog", IMAGES).astype(float)).max() > 0.1


def test_deskewing_undoes_a_slant_and_a_shift():
    upright = np.zeros((28, 28), np.float32)
    upright[6:22, 12:16] = 1
    sheared = ndimage.affine_transform(upright, [[1, 0], [0.5, 1]], offset=[-2, -10], order=1)
    straight, found = apply_features("deskewed", np.stack([upright, sheared])).astype(float)
    assert abs(found - straight).mean() < 0.02
    assert abs(sheared - straight).mean() > 0.06
    down, right = (np.arange(28) @ found.sum(axis) / found.sum() for axis in (1, 0))
    assert (down, right) == pytest.approx((13.5, 13.5), abs=0.1)
    assert not apply_features("deskewed", np.zeros((1, 28, 28), np.float32)).any()


def test_custom_feature_functions_are_applied(folder):
    assert np.array_equal(own("halves", folder), IMAGES.reshape(40, -1)[:, ::2].astype(np.float16))
    assert own("layer", folder).shape == (40, 12, 3)
    made = build_features("hog + own_features:halves", folder)
    assert apply_features(made, IMAGES).shape == (40, 192 + 72)
    assert made is not None
    assert [one.name for one in made.code] == ["own_features:halves"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("mixed", "features of an input that do not depend on other inputs of the batch"),
        ("outshone", "features of an input that do not depend on other inputs of the batch"),
        ("lone", "features of an input that do not depend on other inputs of the batch"),
        ("drawn", "a function without random draws"),
        ("failing", "but RuntimeError: no such layer"),
        ("scalar", r"features of shape \\(32, …\\) for 32 inputs, not \\(\\)"),
        ("huge", "features within ±65504"),
        ("number", "a function of inputs"),
        ("missing", "a name that exists: own_features has no missing"),
    ],
)
def test_invalid_feature_functions_are_refused(name, line, folder):
    with pytest.raises(ParameterError, match=line.replace("\\\\", "\\")):
        own(name, folder)


def test_features_are_the_same_on_any_number_of_threads():
    threads, found = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(apply_features("scattering + hog", IMAGES))
    torch.set_num_threads(threads)
    assert np.array_equal(found[0], found[1])
