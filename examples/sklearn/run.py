"""Private logistic regression with scikit-learn's interface: python examples/sklearn/run.py"""

from __future__ import annotations

from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from turnout.data import load_images
from turnout.integrations.sklearn import LogisticRegression


def main() -> None:
    """Print accuracy against ε on the bundled digits."""
    data = load_images("digits")
    rows = data.train.inputs.reshape(len(data.train.inputs), -1)
    tested = data.test.inputs.reshape(len(data.test.inputs), -1)
    for epsilon in (1.0, 3.0, 10.0):
        model = LogisticRegression(
            epsilon=epsilon, delta=1e-4, feature_norm=4.0, epochs=30, classes=range(10)
        )
        pipeline = make_pipeline(FunctionTransformer(), model).fit(rows, data.train.labels)
        accuracy = pipeline.score(tested, data.test.labels)
        print(f"epsilon = {model.epsilon_:.3f}: accuracy {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
