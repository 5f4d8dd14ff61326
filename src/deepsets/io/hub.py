"""Model folders on the Hugging Face Hub: a thin layer over :func:`save`, :func:`load` and `huggingface_hub`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .model_folder import CARD, CONFIG, WEIGHTS, load, save

_METADATA = "---\nlibrary_name: deepsets\ntags: [deepsets, sets]\n---\n\n"


def push_to_hub(
    model: Any, repo_id: str, *, private: bool | None = None, token: str | None = None, message: str | None = None
) -> str:
    """Save a fitted model and upload the folder to the Hugging Face Hub.

    Parameters
    ----------
    model : estimator or Expander
        A fitted model, as for :func:`save`.
    repo_id : str
        ``user/name``. The repository is created if it does not exist.
    private : bool, optional
        Whether a new repository is private (default: that of the account).
    token : str, optional
        Access token (default: that of ``hf auth login`` or ``HF_TOKEN``).
    message : str, optional
        Message of the commit.

    Returns
    -------
    str
        Address of the commit.
    """
    api = _hub().HfApi(token=token, library_name="deepsets")
    name = repo_id.rsplit("/", 1)[-1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = save(model, Path(temporary) / name)
        card = folder / CARD
        text = card.read_text(encoding="utf-8")
        text = text.replace(f'deepsets.load("{name}")', f'deepsets.io.from_pretrained("{repo_id}")')
        card.write_text(_METADATA + text, encoding="utf-8")
        api.create_repo(repo_id, private=private, exist_ok=True)
        done = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message or "Upload a model")
    return str(done.commit_url)


def from_pretrained(
    repo_id: str | Path, *, revision: str | None = None, token: str | None = None, cache_dir: str | Path | None = None
) -> Any:
    """Download a model folder from the Hugging Face Hub and load it.

    Only the three files of a model folder are downloaded. They are data, checked as by :func:`load`.

    Parameters
    ----------
    repo_id : str or Path
        ``user/name``, or a local folder.
    revision : str, optional
        Branch, tag or commit. Give a commit to get the same model tomorrow.
    token : str, optional
        Access token (default: that of ``hf auth login`` or ``HF_TOKEN``).
    cache_dir : str or Path, optional
        Where downloads are kept (default: the cache of `huggingface_hub`).

    Returns
    -------
    estimator or Expander
        The fitted model.
    """
    if Path(repo_id).is_dir():
        return load(repo_id)
    files = [CONFIG, WEIGHTS, CARD]
    download = _hub().snapshot_download
    return load(download(str(repo_id), revision=revision, token=token, cache_dir=cache_dir, allow_patterns=files))


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError("the Hub needs huggingface_hub: pip install 'deepsets[hub]'.") from None
    return huggingface_hub
