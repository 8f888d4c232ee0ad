"""Estimators for scikit-learn: linear models, trained with random check-ins of the rows.

`LogisticRegression` and `LinearRegression` sum clipped gradients in closed form. They issue an
`UncoveredByEpsilonWarning` if a fit, or a search that calls the fit, uses private data in a way
that ε does not cover.

Each row is in one random batch of each epoch. A batch's release is the noisy sum of its rows'
clipped gradients, divided by the expected size of a batch. ε is for one row under zero-out: the
number of rows, the classes and every parameter are public. Draws come from the operating system, so
a fit has no seed.
"""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from turnout.accounting import calibrate_noise, price
from turnout.core.errors import ParameterError
from turnout.core.optional import unavailable
from turnout.core.values import canonical, refuse_inexact, refuse_rows
from turnout.integrations.assignment import Assignment, system_gaussian
from turnout.schemes import CheckIn, GaussianNoise, PrivacyUnit, Relation, Scheme

Matrix = NDArray[np.float64]


def scaled(features: Matrix, norm: float) -> Matrix:
    """Rows scaled to norm at most 1, with a constant 1 appended, shape (rows, features + 1).

    Args:
        features: shape (rows, features).
        norm: bound on the ℓ2 norm of a row, above 0; longer rows are scaled down to it.
    """
    lengths = np.hypot.reduce(features, axis=1, keepdims=True)  # which does not overflow
    return np.hstack([features / np.maximum(lengths, norm), np.ones((len(features), 1))])


def clipped_sum(rows: Matrix, residuals: Matrix) -> Matrix:
    """Sum of all rows' gradients, each clipped to ℓ2 norm at most 1, shape (features, outputs).

    The gradient of a row is the outer product of the row and the row's residual.

    Args:
        rows: shape (rows, features).
        residuals: derivative of each row's loss with respect to the scores, shape (rows, outputs).
    """
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(residuals, axis=1)
    clipped = residuals * (1.0 - 2.0**-20) / np.maximum(lengths, 1.0)[:, None]
    return rows.T @ clipped


def softmax(scores: Matrix) -> Matrix:
    """Softmax of each row of scores, shape (rows, classes); each row sums to 1."""
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


_REPEATED = tuple(
    f"sklearn.{name}"
    for name in (
        "calibration",
        "ensemble",
        "feature_selection",
        "model_selection",
        "multiclass",
        "multioutput",
        "semi_supervised",
    )
)
"""Packages of scikit-learn whose estimators fit other estimators several times."""


class UncoveredByEpsilonWarning(UserWarning):
    """Warning that a fit depends on private data in a way that ε does not cover."""


def warn_in_a_search() -> None:
    """Issue a warning if the caller is scikit-learn code that fits a model several times."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_REPEATED):
            message = (
                "every fit of a search, cross-validation or ensemble costs epsilon_ anew, and "
                "scores on held-out rows are not private: epsilon_ is that of one fit alone"
            )
            warnings.warn(message, UncoveredByEpsilonWarning, stacklevel=4)
            return
        frame = frame.f_back


try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils._param_validation import Interval
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise unavailable(error, __name__, "sklearn") from None


class _CheckInModel(BaseEstimator):
    """Base class of linear models that are fitted by noisy sums of clipped gradients."""

    _positive = Interval(Real, 0, None, closed="neither")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "epsilon": [_positive],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "feature_norm": [_positive],
        "batches": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e6, closed="right")],
    }
    epsilon: float
    delta: float
    feature_norm: float
    batches: int
    epochs: int
    learning_rate: float

    def _rows(self, X: Any, y: Any, **kinds: bool) -> tuple[Matrix, NDArray[Any]]:
        """Features and labels as arrays, checked by scikit-learn.

        Raises:
            ParameterError: a value is missing or not finite; the error names its row.
        """
        asked: Any = {"dtype": np.float64, "ensure_all_finite": False, **kinds}
        _require_held(X)
        _require_finite("y", y)
        checked: Any = validate_data(self, X, y, **asked)
        _require_finite("X", checked[0])
        return checked

    def _learn(self, features: Matrix, targets: Matrix) -> None:
        """Fit the model: set the noise, ε and the weights, shape (features + 1, outputs)."""
        warn_in_a_search()
        # The least noise within ε, then the batches.
        participation = CheckIn(int(self.batches), int(self.epochs))
        self.noise_multiplier_, self.epsilon_ = _priced(participation, self.epsilon, self.delta)
        self.delta_, self._norm = self.delta, self.feature_norm
        rows = scaled(features, self.feature_norm)
        dealt = Assignment(participation, len(rows))
        shape = (rows.shape[1], targets.shape[1])
        weights, average = np.zeros(shape), np.zeros(shape)
        size, steps = dealt.expected_batch_size, participation.steps
        # One release for each batch: averaged iterates with a linearly falling learning rate.
        for _ in range(self.epochs):
            for batch in dealt.epoch():
                dealt.use()
                some, wanted = rows[batch], targets[batch]
                gradient = clipped_sum(some, self._residuals(some @ weights, wanted))
                noise = self.noise_multiplier_ * system_gaussian(weights.size).reshape(shape)
                pace = 1.0 - (dealt.used - 1) / steps
                weights -= self.learning_rate * pace * (gradient + noise) / size
                average += weights * (2.0 * dealt.used / (steps * (steps + 1)))
        self._weights = average

    def _scores(self, X: Any) -> Matrix:
        """Scores of each row, shape (rows, outputs)."""
        check_is_fitted(self)
        rows: Any = validate_data(self, X, reset=False, dtype=np.float64)
        return scaled(rows, self._norm) @ self._weights

    def _residuals(self, scores: Matrix, targets: Matrix) -> Matrix:
        """Derivative of each row's loss with respect to its scores, shape (rows, outputs)."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


class LogisticRegression(ClassifierMixin, _CheckInModel):
    """Multinomial logistic regression with (ε, δ)-privacy of each row.

    Args:
        epsilon: ε of one fit, above 0; never exceeded.
        delta: δ, in (0, 1).
        feature_norm: public bound on a row's ℓ2 norm, above 0; longer rows are scaled down to it.
        batches: number of batches of an epoch; each row is in one of them.
        epochs: number of epochs, at least 1.
        learning_rate: learning rate of the first step; it falls linearly to 0.
        classes: the classes, which are public; None: the values of the labels, with a warning. A
            row with another label is an error.

    Attributes:
        classes_: the classes, shape (classes,).
        coef_: weights of the features, shape (classes, features).
        intercept_: intercepts, shape (classes,).
        epsilon_: upper bound on ε of one fit at ``delta_``, for a row under zero-out.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_CheckInModel._parameter_constraints,
        "classes": [None, "array-like"],
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        feature_norm: float = 1.0,
        batches: int = 10,
        epochs: int = 20,
        learning_rate: float = 4.0,
        classes: Any = None,
    ) -> None:
        # As scikit-learn requires, parameters are stored unchanged and checked by `fit`.
        self.epsilon = epsilon
        self.delta = delta
        self.feature_norm = feature_norm
        self.batches = batches
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.classes = classes

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows and labels; each fit spends a further ``epsilon_``.

        Args:
            X: features, shape (rows, features).
            y: labels, shape (rows,).

        Returns:
            This estimator.

        Raises:
            ParameterError: a missing or infinite value, fewer than two classes, or an unknown
                label.
        """
        # Labels and classes, which must be of one kind.
        self._validate_params()
        features, labels = self._rows(X, _kept(y))
        check_classification_targets(labels)
        if self.classes is None:
            message = "classes are read from the labels, which no ε covers: name them by classes="
            warnings.warn(message, UncoveredByEpsilonWarning, stacklevel=2)
        named = labels if self.classes is None else np.asarray(_kept(self.classes))
        if _is_text(named) != _is_text(labels):
            expected = "texts if the labels are texts, and numbers otherwise"
            raise ParameterError("classes", self.classes, expected)
        self.classes_ = np.unique(_canonical(named))
        if len(self.classes_) < 2:
            raise ParameterError("classes", self.classes_.tolist(), "more than one class")
        # One column for each class; an unknown label is an error.
        chosen = _canonical(labels)[:, None] == self.classes_
        expected = f"one of the {len(self.classes_)} classes"
        refuse_rows("y", "something else", expected, ~chosen.any(axis=1), np.arange(len(labels)))
        self._learn(features, chosen.astype(np.float64))
        self.coef_ = self._weights[:-1].T / self.feature_norm
        self.intercept_ = self._weights[-1]
        return self

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities of the classes, shape (rows, classes)."""
        return softmax(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable classes, shape (rows,)."""
        likeliest = self._scores(X).argmax(axis=1)
        return self.classes_[likeliest]

    def _residuals(self, scores: Matrix, targets: Matrix) -> Matrix:
        return softmax(scores) - targets


class LinearRegression(RegressorMixin, _CheckInModel):
    """Least squares with (ε, δ)-privacy of each row.

    Args:
        epsilon, delta, feature_norm, batches, epochs, learning_rate: see `LogisticRegression`.
        target_range: public least and largest target, to which targets are clipped.

    Attributes:
        coef_: weights of the features, shape (features,).
        intercept_: intercept, a number.
        epsilon_: upper bound on ε of one fit at ``delta_``, for a row under zero-out.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_CheckInModel._parameter_constraints,
        "target_range": [tuple],
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        feature_norm: float = 1.0,
        batches: int = 10,
        epochs: int = 20,
        learning_rate: float = 1.0,
        target_range: tuple[float, float] = (-1.0, 1.0),
    ) -> None:
        # As scikit-learn requires, parameters are stored unchanged and checked by `fit`.
        self.epsilon = epsilon
        self.delta = delta
        self.feature_norm = feature_norm
        self.batches = batches
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.target_range = target_range

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows and targets; each fit spends a further ``epsilon_``.

        Args:
            X: features, shape (rows, features).
            y: targets, shape (rows,).

        Returns:
            This estimator.

        Raises:
            ParameterError: a missing or infinite value, or an invalid ``target_range``.
        """
        self._validate_params()
        features, values = self._rows(X, y, y_numeric=True)
        low, high = self._limits = self._range()
        half = 0.5 * (high - low)
        self._learn(features, ((np.clip(values, low, high) - low) / half - 1.0)[:, None])
        self.coef_ = half * self._weights[:-1, 0] / self.feature_norm
        self.intercept_ = half * (self._weights[-1, 0] + 1.0) + low
        return self

    def predict(self, X: Any) -> Matrix:
        """Predicted targets, shape (rows,); they may lie outside ``target_range``."""
        scores = self._scores(X)[:, 0]
        low, high = self._limits
        return 0.5 * (high - low) * (scores + 1.0) + low

    def _range(self) -> tuple[float, float]:
        """Least and largest target, after a check that they are finite and ascending."""
        low, high = self.target_range
        if not -np.inf < low < high < np.inf:
            raise ParameterError("target_range", self.target_range, "two finite numbers, ascending")
        return low, high

    def _residuals(self, scores: Matrix, targets: Matrix) -> Matrix:
        return scores - targets


def _kept(labels: Any) -> Any:
    """Labels; a list of strings becomes an array of objects, which keeps trailing NULs."""
    plain = isinstance(labels, list | tuple) and all(isinstance(label, str) for label in labels)
    return np.array(labels, dtype=object) if plain else labels


def _require_held(X: Any) -> None:
    """Raise an error for a masked array, or for whole numbers that float64 would round."""
    if isinstance(X, np.ma.MaskedArray):
        _require_finite("X", X)
    if isinstance(X, np.ndarray):
        refuse_inexact("X", X)


def _require_finite(name: str, values: Any) -> None:
    """Raise an error for rows with a missing or infinite number."""
    masked = isinstance(values, np.ma.MaskedArray)
    array = np.ma.filled(values.astype(np.float64), np.nan) if masked else np.asarray(values)
    if array.dtype.kind == "f" and array.ndim:
        wrong = np.asarray(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        refuse_rows(name, "NaN or inf", "finite numbers in every row", wrong, np.arange(len(array)))


def _canonical(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels, with strings in the Unicode normal form that all of turnout uses."""
    if not _is_text(labels):
        return labels
    return np.array([canonical(str(label)) for label in labels], dtype=object)


def _is_text(values: NDArray[Any]) -> bool:
    """Whether labels are strings rather than numbers."""
    return values.dtype.kind in "US" or (
        values.dtype.kind == "O" and isinstance(values.flat[0], str)
    )


@lru_cache(maxsize=64)
def _priced(participation: CheckIn, epsilon: float, delta: float) -> tuple[float, float]:
    """Least noise multiplier that meets ε at δ, and the upper bound on ε with this noise."""

    def scheme(noise: float) -> Scheme:
        noisy = GaussianNoise(noise)
        return Scheme(noisy, participation, Relation.ZERO_OUT, unit=PrivacyUnit.EXAMPLE)

    noise = calibrate_noise(scheme, epsilon, delta)
    return noise, price(scheme(noise), delta).epsilon.upper
