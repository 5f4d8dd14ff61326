"""Red-shifts: clusters are not split, missing labels do not count, other members of a cluster serve as context."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from deepsets import Sets
from deepsets.nn import Equivariant
from deepsets.train import Batch
from paper import Trial
from paper.datasets.galaxies import Galaxies, generate
from paper.experiments import redshift

SMALL = generate(clusters=30, seed=2)


@pytest.mark.parametrize("part", ["splus", "generated"])
def test_a_cluster_is_never_cut_and_every_galaxy_of_s_plus_is_tested_once(part):
    tested = np.zeros(len(SMALL.z), dtype=int)
    for train, test in redshift.folds(part, SMALL, seed=0):
        assert not set(SMALL.cluster[train]) & set(SMALL.cluster[test])
        assert len(train) + len(test) == len(SMALL.z)
        tested[test] += 1
    assert (tested == 1).all() if part == "splus" else tested.max() == 1


def test_galaxies_without_a_spectrum_do_not_count_in_the_loss():
    x, z = torch.randn(5, 3), torch.tensor([0.1, float("nan"), 0.3, float("nan"), 0.2])
    sets = Sets(x, torch.tensor([0, 2, 5]))
    model = redshift.network(torch.nn.Linear, 3, 8).eval()
    total, number = redshift._loss(model, Batch(sets, sets.with_values(z)))
    known = z.isfinite()
    assert_close(total, (model(sets).values[known, 0] - z[known]).square().sum())
    assert number == 3


def test_other_members_change_the_equivariant_network_and_not_the_mlp():
    whole = Sets(torch.randn(6, 4), torch.tensor([0, 6]))
    fewer = Sets(whole.values[:3], torch.tensor([0, 3]))
    alone = redshift.network(torch.nn.Linear, 4, 8).eval()
    together = redshift.network(lambda i, o: Equivariant(i, o, pool="mean"), 4, 8).eval()
    assert_close(alone(whole).values[:3], alone(fewer).values)
    assert not torch.allclose(together(whole).values[:3], together(fewer).values, atol=1e-3)


@pytest.mark.parametrize("inputs", [12, 17])
def test_the_two_networks_have_about_as_many_weights(inputs):
    models = [redshift.network(torch.nn.Linear, inputs, 183)]
    models.append(redshift.network(lambda i, o: Equivariant(i, o, pool="mean"), inputs, 128))
    mlp, equivariant = (sum(p.numel() for p in model.parameters()) for model in models)
    assert mlp == pytest.approx(equivariant, rel=0.01)


def test_the_standard_error_is_that_of_a_mean_over_clusters():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(200), 5)

    def draw():
        return rng.normal(size=200)[cluster] + 0.1 * rng.normal(size=1000)

    spread = np.std([draw().mean() for _ in range(500)])
    assert redshift.standard_error(draw(), cluster) == pytest.approx(spread, rel=0.15)
    assert redshift.standard_error(draw(), np.arange(1000)) < spread / 2  # galaxies as if they were independent


def test_measures_say_by_how_much_the_catalogue_is_beaten():
    known = np.isfinite(SMALL.z)
    off = np.where(SMALL.cluster % 2 == 0, 0.01, 0.02) * (1 + SMALL.z)
    about = SMALL._replace(catalogue=SMALL.z + 2 * off)
    found = {m.metric: m.value for m in redshift.measures("splus", about, SMALL.z + off, known)}
    assert 0.01 < found["scatter"] < 0.02 and found["lead"] == pytest.approx(found["scatter"] / found["standard error"])
    same = [m.metric for m in redshift.measures("splus", about, about.catalogue, known)]
    assert same == ["scatter", "standard error"]  # the catalogue is not behind itself
    none = about._replace(catalogue=np.full(len(about.z), np.nan))
    assert [m.metric for m in redshift.measures("splus", none, SMALL.z + off, known)] == same


def test_a_catalogue_without_estimates_gives_no_result(tmp_path, monkeypatch):
    none = SMALL._replace(catalogue=np.full(len(SMALL.z), np.nan))
    monkeypatch.setattr(redshift, "galaxies", lambda part, full: none)
    assert redshift.EXPERIMENT.methods["Catalogue"](Trial(False, 0, tmp_path), "generated").measures == []


@pytest.mark.parametrize("method", ["MLP", "Deep Sets", "Ours"])
def test_an_interrupted_run_resumes_after_the_folds_that_are_done(method, tmp_path, monkeypatch):
    cluster = np.arange(80) // 4
    rng = np.random.default_rng(0)
    few = Galaxies(rng.normal(size=(80, 3)), rng.random(80), np.full(80, np.nan), cluster)
    monkeypatch.setattr(redshift, "galaxies", lambda part, full: few)
    trial = Trial(False, 0, tmp_path / "one")
    first = redshift.EXPERIMENT.methods[method](trial, "generated").measures
    (log,) = (tmp_path / "one").glob("fold-0/**/log.jsonl")
    epochs = log.read_text().splitlines()
    assert redshift.EXPERIMENT.methods[method](trial, "generated").measures == first
    assert epochs and log.read_text().splitlines() == epochs  # nothing was left to do
    again = redshift.EXPERIMENT.methods[method](replace(trial, folder=tmp_path / "two"), "generated").measures
    assert again == first


def test_the_panels_show_every_number_of_spectra(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(redshift, "galaxies", lambda part, full: SMALL)
    outcome = redshift.EXPERIMENT.methods["Catalogue"](Trial(False, 0, tmp_path), "generated")
    record = type("R", (), {"parts": {"generated": {"extra": outcome.extra}}, "method": "Catalogue", "seed": 0})
    _, middle, right = redshift.panels([record]).axes
    most = max(np.bincount(SMALL.cluster, weights=np.isfinite(SMALL.z)))
    assert middle.get_xlim()[1] > most and len(right.get_lines()) == 2


@pytest.mark.parametrize("equivariant", [False, True])
def test_the_network_is_three_tanh_layers_and_a_linear_one(equivariant):
    torch.manual_seed(0)
    build = (lambda i, o: Equivariant(i, o, pool="mean")) if equivariant else torch.nn.Linear
    model = redshift.network(build, 4, 8).double().eval()
    x, sizes = torch.randn(6, 4, dtype=torch.float64), [4, 2]
    weights = [w.detach() for w in model.parameters()]
    step = 3 if equivariant else 2
    assert len(weights) == 4 * step
    expected = x
    for number in range(4):
        weight, bias, *context = weights[step * number : step * number + step]
        layer = expected @ weight.T + bias
        if context:
            means = torch.cat([part.mean(0, keepdim=True).expand_as(part) for part in expected.split(sizes)])
            layer = layer - means @ context[0].T
        expected = layer.tanh() if number < 3 else layer
    assert_close(model(Sets(x, torch.tensor([0, 4, 6]))).values, expected)
    widths = [w.shape[0] for w in redshift.network(build, 17, 128).parameters() if w.ndim == 2]
    assert widths == sorted([128] * (6 if equivariant else 3)) + [1] * (2 if equivariant else 1)
    assert [layer.p for layer in model.layers if type(layer).__name__ == "SetDropout"] == [0.1] * 3


@pytest.mark.parametrize("method", ["MLP", "Deep Sets", "Ours"])
def test_scaling_is_fitted_on_training_rows_only(method, tmp_path, monkeypatch):
    """The prediction for one test cluster must not change when another test cluster changes."""
    rng = np.random.default_rng(0)
    few = Galaxies(rng.normal(size=(80, 3)), rng.random(80), np.full(80, np.nan), np.arange(80) // 4)
    factor = np.where(few.cluster == 19, 1000.0, 1.0)
    other = few._replace(features=factor[:, None] * few.features, z=factor * few.z)
    seen = []

    def measures(part, about, found, known):
        seen.append(found)
        return [redshift.Measure(part, "scatter", 0.0)]

    monkeypatch.setattr(redshift, "measures", measures)
    monkeypatch.setattr(redshift, "folds", lambda *_: [(np.arange(64), np.arange(64, 80))])
    for number, about in enumerate((few, other)):
        monkeypatch.setattr(redshift, "galaxies", lambda part, full, about=about: about)
        redshift.EXPERIMENT.methods[method](Trial(False, 0, tmp_path / str(number)), "generated")
    np.testing.assert_allclose(seen[0][64:76], seen[1][64:76], rtol=1e-5, atol=1e-6)
    assert not np.allclose(seen[0][76:], seen[1][76:])
