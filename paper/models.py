"""Trained models as folders: written by `python -m paper run ... --models FOLDER`, read by `load_model`."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from deepsets import load, save
from deepsets.files import atomic_folder

from .experiment import get_experiment

FORMAT = "deepsets paper network 1"
CARD = """# {method}, {experiment}

Weights of one run of the reproduction of Deep Sets (Zaheer et al. 2017), made by

    {command}

at commit {commit}. Load it with

```python
import paper
model = paper.load_model("{name}")
```
"""


def save_model(model: Any, folder: Path, facts: Mapping[str, Any]) -> Path:
    """Write a trained model as a folder, completely or not at all.

    Parameters
    ----------
    model : torch module, estimator or expander
        Estimators and expanders are saved by `deepsets.save`. A network is saved as its weights and `facts`.
    folder : Path
        The folder; a model in it is replaced.
    facts : mapping
        Of a network: experiment, method, part, full, seed, settings, commit, command.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(model, nn.Module):
        return save(model, folder, overwrite=True)
    weights = safetensors.torch.save({name: value.contiguous() for name, value in model.state_dict().items()})
    config = {"format": FORMAT, "sha256": hashlib.sha256(weights).hexdigest(), **facts}
    with atomic_folder(folder) as new:
        (new / "model.safetensors").write_bytes(weights)
        (new / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (new / "README.md").write_text(CARD.format(name=folder.name, **facts), encoding="utf-8")
    return folder


def load_model(folder: str | Path) -> Any:
    """Read a model that a run wrote (`--models`): the network of the experiment in evaluation mode, or an estimator.

    Parameters
    ----------
    folder : str or Path
        Folder with `config.json` and `model.safetensors`.

    Examples
    --------
    >>> model = load_model("models/clouds-full-ours-0-modelnet40-1000")  # doctest: +SKIP
    """
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("format") != FORMAT:
        return load(folder)
    weights = (folder / "model.safetensors").read_bytes()
    if hashlib.sha256(weights).hexdigest() != config["sha256"]:
        raise ValueError(f"{folder} is damaged: model.safetensors has not the checksum of config.json. Copy it again.")
    experiment, method = config["experiment"], config["method"]
    networks = get_experiment(experiment).networks
    if method not in networks:
        raise ValueError(f"{folder} holds a network of {method!r}: those of {experiment} are {', '.join(networks)}.")
    model = networks[method](config["full"], config["part"])
    model.load_state_dict(safetensors.torch.load(weights))
    return model.eval()
