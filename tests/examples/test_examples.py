"""Every example of the gallery runs in its quick form, is short, and makes a picture that the site shows."""

import importlib.util
import re
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    monkeypatch.setattr(mpl, "rcParams", mpl.rcParams.copy())
    mpl.use("Agg")


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_quick_form_runs_and_draws(path, capsys):
    import matplotlib.pyplot as plt

    if "import anndata" in path.read_text():
        pytest.importorskip("anndata")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    figure = module.main(quick=True)
    assert figure.axes and all(ax.has_data() for ax in figure.axes)
    assert re.search(r"\d", capsys.readouterr().out)  # every example reports a number
    plt.close(figure)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_in_the_gallery(path):
    assert len(path.read_text().splitlines()) <= 80
    assert (ROOT / "docs" / "images" / "examples" / f"{path.stem}.png").exists()
    assert f"{path.stem}.py" in (ROOT / "docs" / "examples.md").read_text()


def test_there_are_at_least_ten():
    assert len(EXAMPLES) >= 10
