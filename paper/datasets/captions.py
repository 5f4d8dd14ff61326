"""Tags from captions, as COCO-Tag is built (Deep Sets, appendix F): lemmas without stop words and numbers."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

NUMBERS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million first second "
    "third once twice".split()
)


def words(captions: Iterable[str], lemma: Callable[[str], str] = str) -> set[str]:
    """Return the tags that occur in the captions of one image.

    >>> sorted(words(["Two dog run on the 2nd grassy hill .", "dog outside"]))
    ['dog', 'grassy', 'hill', 'outside', 'run']
    """
    found = (lemma(word) for caption in captions for word in re.findall(r"[^\W_](?:[\w-]*[^\W_])?", caption.lower()))
    excluded = ENGLISH_STOP_WORDS | NUMBERS
    return {w for w in found if len(w) > 1 and w.isascii() and w not in excluded and not re.search(r"\d", w)}


def vocabulary(images: Iterable[set[str]], minimum: int) -> list[str]:
    """Return the words of at least `minimum` images, most frequent first; rarer words are mostly misspellings.

    >>> vocabulary([{"dog", "run"}, {"dog", "hill"}, {"dog", "run"}], minimum=2)
    ['dog', 'run']
    """
    counts = Counter(word for image in images for word in image)
    return sorted((w for w, n in counts.items() if n >= minimum), key=lambda w: (-counts[w], w))


_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ied", "y"), ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"))


def stemmer(captions: Iterable[str]) -> Callable[[str], str]:
    """Return a simple lemmatiser: an inflected form becomes its stem if the stem occurs in these captions.

    >>> lemma = stemmer(["a dog runs", "two dogs run and jump", "jumping in a dress"])
    >>> [lemma(word) for word in ["dogs", "runs", "jumping", "dress"]]
    ['dog', 'run', 'jump', 'dress']
    """
    known: Mapping[str, int] = Counter(word for caption in captions for word in re.findall(r"[a-z]+", caption.lower()))

    def lemma(word: str) -> str:
        for ending, instead in _ENDINGS:
            stem = word[: -len(ending)] + instead
            if word.endswith(ending) and len(stem) > 2 and stem in known:
                return stem
            single = stem[:-1] if len(stem) > 3 and stem[-1] == stem[-2] else ""  # running, run
            if ending in ("ing", "ed") and word.endswith(ending) and single in known:
                return single
        return word

    return lemma


def read_coco_captions(path: str | Path) -> dict[str, list[str]]:
    """Read a COCO caption file: file name -> captions, in the order of the file's images.

    The file is JSON: `images` with `id` and `file_name`, `annotations` with `image_id` and `caption`.
    """
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    if missing := {"images", "annotations"} - set(content):
        raise ValueError(f"{path} is not a COCO caption file: it has no {' and no '.join(sorted(missing))}.")
    of_image = defaultdict(list)
    for note in content["annotations"]:
        if "caption" not in note:
            raise ValueError(
                f"{path}: annotation {note.get('id')} has no caption; is this the file of instances? "
                "Use captions_*.json."
            )
        of_image[note["image_id"]].append(note["caption"])
    return {image["file_name"]: of_image[image["id"]] for image in content["images"]}
