import numpy as np
import pytest
import torch

from deepsets import Sets
from paper.datasets.popstats import TASKS, plug_in, population, posterior_mean, statistic
from paper.experiment import Trial
from paper.experiments import popstats
from paper.experiments.popstats import EXPERIMENT, TEST_SETS
from paper.experiments.popstats_methods import Network, log_moments, whitening
from paper.runner import Record


def test_the_statistics_have_their_closed_forms():
    alpha, mix = 0.7, np.random.default_rng(0).normal(size=(16, 20))
    inner = mix @ mix.T
    block = np.block([[inner, alpha * inner], [alpha * inner, inner]])
    assert statistic("correlation-d16", block) == pytest.approx(-8 * np.log(1 - alpha**2))
    v = np.random.default_rng(1).normal(size=32)
    spike = np.eye(32) + 0.4 * np.outer(v, v)
    known = 0.5 * (np.log1p(0.4 * v**2).sum() - np.log1p(0.4 * v @ v))
    assert statistic("rank1-d32", spike) == pytest.approx(known)
    assert statistic("rotation", np.diag([4.0, 9.0])) == pytest.approx(0.5 * np.log(2 * np.pi * np.e * 4))
    assert statistic("random-d32", np.diag(np.arange(1.0, 33))) == pytest.approx(0)


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_is_a_split_and_sizes_are_those_of_the_paper(task):
    sets, y = population(task, 40, 3)
    again, y_again = population(task, 40, 3)
    other, y_other = population(task, 40, 4)
    assert torch.equal(sets.values, again.values) and torch.equal(y, y_again)
    assert not torch.equal(y, y_other)
    assert sets.width == (2 if task == "rotation" else 32)
    assert 300 <= int(sets.sizes.min()) and int(sets.sizes.max()) <= 500 and len(other) == 40


@pytest.mark.parametrize("task", TASKS)
def test_the_plug_in_estimator_has_no_bias(task):
    sets, y = population(task, 150, 5)
    error = (plug_in(task, sets) - y).double()
    assert abs(float(error.mean())) < 4 * float(error.std()) / 150**0.5


@pytest.mark.parametrize("task", TASKS[:3])
def test_who_knows_the_task_beats_the_plug_in_estimator(task):
    sets, y = population(task, 60, 6)
    best = (posterior_mean(task, sets) - y).square().mean()
    assert best < 0.9 * (plug_in(task, sets) - y).square().mean()


def test_what_is_fixed_belongs_to_the_task_and_not_to_the_split():
    sets, y = population("rank1-d32", 60, 7, task_seed=5)
    right, wrong = (posterior_mean("rank1-d32", sets, task_seed=s) for s in (5, 6))
    assert (right - y).square().mean() < (wrong - y).square().mean()


def test_unknown_tasks_and_answers_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match=r"there is no task 'rotated'; there are: rotation, correlation-d16"):
        population("rotated", 3)
    with pytest.raises(ValueError, match="528 unknowns"):
        posterior_mean("random-d32", population("random-d32", 2)[0])


def test_the_network_has_three_layers_on_both_sides_and_sees_white_members():
    sets = whitening(given := population("correlation-d16", 30, 8)[0])(given)
    torch.testing.assert_close(torch.cov(sets.values.T), torch.eye(32), rtol=0, atol=1e-3)
    model = Network(sets).model
    assert [sum(isinstance(m, torch.nn.Linear) for m in part.modules()) for part in (model.phi, model.rho)] == [3, 3]
    pooled = model.rho[0](model.pool(sets.map(model.phi)))
    torch.testing.assert_close(pooled.std(0), torch.ones(128), rtol=1e-3, atol=1e-3)


def test_moments_of_logarithms_are_those_of_the_sample_covariance():
    sets, _ = population("rank1-d32", 70, 9)  # more than one piece
    means, spectra, variances, logs, entries, values = log_moments(sets)
    for i in (0, 69):
        covariance = np.cov(sets[i].double().numpy().T)
        found, axes = np.linalg.eigh(covariance)
        np.testing.assert_allclose(values[i], found, rtol=1e-6)
        np.testing.assert_allclose(variances[i], np.log(covariance.diagonal()), rtol=1e-5)
        whole = (axes * np.log(found)) @ axes.T
        np.testing.assert_allclose(entries[i], whole[np.triu_indices(32)], atol=1e-6)
    torch.testing.assert_close(means[:, 0], variances.mean(1))
    torch.testing.assert_close(spectra[:, 0], logs.mean(1))


@pytest.mark.slow
def test_the_quick_form_learns_and_the_figures_show_it(tmp_path, monkeypatch):
    monkeypatch.setitem(TEST_SETS, False, 60)
    monkeypatch.setattr("paper.experiments.popstats.QUICK_STEPS", 120)
    assert EXPERIMENT.parts(False) == [f"{t} N={n}" for t in ("rotation", "correlation-d16") for n in (128, 512)]
    records, errors = [], {}
    for method, run in EXPERIMENT.methods.items():
        outcome = run(Trial(False, 0, tmp_path / method), "rotation N=128")
        outcome.extra.update(y=[0.0, 1.0], found=[0.1, 0.9])
        (measure,) = outcome.measures
        assert (measure.data, measure.metric) == ("rotation N=128", "mse")
        errors[method] = measure.value
        records.append(Record.of(EXPERIMENT, False, method, 0))
        records[-1].add("rotation N=128", outcome, Trial(False, 0, tmp_path), 1.0, 1.0)
    spread = float(population("rotation", 60, 2000)[1].var())
    assert errors["SDM"] < 0.2 * spread and errors["Deep Sets"] < 0.2 * spread and errors["Ours"] < 0.01 * spread
    assert errors["Bayes"] < errors["Gaussian plug-in"]
    pytest.importorskip("matplotlib")
    scatter, curves = (make(records) for make in EXPERIMENT.figures.values())
    assert [len(axes.lines) for axes in scatter.axes] == [6]  # five learned methods and the diagonal
    assert [len(axes.lines) for axes in curves.axes] == [7]


@pytest.mark.parametrize("method", [popstats.deep_sets, popstats.sdm, popstats.ours])
def test_whitening_and_scaling_are_fitted_on_training_sets_only(method, tmp_path, monkeypatch):
    """The answer for one test set must not change when the other test sets change."""
    monkeypatch.setattr(popstats, "QUICK_STEPS", 20)
    asked = population("rotation", 8, 2000)[0]
    scaled = Sets.from_list([asked[0], *(100 * asked[i] for i in range(1, 8))])
    one, other = (
        method(Trial(False, 0, tmp_path / str(i)), "rotation", 32, a)[0] for i, a in enumerate((asked, scaled))
    )
    torch.testing.assert_close(one[0], other[0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(one[1:], other[1:], rtol=1e-3)


@pytest.mark.parametrize(("pool", "wanted"), [("mean", [64, 256]), ("sum", [None, None])])
def test_sum_pooling_is_trained_on_whole_sets(pool, wanted, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(popstats, "train", lambda *_, subset, **__: seen.append(subset))
    popstats.deep_sets(Trial(False, 0, tmp_path), "rotation", 32, population("rotation", 8, 2000)[0], pool=pool)
    assert seen == wanted
