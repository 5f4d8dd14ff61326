"""A table with mixed columns: one line instead of groupby().agg() and boosting.

Each row is an order of a customer, with numbers, a category and gaps; the target is known per customer. The usual way
summarises every customer by hand; `SetClassifier` takes the table as it is, and says which order it was.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from deepsets import plot
from deepsets.estimators import SetClassifier


def orders(customers: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    customer = np.repeat(np.arange(customers) + 10_000 * seed, rng.integers(1, 30, size=customers))
    table = pd.DataFrame({"customer": customer, "amount": rng.lognormal(3, 1, size=len(customer))})
    table["category"] = rng.choice(["books", "food", "tools", "toys"], p=[0.3, 0.4, 0.2, 0.1], size=len(table))
    table["days"] = np.where(rng.random(len(table)) < 0.1, np.nan, rng.exponential(60, size=len(table)))
    # A customer stays if one recent order of food or toys was large: a property of single orders.
    strong = table["category"].isin(["food", "toys"]) & (table["amount"] > 40) & (table["days"] < 40)
    stays = strong.groupby(table["customer"]).any().to_numpy()
    return table, np.where(rng.random(customers) < 0.05, ~stays, stays).astype(int)


def by_hand(table: pd.DataFrame) -> pd.DataFrame:
    numbers = table.groupby("customer")[["amount", "days"]].agg(["count", "mean", "std", "min", "max"])
    numbers.columns = ["_".join(names) for names in numbers.columns]
    shares = pd.crosstab(table["customer"], table["category"], normalize="index")
    return numbers.join(shares)


def main(quick: bool = False) -> plt.Figure:
    (train, y), (test, y_test) = orders(150 if quick else 1500, 0), orders(150 if quick else 1000, 1)
    model = SetClassifier(by="customer", random_state=0).fit(train, y)
    boosting = HistGradientBoostingClassifier(random_state=0).fit(by_hand(train), y)
    scores = {
        "groupby + boosting": roc_auc_score(y_test, boosting.predict_proba(by_hand(test))[:, 1]),
        "SetClassifier": roc_auc_score(y_test, model.predict_proba(test)[:, 1]),
    }
    for name, score in scores.items():
        print(f"{name}: area under the ROC curve {score:.3f}")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained", width_ratios=[3, 4])
    bars = left.barh(list(scores), list(scores.values()), color=["0.6", "tab:blue"])
    left.bar_label(bars, fmt="%.3f", padding=3)
    left.set(xlim=(0.5, 1.05), xlabel="area under the ROC curve, new customers")
    sizes = test.groupby("customer").size()
    one = test[test["customer"] == sizes[sizes.between(6, 9)].index[0]]
    names = [f"{row.category}, {row.amount:.0f} €, {row.days:.0f} days ago" for row in one.itertuples()]
    plot.contributions(model, one, names=names, ax=right).set_title("which order of this customer it was")
    return figure


if __name__ == "__main__":
    main().savefig("mixed_table.png", dpi=120)
