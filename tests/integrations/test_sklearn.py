"""Estimators in the form of scikit-learn: private fits, and warnings where ε does not cover."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from turnout.accounting import price
from turnout.core.errors import ParameterError
from turnout.integrations import sklearn
from turnout.integrations.sklearn import (
    LinearRegression,
    LogisticRegression,
    UncoveredByEpsilonWarning,
    clipped_sum,
    scaled,
)
from turnout.schemes import CheckIn, GaussianNoise, Scheme

GENERATOR = np.random.default_rng(1)
ROWS = GENERATOR.normal(size=(2000, 3)) / 2
LABELS = np.where(ROWS @ [1.0, -2.0, 0.5] > 0.1, "yes", "no")
VALUES = np.clip(ROWS @ [0.5, -1.0, 0.2] + 2.0, 0.0, 4.0)
RANDOM: dict[str, str] = dict.fromkeys(
    (
        "check_classifier_data_not_an_array",
        "check_regressor_data_not_an_array",
        "check_regressors_int",
        "check_supervised_y_2d",
        "check_fit_idempotent",
    ),
    "asks for the same model of two fits, whose draws come from the operating system",
)


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
def test_estimator_checks_of_scikit_learn_pass_except_those_that_repeat_a_fit(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(kind(epsilon=50.0), expected_failed_checks=RANDOM, on_fail=None)
    failed = {check["check_name"] for check in found if check["status"] == "failed"}
    assert failed == set()
    assert sum(check["status"] == "passed" for check in found) > 40


def test_a_private_classifier_learns_within_its_epsilon():
    model = LogisticRegression(epsilon=1.0, delta=1e-5, feature_norm=2.0, classes=["no", "yes"])
    model.fit(ROWS, LABELS)
    assert model.score(ROWS, LABELS) > 0.9
    scheme = Scheme(
        GaussianNoise(model.noise_multiplier_), CheckIn(10, 20), "zero-out", unit="example"
    )
    assert model.epsilon_ == price(scheme, 1e-5).epsilon.upper
    assert 0.99 < model.epsilon_ <= 1.0
    shares = model.predict_proba(ROWS)
    assert np.allclose(shares.sum(axis=1), 1.0)
    small = ROWS[np.linalg.norm(ROWS, axis=1) < 2.0]
    scores = small @ model.coef_.T + model.intercept_
    assert (model.classes_[scores.argmax(axis=1)] == model.predict(small)).all()


def test_a_private_regression_learns_within_its_epsilon():
    model = LinearRegression(epsilon=2.0, feature_norm=2.0, target_range=(0.0, 4.0), epochs=30)
    model.fit(ROWS, VALUES)
    assert model.score(ROWS, VALUES) > 0.9
    assert 1.98 < model.epsilon_ <= 2.0
    small = ROWS[np.linalg.norm(ROWS, axis=1) < 2.0]
    assert np.allclose(small @ model.coef_ + model.intercept_, model.predict(small))
    with pytest.raises(ParameterError, match="target_range"):
        LinearRegression(target_range=(1.0, 0.0)).fit(ROWS, VALUES)


def test_no_row_changes_a_sum_of_clipped_gradients_by_more_than_one():
    rows = scaled(np.array([[1e300, 0.0], [3.0, 4.0], [0.0, 0.1]]), 1.0)
    assert (np.linalg.norm(rows[:, :2], axis=1) <= 1.0 + 1e-12).all()
    residuals = np.array([[1e6, -1e6], [0.1, 0.0], [np.sqrt(2.0), 3.0]])
    for i in range(3):
        alone = clipped_sum(rows[i : i + 1], residuals[i : i + 1])
        assert np.linalg.norm(alone) <= 1.0
    quiet = clipped_sum(rows[1:2], residuals[1:2])
    assert np.allclose(quiet, rows[1:2].T @ residuals[1:2])


def test_two_fits_differ_only_by_their_noise(monkeypatch):
    """Two fits differ through noise that no seed controls; without noise the fit is accurate."""
    one, other = (LogisticRegression(classes=["no", "yes"]).fit(ROWS, LABELS) for _ in range(2))
    assert not np.array_equal(one.coef_, other.coef_)
    drawn = []
    monkeypatch.setattr(
        sklearn, "system_gaussian", lambda size: drawn.append(size) or np.zeros(size)
    )
    model = LogisticRegression(batches=5, epochs=3, classes=["no", "yes"]).fit(ROWS, LABELS)
    assert drawn == [8] * 15
    assert model.score(ROWS, LABELS) > 0.85


def test_classes_taken_from_private_labels_give_a_warning():
    with pytest.warns(UncoveredByEpsilonWarning, match="classes="):
        LogisticRegression().fit(ROWS, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogisticRegression(classes=["no", "yes"]).fit(ROWS, LABELS)
    with pytest.raises(ParameterError, match="more than one class"):
        LogisticRegression(classes=["no"]).fit(ROWS, LABELS)


def test_an_error_about_labels_outside_the_classes_names_their_rows():
    other = LABELS.astype(object)
    other[[3, 5]] = "NA"
    with pytest.raises(ParameterError, match="y = 'something else': expected one of the 2 classes"):
        LogisticRegression(classes=["No", "Yes"]).fit(ROWS, LABELS)
    with pytest.raises(ParameterError, match=r"invalid: row 3, 5 \(counted from 0\)"):
        LogisticRegression(classes=["no", "yes"]).fit(ROWS, other)


def test_labels_keep_trailing_nuls_and_are_normalised_unicode():
    names = ["a", "a\0"] * 10
    model = LogisticRegression(classes=["a\0", "a"], epochs=1).fit(ROWS[:20], names)
    assert model.classes_.tolist() == ["a", "a\0"]
    assert set(model.predict(ROWS)) <= {"a", "a\0"}
    model = LogisticRegression(classes=["e\u0301", "o"], epochs=1).fit(
        ROWS[:20], ["\xe9", "o"] * 10
    )
    assert model.classes_.tolist() == ["o", "\xe9"]


def test_an_error_about_missing_values_names_their_rows():
    rows, targets = ROWS[:20].copy(), np.arange(20.0)
    rows[7, 1], targets[9] = np.nan, np.nan
    masked = np.ma.masked_array(ROWS[:20], mask=np.arange(60).reshape(20, 3) == 13)
    big = np.full((20, 1), 2**53 + 1)
    for x, y, said in (
        (
            rows,
            np.arange(20.0),
            "X = 'NaN or inf': expected finite numbers in every row; invalid: r",
        ),
        (
            ROWS[:20],
            targets,
            "y = 'NaN or inf': expected finite numbers in every row; invalid: row 9",
        ),
        (masked, np.arange(20.0), "row 4 "),
        (big, np.arange(20.0), "X = 'larger whole numbers': expected whole numbers between"),
    ):
        with pytest.raises(ParameterError, match=re.escape(said)):
            LinearRegression(epochs=1).fit(x, y)


def test_a_search_warns_that_every_fit_spends_epsilon():
    model = LogisticRegression(classes=["no", "yes"], epochs=2)
    with pytest.warns(UncoveredByEpsilonWarning, match="every fit"):
        GridSearchCV(model, {"learning_rate": [1.0, 2.0]}, cv=2).fit(ROWS, LABELS)
    with pytest.warns(UncoveredByEpsilonWarning, match="every fit"):
        cross_val_score(model, ROWS, LABELS, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline(FunctionTransformer(), model).fit(ROWS, LABELS)


def test_repeated_fits_give_a_warning():
    bagged = BaggingClassifier(LogisticRegression(classes=[0, 1]), n_estimators=2)
    with pytest.warns(UncoveredByEpsilonWarning, match="ensemble"):
        bagged.fit(ROWS[:200], LABELS[:200])


def test_later_parameter_changes_do_not_change_a_fitted_model():
    model = LogisticRegression(classes=["no", "yes"], feature_norm=2.0).fit(ROWS, LABELS)
    scores = model.predict_proba(ROWS)
    model.set_params(delta=1e-9, feature_norm=0.1)
    assert model.delta_ == 1e-5
    assert np.array_equal(model.predict_proba(ROWS), scores)


@pytest.mark.parametrize("classes", [["0", "1"], [0, 1]])
def test_classes_must_be_of_the_kind_of_the_labels(classes):
    labels = np.arange(20) % 2
    with pytest.raises(ParameterError, match="classes"):
        LogisticRegression(classes=classes).fit(
            ROWS[:20], labels if classes[0] == "0" else labels.astype(str)
        )
