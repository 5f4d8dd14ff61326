"""Readers of galaxy catalogues, on small files in the published formats, and the generator."""

import numpy as np
import pytest

from paper.datasets import data_folder
from paper.datasets.galaxies import generate, load_redmapper, load_splus


def needs(name):
    there = (data_folder() / name).is_dir()
    return pytest.mark.skipif(not there, reason=f"needs the data set {name} below $DEEPSETS_DATA")


def redmapper_columns(fits, n, bands):
    """As in the published table of members: no vectors, no red-shift of the cluster."""
    some = {"IMAG": 0.5, "R": 0.4, "P": 0.9} | {f"MODEL_MAGERR_{band}": 0.1 for band in bands}
    some |= {f"MODEL_MAG_{band}": 20.0 - k for k, band in enumerate(bands)}
    return [
        fits.Column("ID", "J", array=np.array([1, 1, 1, 2, 2, 2])[:n]),
        *(fits.Column(name, "E", array=np.full(n, value)) for name, value in some.items()),
        fits.Column("Z_SPEC", "E", array=np.array([0.2, -1, 0.3, -1, -1, 0.4])[:n]),
    ]


def test_the_members_of_redmapper_and_the_clusters_beside(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    path = tmp_path / "redmapper_members.fits"
    fits.BinTableHDU.from_columns(redmapper_columns(fits, 6, "UGRIZ")).writeto(path)
    found = load_redmapper(path)
    assert found.features.shape == (6, 17) and np.isnan(found.z).tolist() == [False, True, False, True, True, False]
    assert found.cluster.tolist() == [1, 1, 1, 2, 2, 2] and (found.features[:, 10:14] == 1).all()
    np.testing.assert_allclose(found.features[:, 14:], [[0.5, 0.4, 0.9]] * 6, rtol=1e-6)
    assert np.isnan(found.catalogue).all()
    clusters = [fits.Column("ID", "J", array=np.array([2, 7])), fits.Column("Z_LAMBDA", "D", array=np.array([0.3, 1]))]
    fits.BinTableHDU.from_columns(clusters).writeto(tmp_path / "redmapper_catalog.fits")
    np.testing.assert_array_equal(load_redmapper(path).catalogue, [np.nan] * 3 + [0.3] * 3)


def test_members_of_redmapper_with_vectors_and_their_own_estimates(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    vectors = [fits.Column(name, "5E", array=np.arange(30).reshape(6, 5)) for name in ("MODEL_MAG", "MODEL_MAGERR")]
    estimate = fits.Column("ZRED", "E", array=np.full(6, 0.5))
    columns = [*redmapper_columns(fits, 6, ""), *vectors, estimate]
    fits.BinTableHDU.from_columns(columns).writeto(tmp_path / "a.fits")
    found = load_redmapper(tmp_path / "a.fits")
    assert (found.features[:, 10:14] == -1).all() and (found.catalogue == 0.5).all()


def test_a_table_without_a_band_is_refused(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    fits.BinTableHDU.from_columns(redmapper_columns(fits, 6, "UGRI")).writeto(tmp_path / "less.fits")
    with pytest.raises(ValueError, match=r"less\.fits has no column MODEL_MAG_Z; it has ID, IMAG, MODEL_MAGERR_G"):
        load_redmapper(tmp_path / "less.fits")


def test_generated_clusters_can_be_told_apart_by_their_colours():
    made = generate(clusters=300, seed=1)
    sizes = np.bincount(made.cluster.astype(int))
    assert sizes.min() >= 20 and sizes.max() <= 300 and 0.1 < np.isfinite(made.z).mean() < 0.4
    colour = np.array([made.features[made.cluster == c, 11].mean() for c in range(300)])
    red_shift = np.array([made.catalogue[made.cluster == c][0] for c in range(300)])
    assert np.corrcoef(colour, red_shift)[0, 1] > 0.8
    np.testing.assert_array_equal(made.features, generate(clusters=300, seed=1).features)


@needs("splus")
def test_galaxies_of_s_plus():
    found, more = load_splus(), load_splus(mates=True)
    assert found.features.shape == (1078, 12) and len(np.unique(found.cluster)) == 101 and np.isfinite(found.z).all()
    scatter = np.mean(np.abs(found.z - found.catalogue) / (1 + found.z))
    assert scatter == pytest.approx(0.0099, abs=2e-4)
    assert set(more.cluster) == set(found.cluster) and np.isfinite(more.z).sum() == 1078 and len(more.z) > 1500
