"""Corel5K: 4,999 photographs with 1 to 5 of 260 keywords (Duygulu et al. 2002), features of EfficientNet-Lite0."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from .folder import data_file
from .tagged import TagData, Tagged

SOURCE = "features and keywords of Corel5K in one npz: feat_*, tags_*, id_* for train and test, and tag_names"


def load() -> TagData:
    """The usual split, 4,500 and 499 images; features (n, 1280). No validation part: take it from the training part."""
    with np.load(data_file("corel5k", "corel5k_efflite0_feats_tags.npz", SOURCE)) as data:
        train, test = (
            Tagged(
                data[f"id_{part}"].tolist(), csr_array(data[f"tags_{part}"]), data[f"feat_{part}"].astype(np.float32)
            )
            for part in ("train", "test")
        )
        return TagData(train, None, test, data["tag_names"].tolist())
