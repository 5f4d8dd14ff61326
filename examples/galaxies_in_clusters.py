"""Galaxies in clusters: red-shifts of members, where only some members have a label.

Galaxies of one cluster share their distance, so the others of a cluster help to estimate the red-shift of each. Members
without a spectroscopic red-shift (NaN) are not trained on, but they are context for the others.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from deepsets.estimators import MemberRegressor


def catalogue(clusters: int, seed: int) -> pd.DataFrame:
    """Noisy photometry in three bands; all galaxies of a cluster have about the same red-shift."""
    rng = np.random.default_rng(seed)
    size = rng.integers(4, 30, size=clusters)
    cluster = np.repeat(np.arange(clusters), size)
    redshift = rng.uniform(0.1, 0.6, size=clusters)[cluster] + rng.normal(scale=0.002, size=len(cluster))
    bands = np.stack([20 + 4 * redshift, 1.5 * redshift**2, np.sin(4 * redshift)], axis=1)
    bands += rng.normal(scale=[0.5, 0.1, 0.2], size=bands.shape)
    table = pd.DataFrame(bands, columns=["r", "g-r", "r-i"])
    known = np.where(rng.random(len(cluster)) < 0.4, redshift, np.nan)
    return table.assign(cluster=cluster, redshift=known, truth=redshift)


def main(quick: bool = False) -> plt.Figure:
    train, test = catalogue(60 if quick else 200, 0), catalogue(30 if quick else 80, 1)
    columns = ["r", "g-r", "r-i"]
    model = MemberRegressor(by="cluster", columns=columns, epochs=10 if quick else None, random_state=0)
    model.fit(train.drop(columns="truth"), "redshift")
    test["cluster members"] = model.predict(test[["cluster", *columns]])

    alone = MemberRegressor(by="galaxy", columns=columns, epochs=10 if quick else None, random_state=0)
    alone.fit(train.assign(galaxy=range(len(train)))[["galaxy", "redshift", *columns]].dropna(), "redshift")
    test["alone"] = alone.predict(test.assign(galaxy=range(len(test)))[["galaxy", *columns]])

    figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True, layout="constrained")
    for ax, name in zip(axes, ["alone", "cluster members"], strict=True):
        scatter = float(np.mean(np.abs(test["truth"] - test[name]) / (1 + test["truth"])))
        print(f"{name}: mean |dz| / (1 + z) = {scatter:.4f}")
        ax.scatter(test["truth"], test[name], s=5, alpha=0.6)
        ax.axline((0.3, 0.3), slope=1, color="black", linewidth=0.8)
        ax.set(title=f"{name}: {scatter:.4f}", xlabel="true red-shift", ylabel="predicted red-shift")
    return figure


if __name__ == "__main__":
    main().savefig("galaxies_in_clusters.png", dpi=120)
