"""Red-shifts of galaxies from their photometry and that of their cluster (sections 4.1.4, appendix G)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import GroupKFold, GroupShuffleSplit
from torch import Tensor
from torch import nn as tnn

from deepsets import nn
from deepsets.estimators import MemberRegressor
from deepsets.sets import Sets
from deepsets.train import Batch, train

from ..datasets import data_file, data_folder
from ..datasets.galaxies import Galaxies, generate, load_redmapper, load_splus
from ..experiment import Experiment, Measure, Outcome, Trial, new_figure
from ..report.scoreboard import Claim, Headline, beats
from ..runner import Record

REDMAPPER = ("redmapper", "redmapper_dr8_public_v6.3_members.fits", "http://risa.stanford.edu/redmapper")


def galaxies(part: str, full: bool) -> Galaxies:
    """Load the catalogue of a part; cluster numbers from 0, rows sorted by them."""
    load = {"splus": lambda: load_splus(mates=True), "redmapper": lambda: load_redmapper(data_file(*REDMAPPER))}
    found = load.get(part, lambda: generate(clusters=26_111 if full else 300))()
    cluster = np.unique(found.cluster, return_inverse=True)[1]
    order = np.argsort(cluster, kind="stable")
    return Galaxies(*(column[order] for column in found._replace(cluster=cluster)))


def folds(part: str, about: Galaxies, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return train and test rows; clusters are never split. S-PLUS: 10 folds. The large catalogues: 90 % and 10 %."""
    if part == "splus":
        splitter = GroupKFold(10, shuffle=True, random_state=seed)
    else:
        splitter = GroupShuffleSplit(1, test_size=0.1, random_state=seed)
    return list(splitter.split(about.features, groups=about.cluster))


Predict = Callable[[Trial, str, Galaxies, np.ndarray, np.ndarray], np.ndarray]


def method(predict: Predict) -> Callable[[Trial, str], Outcome]:
    """Return a method that predicts every fold and is scored on the galaxies that have a spectrum."""

    def run(trial: Trial, part: str) -> Outcome:
        about = galaxies(part, trial.full)
        found = np.full(len(about.z), np.nan)
        for number, (train_rows, test_rows) in enumerate(folds(part, about, trial.seed)):
            fold = replace(trial, folder=trial.folder / f"fold-{number}")
            found[test_rows] = predict(fold, part, about, train_rows, test_rows)
        known = np.isfinite(about.z) & np.isfinite(found)
        shown = np.random.default_rng(0).permutation(np.flatnonzero(known))[:400]
        extra = {"z": about.z[shown].round(4).tolist(), "found": found[shown].round(4).tolist()}
        sizes = np.bincount(about.cluster)
        spectra = np.bincount(about.cluster, weights=np.isfinite(about.z)).astype(int)
        extra |= {"sizes": np.bincount(np.minimum(sizes // 10, 30)).tolist(), "spectra": np.bincount(spectra).tolist()}
        return Outcome(measures(part, about, found, known) if known.any() else [], extra)

    return run


def measures(part: str, about: Galaxies, found: np.ndarray, known: np.ndarray) -> list[Measure]:
    """Return the scatter, its standard error, and by how many standard errors it is below that of the catalogue.

    Galaxies of a cluster err together, so the errors are those of a mean over clusters, not over galaxies.
    """
    made = [Measure(part, "scatter", scatter(about.z[known], found[known]))]
    errors = np.abs(np.stack([about.catalogue, found]) - about.z) / (1 + about.z)
    made.append(Measure(part, "standard error", standard_error(errors[1, known], about.cluster[known])))
    both = known & np.isfinite(about.catalogue)
    gain = (errors[0] - errors[1])[both]
    if gain.any():
        made.append(Measure(part, "lead", float(gain.mean()) / standard_error(gain, about.cluster[both])))
    return made


def scatter(z: np.ndarray, found: np.ndarray) -> float:
    r"""Return $\mathrm{mean}\; |z - \hat z| / (1 + z)$, as in cosmology."""
    return float(np.mean(np.abs(z - found) / (1 + z)))


def standard_error(values: np.ndarray, cluster: np.ndarray) -> float:
    """Return the standard error of the mean of values (n,), if clusters, not values, are drawn independently.

    >>> standard_error(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 0, 1, 1]))  # two draws, 1 and 3
    1.0
    """
    sums = np.bincount(cluster, weights=values - values.mean())
    count = len(np.unique(cluster))
    return float(np.sqrt(np.square(sums).sum() * count / (count - 1)) / len(values))


def network(layer: Callable[[int, int], tnn.Module], inputs: int, width: int) -> nn.SetSequential:
    """Return three layers of a width and one of 1, with tanh and a dropout of whole features of a set."""
    layers: list[tnn.Module] = []
    for width_in in (inputs, width, width):
        layers += [layer(width_in, width), tnn.Tanh(), nn.SetDropout(0.1)]
    return nn.SetSequential(*layers, layer(width, 1))


def published(layer: Callable[[int, int], tnn.Module], width: int) -> Predict:
    """Return the networks of the paper: equivariant layers, or as many weights on single galaxies."""

    def predict(trial: Trial, part: str, about: Galaxies, rows: np.ndarray, test: np.ndarray) -> np.ndarray:
        x, z = _standard(about.features, rows), about.z
        centre, spread = np.nanmean(z[rows]), np.nanstd(z[rows])
        target = ((z - centre) / spread).astype(np.float32)
        sets = _sets(x[rows], about.cluster[rows])
        data = Batch(sets, sets.with_values(torch.from_numpy(target[rows])))
        model = trial.build(lambda: network(layer, x.shape[1], width))
        steps = {"splus": (150, 16), "generated": (12 if trial.full else 60, 128), "redmapper": (12, 128)}
        chosen = trial.choose(epochs=steps[part][0], batch_size=steps[part][1], rate=2e-3)
        train(
            model, _loss, data, epochs=chosen.epochs, batch_size=chosen.batch_size, learning_rate=chosen.rate,
            seed=trial.seed, checkpoint_dir=trial.folder, progress=False,
        )  # fmt: skip
        model.eval()
        with torch.no_grad():
            answer = model(_sets(x[test], about.cluster[test])).values[:, 0].numpy()
        return answer * spread + centre

    return predict


def ours(trial: Trial, part: str, about: Galaxies, rows: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Predict with `MemberRegressor`; galaxies without a spectrum serve as context of the others."""
    chosen = trial.choose(epochs=None if part == "splus" else 8)
    model = MemberRegressor(random_state=trial.seed, epochs=chosen.epochs, checkpoint_dir=str(trial.folder))
    lists = [_lists(column[rows], about.cluster[rows]) for column in (about.features, about.z)]
    model.fit(*lists)
    return np.concatenate(model.predict(_lists(about.features[test], about.cluster[test])))


def catalogue(trial: Trial, part: str, about: Galaxies, rows: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the catalogue's own estimate."""
    return about.catalogue[test]


def _loss(model: tnn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    assert isinstance(batch.y, Sets)
    target = batch.y.values
    known = target.isfinite()
    error = model(batch.sets).values[:, 0] - target.nan_to_num()
    return (error.square() * known).sum(), known.sum()


def _standard(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Standardise by the training rows; missing values are put at the mean."""
    mean, std = np.nanmean(features[rows], 0), np.nanstd(features[rows], 0) + 1e-9
    return np.nan_to_num((features - mean) / std).clip(-6, 6).astype(np.float32)


def _sets(values: np.ndarray, cluster: np.ndarray) -> Sets:
    sizes = np.bincount(cluster)
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
    return Sets(torch.from_numpy(values), torch.from_numpy(offsets))


def _lists(values: np.ndarray, cluster: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.flatnonzero(np.diff(cluster)) + 1)


def parts(full: bool) -> list[str]:
    """Return S-PLUS, the generated catalogue, and redMaPPer where its file is."""
    there = data_folder().joinpath(*REDMAPPER[:2]).exists()
    return ["splus", "generated", *["redmapper"] * there] if full else ["generated"]


def panels(records: Sequence[Record]) -> Any:
    """Draw the paper's three panels: sizes of clusters, spectra per cluster, predicted against true."""
    figure = new_figure(9, 2.8)
    left, middle, right = figure.subplots(1, 3)
    part = next(iter(records[0].parts))
    extra = records[0].parts[part]["extra"]
    left.bar(np.arange(len(extra["sizes"])) * 10, extra["sizes"], width=9, align="edge")
    left.set(xlabel="galaxies in a cluster", ylabel="clusters", title=part)
    middle.bar(np.arange(len(extra["spectra"])), extra["spectra"], width=0.9)
    middle.set(xlabel="spectra in a cluster", xlim=(-0.5, len(extra["spectra"])))
    for record in records:
        if record.method in {"Ours", "Catalogue"} and record.seed == records[0].seed:
            points = record.parts[part]["extra"]
            right.plot(points["z"], points["found"], ".", ms=2.5, alpha=0.6, label=record.method)
    right.axline((0.1, 0.1), slope=1, color="0.5", lw=0.8)
    right.set(xlabel="spectroscopic red-shift", ylabel="found")
    right.legend()
    return figure


EXPERIMENT = Experiment(
    name="redshift",
    title="Red-shifts of galaxies in clusters",
    section="4.1.4",
    methods={
        "MLP": method(published(tnn.Linear, 183)),
        "Catalogue": method(catalogue),
        "Deep Sets": method(published(lambda i, o: nn.Equivariant(i, o, pool="mean"), 128)),
        "Ours": method(ours),
    },
    parts=parts,
    optional=["redmapper"],
    published={
        (method, "redmapper", "scatter"): value
        for method, value in (("MLP", 0.026), ("Catalogue", 0.025), ("Deep Sets", 0.023))
    },
    figures={"Clusters, spectra, and what was found": panels},
    headlines=[
        Headline("red-shift scatter, redMaPPer", "redmapper", "scatter"),
        Headline("red-shift scatter, S-PLUS", "splus", "scatter", paper=0.023),
    ],
    claims=[
        Claim(
            "the other members of a cluster lower the scatter below that of an MLP",
            beats("Deep Sets", ["MLP"], [(part, "scatter") for part in ("redmapper", "splus", "generated")]),
        ),
        Claim(
            "… and below that of the catalogue's own estimate",
            beats("Deep Sets", ["Catalogue"], [(part, "scatter") for part in ("redmapper", "splus")]),
        ),
    ],
)
