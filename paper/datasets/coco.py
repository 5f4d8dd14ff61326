"""COCO-Tag: tags from the captions of MS COCO (Deep Sets, appendix F)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .captions import stemmer, tag_matrix, vocabulary, words
from .folder import data_file
from .tagged import TagData, Tagged

SOURCE = "https://cocodataset.org (annotations_trainval2014.zip)"


def load(
    train: str | Path | None = None,
    test: str | Path | None = None,
    minimum: int = 5,
    features: Mapping[str, np.ndarray] | None = None,
) -> TagData:
    """Tags of the images of two caption files (default: captions_train2014.json and captions_val2014.json).

    The paper checks spelling and lemmatises with tools of its time; here an inflected form becomes its stem where the
    training captions have the stem, and words of fewer than `minimum` training images, mostly misspelt, are left out.
    features: a dict from file name to vector, where the images were sent through a network.
    """
    paths = [
        Path(given) if given is not None else data_file("coco", f"captions_{part}2014.json", SOURCE)
        for given, part in ((train, "train"), (test, "val"))
    ]
    captions = [read_captions(path) for path in paths]
    lemma = stemmer(caption for image in captions[0].values() for caption in image)
    found = [[words(image, lemma) for image in part.values()] for part in captions]
    names = vocabulary(found[0], minimum)
    parts = []
    for part, sets in zip(captions, found, strict=True):
        rows = None if features is None else np.stack([features[image] for image in part]).astype(np.float32)
        parts.append(Tagged(list(part), tag_matrix(sets, names), rows))
    return TagData(parts[0], None, parts[1], names)


def read_captions(path: str | Path) -> dict[str, list[str]]:
    """A COCO caption file: file name -> captions, in the order of the file's images.

    The file is JSON: `images` with `id` and `file_name`, `annotations` with `image_id` and `caption`.
    """
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    if missing := {"images", "annotations"} - set(content):
        raise ValueError(f"{path} is no COCO caption file: it has no {' and no '.join(sorted(missing))}.")
    of_image = defaultdict(list)
    for note in content["annotations"]:
        if "caption" not in note:
            raise ValueError(f"{path}: annotation {note.get('id')} has no caption; are these the instances?")
        of_image[note["image_id"]].append(note["caption"])
    return {image["file_name"]: of_image[image["id"]] for image in content["images"]}
