"""Galaxies of S-PLUS clusters (Werner et al. 2022): 12-band photometry, spectroscopic red-shifts of some."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np

from .folder import data_file
from .redmapper import Galaxies

SOURCE = "Werner et al. 2022, S-PLUS galaxy clusters"
SPECTRA = "cluster.gals.sel.dens_zspec020_membership_probs_r200"
PHOTOMETRY = "cluster.gals.sel.dens_zpt023_membership_probs_r05mpc"


def load(mates: bool = False) -> Galaxies:
    """The spectroscopic members; with `mates` also the photometric members of the same clusters, without a z.

    >>> load().features.shape  # doctest: +SKIP
    (1078, 12)

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
