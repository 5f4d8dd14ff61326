"""Cells of patients: from an AnnData object to a prediction per patient.

Each patient is a set of cells with gene expression. Patients who respond have a small population of cells that others
lack. `Sets.from_anndata` groups the cells by patient; the estimator finds the population.
"""

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from deepsets import Sets
from deepsets.estimators import SetClassifier


def experiment(patients: int, seed: int) -> tuple[anndata.AnnData, np.ndarray]:
    """Cells in a space of 10 components; in responders 3 % of the cells belong to a fourth type."""
    rng = np.random.default_rng(seed)
    types = np.random.default_rng(99).normal(scale=2.0, size=(4, 10))
    responds = rng.integers(2, size=patients)
    cells, owner = [], []
    for patient, label in enumerate(responds):
        count = int(rng.integers(100, 400))
        shares = [0.5, 0.3, 0.17, 0.03] if label else [0.5, 0.3, 0.2, 0.0]
        kind = rng.choice(4, p=shares, size=count)
        cells.append(types[kind] + rng.normal(size=(count, 10)))
        owner += [f"patient {patient}"] * count
    data = anndata.AnnData(
        X=np.zeros((len(owner), 1), dtype=np.float32),
        obs=pd.DataFrame({"patient": owner}, index=[f"cell {i}" for i in range(len(owner))]),
        obsm={"X_pca": np.concatenate(cells).astype(np.float32)},
    )
    return data, responds


def main(quick: bool = False) -> plt.Figure:
    train, y = experiment(30 if quick else 120, 0)
    test, y_test = experiment(20 if quick else 80, 1)
    X, X_test = (Sets.from_anndata(data, by="patient", obsm="X_pca") for data in (train, test))
    model = SetClassifier(model="deep", random_state=0).fit(X, y)
    print(f"accuracy on {len(y_test)} new patients: {model.score(X_test, y_test):.3f}")

    patient = int(np.flatnonzero(y_test)[0])
    cells = X_test[patient].numpy()
    contributions = model.explain(X_test[[patient]])[0][:, 1]
    strongest = np.argsort(contributions)[-max(3, int(0.03 * len(cells))) :]
    left, right = np.linalg.svd(cells - cells.mean(0), full_matrices=False)[2][:2]
    figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
    ax.scatter(cells @ left, cells @ right, s=8, color="0.7", label="cells")
    ax.scatter(cells[strongest] @ left, cells[strongest] @ right, s=25, color="crimson", label="largest contribution")
    ax.set(title="a responder", xlabel="component 1", ylabel="component 2")
    ax.legend()
    return figure


if __name__ == "__main__":
    main().savefig("cells_of_patients.png", dpi=120)
