"""Flickr8k-Tag: the lemmas of five captions as the tags of an image, built as the paper's COCO-Tag (appendix F)."""

from __future__ import annotations

import gzip
from collections import defaultdict

import numpy as np

from .captions import tag_matrix, vocabulary, words
from .folder import data_file
from .tagged import TagData, Tagged

SOURCE = "Hodosh, Young and Hockenmaier 2013 (Flickr8k text), features in an npz: names (n,), feats (n, d)"


def load(minimum: int = 2) -> TagData:
    """The official split, 6,000 / 1,000 / 1,000 images; tags are lemmas of at least `minimum` training images."""
    captions = defaultdict(list)
    with gzip.open(data_file("flickr8k", "Flickr8k.lemma.token.txt.gz", SOURCE), "rt", encoding="utf-8") as lines:
        for line in lines:
            image, _, caption = line.partition("\t")
            captions[image.partition("#")[0]].append(caption)
    with np.load(data_file("flickr8k", "flickr8k_efflite0_pca512.npz", SOURCE)) as data:
        features = data["feats"].astype(np.float32)
        row = {name: i for i, name in enumerate(data["names"].tolist())}
    lists = [
        data_file("flickr8k", f"Flickr_8k.{part}Images.txt", SOURCE).read_text().split()
        for part in ("train", "dev", "test")
    ]
    found = [[words(captions[image]) for image in images] for images in lists]
    names = vocabulary(found[0], minimum)
    train, validation, test = (
        Tagged(images, tag_matrix(sets, names), features[[row[image] for image in images]])
        for images, sets in zip(lists, found, strict=True)
    )
    return TagData(train, validation, test, names)
