"""Galaxies in clusters: redMaPPer DR8 (Rykoff et al. 2014), S-PLUS (Werner et al. 2022), and a generator."""

import gzip
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import data_file

BANDS = ("U", "G", "R", "I", "Z")


class Galaxies(NamedTuple):
    """Features (n, D), spectroscopic red-shift (n,) or NaN, the catalogue's own estimate (n,), the cluster of each."""

    features: np.ndarray
    z: np.ndarray
    catalogue: np.ndarray
    cluster: np.ndarray


def load_redmapper(path: str | Path) -> Galaxies:
    """Read the FITS table of members (`redmapper_dr8_public_v6.3_members.fits` or a similar one).

    17 features: model magnitudes and their errors in 5 bands, 4 colours, the i magnitude, the distance from the
    centre and the probability of membership. Bands are columns of their own (`MODEL_MAG_U`, …) or one of vectors.
    z: `Z_SPEC` where there is one; the catalogue: `Z_LAMBDA` of the cluster, from the table of clusters beside
    (`…_catalog.fits`) if the members have none, and NaN if neither has. The paper's own list of 17 features is not
    published; this is our reading of it.
    """
    path = Path(path)
    table = _Table(path)
    magnitudes, errors = (table.bands(name) for name in ("MODEL_MAG", "MODEL_MAGERR"))
    colours = magnitudes[:, :-1] - magnitudes[:, 1:]
    rest = np.stack([table.column("IMAG", "I"), table.column("R"), table.column("P", "P_MEM", "PMEM")], axis=1)
    spectra, cluster = table.column("Z_SPEC", "ZSPEC"), table.column("ID", "MEM_MATCH_ID")
    beside = path.with_name(path.name.replace("members", "catalog"))
    if table.has("Z_LAMBDA", "ZRED"):
        catalogue = table.column("Z_LAMBDA", "ZRED")
    elif beside != path and beside.exists():
        clusters = _Table(beside)
        of = dict(zip(clusters.column("ID", "MEM_MATCH_ID"), clusters.column("Z_LAMBDA"), strict=True))
        catalogue = np.array([of.get(number, np.nan) for number in cluster])
    else:
        catalogue = np.full(len(cluster), np.nan)
    features = np.hstack([magnitudes, errors, colours, rest])
    return Galaxies(features, np.where(spectra > 0, spectra, np.nan), catalogue, cluster)


class _Table:
    """The first table of a FITS file, its columns as float64."""

    def __init__(self, path: Path) -> None:
        from astropy.io import fits

        with fits.open(path, memmap=False) as file:
            tables = [hdu.data for hdu in file if getattr(hdu, "columns", None) is not None]
        if not tables:
            raise ValueError(f"{path} holds no table.")
        self.path, self.data = path, tables[0]
        self.names = {name.upper() for name in self.data.names}

    def has(self, *choices: str) -> bool:
        return not self.names.isdisjoint(choices)

    def column(self, *choices: str) -> np.ndarray:
        """The first of the choices that is there."""
        for name in choices:
            if name in self.names:
                return np.asarray(self.data[name], dtype=np.float64)
        found = ", ".join(sorted(self.names))
        raise ValueError(f"{self.path} has no column {' or '.join(choices)}; it has {found}.")

    def bands(self, name: str) -> np.ndarray:
        """(n, 5)."""
        if self.has(name):
            return self.column(name)
        return np.stack([self.column(f"{name}_{band}") for band in BANDS], axis=1)


def generate(clusters: int = 26_111, seed: int = 0) -> Galaxies:
    """Generate a catalogue of redMaPPer's size and kind: 20 to 300 members a cluster, 17 features, some spectra.

    Each cluster has a red-shift in .08-.55 and a richness from a steep power law. Red members follow a red sequence:
    colours are smooth functions of the red-shift, tilted with magnitude, with an intrinsic spread of about .05; a
    quarter are bluer and spread more; photometric errors grow with magnitude, most in u and z. Spectra exist for the
    bright, about a quarter. The catalogue's estimate is the cluster's red-shift with an error of .008 (1 + z).
    """
    rng = np.random.default_rng(seed)
    red = 0.08 + 0.47 * rng.beta(2.0, 1.4, clusters)
    size = np.clip(20 * (1 - rng.random(clusters)) ** (-1 / 2.2), 20, 300).astype(int)
    cluster = np.repeat(np.arange(clusters), size)
    z = red[cluster] + rng.normal(0, 0.0025, len(cluster)) * (1 + red[cluster])  # the motion inside a cluster
    faint = rng.exponential(0.9, len(z)).clip(0, 3.5)  # magnitudes below the brightest of its cluster
    i_band = 15.6 + 5 * np.log10(z / 0.1) + 1.2 * z + faint
    blue = rng.random(len(z)) < 0.25
    colours = _sequence(z) - np.array([0.06, 0.04, 0.02, 0.015]) * (faint - 1)[:, None]
    colours -= blue[:, None] * rng.gamma(2.0, [0.35, 0.25, 0.1, 0.06], (len(z), 4))
    colours += rng.normal(0, [0.10, 0.05, 0.03, 0.03], (len(z), 4))
    true = np.stack([i_band] * 5, 1)
    true[:, 2] += colours[:, 2]
    true[:, 1] = true[:, 2] + colours[:, 1]
    true[:, 0] = true[:, 1] + colours[:, 0]
    true[:, 4] -= colours[:, 3]
    error = 0.01 + 0.04 * 10 ** (0.4 * (true - np.array([21.0, 21.5, 21.3, 20.8, 19.3])))
    error = error.clip(0, 1.5)
    magnitudes = true + rng.normal(0, 1, true.shape) * error
    centre = rng.gamma(2.0, 0.25, len(z))
    chance = 1 / (1 + np.exp(-(2.5 - 1.2 * centre - 1.5 * blue + rng.normal(0, 0.4, len(z)))))
    features = np.hstack([magnitudes, error, magnitudes[:, :-1] - magnitudes[:, 1:], magnitudes[:, 3:4]])
    features = np.hstack([features, centre[:, None], chance[:, None]])
    known = rng.random(len(z)) < 0.6 * (faint < 0.45)
    catalogue = red + rng.normal(0, 0.008, clusters) * (1 + red)
    return Galaxies(features, np.where(known, z, np.nan), catalogue[cluster], cluster)


def _sequence(z: np.ndarray) -> np.ndarray:
    """(n, 4) u-g, g-r, r-i, i-z of an old galaxy: the 4000 A break moves from g into r near z = .35."""
    break_ = 1 / (1 + np.exp(-(z - 0.36) / 0.035))
    blue = [1.75 + 0.6 * z - 0.5 * break_, 0.62 + 3.3 * z - 1.15 * break_ * (z - 0.25)]
    return np.stack([*blue, 0.34 + 0.55 * z + 0.75 * break_ * (z - 0.30) / 0.2, 0.22 + 0.45 * z], axis=1)


SOURCE = "Werner et al. 2022, S-PLUS galaxy clusters"
SPECTRA = "cluster.gals.sel.dens_zspec020_membership_probs_r200"
PHOTOMETRY = "cluster.gals.sel.dens_zpt023_membership_probs_r05mpc"


def load_splus(mates: bool = False) -> Galaxies:
    """Load the spectroscopic members; with `mates` also the photometric members of the same clusters, without a z.

    Features: the r magnitude and the 11 differences of neighbouring bands; a band that was not measured gives NaN.
    """
    spectra = _table(SPECTRA, "n.dat.gz")
    member = spectra["Flagm"].astype(float) == 0
    found = _galaxies({name: column[member] for name, column in spectra.items()}, known=True)
    if not mates:
        return found
    others = _table(PHOTOMETRY, "bn.dat.gz")
    new = ~np.isin(others["gal_index"], spectra["gal_index"]) & np.isin(others["cluster-index"], found.cluster)
    new &= others["iflag"].astype(float) == 0
    more = _galaxies({name: column[new] for name, column in others.items()}, known=False)
    return Galaxies(*(np.concatenate(pair) for pair in zip(found, more, strict=True)))


def _galaxies(column: dict[str, np.ndarray], known: bool) -> Galaxies:
    bands = np.stack([column[name].astype(float) for name in list(column)[2:14]], axis=1)
    bands[bands >= 90] = np.nan
    z = column["zspec"].astype(float) if known else np.full(len(bands), np.nan)
    features = np.hstack([bands[:, 7:8], bands[:, :-1] - bands[:, 1:]])
    return Galaxies(features, z, column["zphot"].astype(float), column["cluster-index"])


def _table(name: str, ending: str) -> dict[str, np.ndarray]:
    """Columns by name, as text; the first of two columns with one name counts."""
    header = Path(data_file("splus", f"{name}.header", SOURCE)).read_text()
    names = re.findall(r"^#\s*\d+\)\s*(\S+)", header, re.M)
    with gzip.open(data_file("splus", name + ending, SOURCE), "rt") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    table: dict[str, np.ndarray] = {}
    for i, title in enumerate(names):
        table.setdefault(title, np.array([row[i] for row in rows]))
    return table
