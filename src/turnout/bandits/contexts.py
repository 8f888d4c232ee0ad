"""Contextual bandits as linear ones: a pull is a parameter at which each client decides for itself.

Notation: φ(a, c) the features of action a in context c, ‖φ‖ ≤ 1; a*(c, θ) the action of the largest
⟨φ(a, c), θ⟩; g(θ) = E φ(a*(c, θ), c) over the known law of contexts.

The learner sends θᵢ, the client takes a*(c, θᵢ) in its own context and reports its reward, whose
mean is ⟨g(θᵢ), θ*⟩: a linear bandit with the actions g(θᵢ).

Source: thesis, §6.3.1; Hanna, Yang, Fragouli, Contexts can be cheap, 2023, Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.bandits.environment import LinearEnvironment
from turnout.core import checks
from turnout.core.errors import ParameterError, UnsupportedError

FloatArray = NDArray[np.float64]
_MOST_NUMBERS = 2**28  # of a net of parameters


@dataclass(frozen=True, eq=False)
class ContextualEnvironment(LinearEnvironment):
    """A linear environment whose pulls are parameters, with the regret of the contextual problem.

    Guarantees:
        what a client sends is a function of its context and reward that moves by at most 2 in a
        sum when both change, so the mechanism's ε is one of joint DP (thesis, Definition 6.2.3):
        it covers context and reward against everybody who sees what later clients are told. The
        client's own action, which its context decides, is seen by the client alone.

    Attributes:
        candidates: θᵢ of each pull, shape (K, d).
        optimum: mean reward of who knows θ* and each context.
    """

    candidates: FloatArray
    optimum: float

    @property
    def gaps(self) -> FloatArray:
        """Contextual regret of one pull of each candidate, shape (K,)."""
        return np.maximum(self.optimum - self.means, 0.0)


def best_features(features: FloatArray, parameters: FloatArray) -> FloatArray:
    """g(θ) of each parameter over contexts that are equally likely.

    Args:
        features: φ(a, c) of N contexts drawn from the known law, shape (N, A, d).
        parameters: shape (K, d).

    Returns:
        shape (K, d); over contexts that are drawn, not the law's own, its error is of the order
        of 1/√N in each direction.
    """
    found = np.empty_like(parameters)
    everywhere = np.arange(len(features))
    for i, parameter in enumerate(parameters):
        chosen = np.argmax(features @ parameter, axis=1)
        found[i] = features[everywhere, chosen].mean(axis=0)
    return found


def contextual_environment(
    features: FloatArray, parameter: FloatArray, candidates: FloatArray
) -> ContextualEnvironment:
    """The linear environment of a contextual one whose contexts are uniform over N known ones.

    Args:
        features: φ(a, c), each of norm at most 1, shape (N, A, d).
        parameter: θ*, of norm at most 1, shape (d,).
        candidates: parameters that may be pulled, shape (K, d), for example a `parameter_net`.

    Raises:
        ParameterError: features that are not finite, or of norm above 1.
    """
    array = checks.real_array(features=features)
    if array.ndim != 3 or array.size == 0:
        raise ParameterError("features", array.shape, "an array of shape (N, A, d)")
    if not np.all(np.linalg.norm(array, axis=2) <= 1.0 + 1e-9):
        raise ParameterError("features", "a norm above 1, or NaN", "norms of at most 1")
    optimum = float((array @ parameter).max(axis=1).mean())
    pulls = best_features(array, candidates)
    return ContextualEnvironment(pulls, parameter, candidates, optimum)


def parameter_net(dimension: int, fineness: float) -> FloatArray:
    """Parameters on the sphere, one within ``fineness`` of each, at most (3/ζ)^d of them.

    Only directions matter to g. In the plane they are equally spaced angles; beyond, a cube's grid
    projected onto the sphere.

    Raises:
        UnsupportedError: there would be too many to hold.
    """
    checks.count(dimension=dimension)
    checks.positive(fineness=fineness)
    if dimension == 1:
        return np.array([[-1.0], [1.0]])
    if dimension == 2:
        count = max(math.ceil(math.pi / math.asin(min(fineness / 2.0, 1.0)) / 2.0), 4)
        angles = 2.0 * np.pi * np.arange(count) / count
        return np.column_stack([np.cos(angles), np.sin(angles)])
    # Points ζ apart on the cube's faces are at most that far apart once projected inwards.
    side = math.ceil(math.sqrt(dimension - 1) / fineness) + 1
    if 2.0 * dimension * float(side) ** (dimension - 1) * dimension > _MOST_NUMBERS:
        raise UnsupportedError(
            f"a net of fineness {fineness:g} in {dimension} dimensions has about "
            f"{2.0 * dimension * float(side) ** (dimension - 1):.2g} parameters, too many to hold"
        )
    line = np.linspace(-1.0, 1.0, side)
    face = np.stack(np.meshgrid(*[line] * (dimension - 1), indexing="ij"), -1)
    flat = face.reshape(-1, dimension - 1)
    faces = [
        np.insert(flat, axis, sign, axis=1) for axis in range(dimension) for sign in (-1.0, 1.0)
    ]
    grid = np.unique(np.concatenate(faces), axis=0)
    return grid / np.linalg.norm(grid, axis=1, keepdims=True)
