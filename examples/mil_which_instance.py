"""Multiple instance learning: which instance made the bag positive?

A bag is positive if at least one of its instances lies in a small region. Only the labels of the bags are known.
`SetClassifier` learns from them, and `explain` shows which instance is responsible.
"""

import matplotlib.pyplot as plt
import numpy as np

from deepsets.estimators import SetClassifier

CENTER = np.array([1.5, 1.5])


def bags(count: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of 5 to 15 instances; half of the bags hold one instance near CENTER."""
    rng = np.random.default_rng(seed)
    X, y = [], rng.integers(2, size=count)
    for label in y:
        x = rng.normal(scale=1.0, size=(rng.integers(5, 16), 2))
        x = x[np.linalg.norm(x - CENTER, axis=1) > 0.9]
        if label:
            x = np.vstack([x, CENTER + rng.normal(scale=0.15, size=2)])
        X.append(x)
    return X, y


def main(quick: bool = False) -> plt.Figure:
    X, y = bags(80 if quick else 400, seed=0)
    X_test, y_test = bags(60 if quick else 200, seed=1)
    model = SetClassifier(model="deep", random_state=0).fit(X, y)
    print(f"accuracy on {len(y_test)} new bags: {model.score(X_test, y_test):.3f}")

    positive = [i for i in np.flatnonzero(y_test) if model.predict(X_test[i : i + 1])[0] == 1][:3]
    contributions = model.explain([X_test[i] for i in positive])
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True, layout="constrained")
    for ax, i, each in zip(axes, positive, contributions, strict=False):
        points = ax.scatter(*X_test[i].T, c=each[:, 1], cmap="coolwarm", vmin=-1, vmax=1, s=60, edgecolor="black")
        ax.add_patch(plt.Circle(tuple(CENTER), 0.5, fill=False, linestyle="--"))
        ax.set(title=f"bag {i}", xlabel="feature 1")
    axes[0].set_ylabel("feature 2")
    figure.colorbar(points, ax=axes, label="contribution to P(positive)")
    return figure


if __name__ == "__main__":
    main().savefig("mil_which_instance.png", dpi=120)
