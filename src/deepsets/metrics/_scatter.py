"""How far red-shifts are off."""

from __future__ import annotations

import numpy as np


def scatter(z: np.ndarray, found: np.ndarray) -> float:
    r"""$\mathrm{mean}\; |z - \hat z| / (1 + z)$, as cosmology has it.

    >>> scatter(np.array([0.0, 1.0]), np.array([0.1, 1.0]))
    0.05
    """
    return float(np.mean(np.abs(z - found) / (1 + z)))
