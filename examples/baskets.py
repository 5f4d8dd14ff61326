"""Shopping baskets: more like these.

An expander learns from sets of items that were bought together, and completes a new basket: for a customer it has never
seen, without fitting again.
"""

import matplotlib.pyplot as plt
import numpy as np

from deepsets.expand import BayesianSets

MEALS = {
    "breakfast": ["milk", "bread", "butter", "jam", "coffee", "eggs", "honey"],
    "pasta": ["spaghetti", "tomatoes", "basil", "parmesan", "olive oil", "garlic", "wine"],
    "barbecue": ["sausages", "charcoal", "mustard", "beer", "buns", "ketchup", "salad"],
}
EVERYWHERE = ["bags", "paper towels"]


def baskets(count: int, seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        meal = list(MEALS.values())[rng.integers(len(MEALS))]
        basket = set(rng.choice(meal, size=rng.integers(2, 6), replace=False))
        out.append(sorted(basket | {item for item in EVERYWHERE if rng.random() < 0.3}))
    return out


def main(quick: bool = False) -> plt.Figure:
    expander = BayesianSets().fit(baskets(200 if quick else 2000, seed=0))
    queries = [["milk", "bread"], ["basil", "garlic"], ["beer", "buns"]]
    figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
    for ax, query in zip(axes, queries, strict=True):
        found = expander.expand(query, k=5)
        print(" + ".join(query), "->", ", ".join(f"{item.element} ({item.score:.1f})" for item in found))
        ax.barh([item.element for item in found][::-1], [item.score for item in found][::-1])
        ax.set(title=" + ".join(query), xlabel="score")
    odd = ["milk", "bread", "charcoal", "jam"]
    fits = expander.fits(odd)
    print(f"does not belong to {', '.join(odd)}: {odd[int(fits.argmin())]}")
    return figure


if __name__ == "__main__":
    main().savefig("baskets.png", dpi=120)
