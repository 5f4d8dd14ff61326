"""Look inside a fitted model: contributions, importance, calibration and the learning curve.

The functions of `deepsets.plot` draw into matplotlib axes. Here: which order of a customer made the model expect a
return, which columns matter, whether the probabilities can be trusted, and how the network learned.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from deepsets import plot
from deepsets.estimators import SetClassifier


def orders(customers: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Customers return something if they ordered shoes, the more likely the more expensive the shoes were."""
    rng = np.random.default_rng(seed)
    customer = np.repeat(np.arange(customers) + 10_000 * seed, rng.integers(2, 12, size=customers))
    table = pd.DataFrame({"customer": customer, "price": rng.lognormal(3.5, 0.8, size=len(customer)).round(2)})
    table["item"] = rng.choice(["book", "lamp", "shirt", "shoes"], p=[0.4, 0.2, 0.3, 0.1], size=len(table))
    table["days"] = rng.integers(1, 365, size=len(table))
    risk = np.where(table["item"] == "shoes", table["price"] / 80, 0.02)
    returned = rng.random(len(table)) < risk
    return table, pd.Series(returned).groupby(table["customer"]).any().to_numpy().astype(int)


def main(quick: bool = False) -> plt.Figure:
    table, y = orders(150 if quick else 1500, seed=0)
    test, y_test = orders(100 if quick else 1000, seed=1)
    model = SetClassifier(by="customer", model="deep", random_state=0).fit(table, y)
    probability = model.predict_proba(test)[:, 1]
    print(f"accuracy on new customers: {model.score(test, y_test):.3f}, always 'no': {1 - y_test.mean():.3f}")

    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    counts = test.groupby("customer").size()
    one = test[test["customer"] == counts.index[np.where(counts >= 6, probability, 0).argmax()]]
    labels = [f"{item}, {price:.0f} €" for item, price in zip(one["item"], one["price"], strict=True)]
    plot.contributions(model, one, names=labels, ax=axes[0, 0]).set_title("one customer: which order")
    importance = model.feature_importance(test, y_test)
    plot.importance(importance, ax=axes[0, 1]).set_title("which column")
    plot.calibration(y_test, probability, bins=6, ax=axes[1, 0]).set_title("calibration, new customers")
    plot.learning_curve(model.history_, ax=axes[1, 1]).set_title("learning curve")
    return figure


if __name__ == "__main__":
    main().savefig("look_inside.png", dpi=120)
