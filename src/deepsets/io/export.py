"""Models for use without Python: `torch.export` programs and ONNX files for any number of sets of any size."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..files import atomic_path
from ..sets import Sets
from .tasks import task_of


def export_program(model: nn.Module, sets: Sets, z: Tensor | None = None) -> torch.export.ExportedProgram:
    """Export a model as one graph for any number of sets of any size.

    Parameters
    ----------
    model : torch.nn.Module
        A function of sets, and of z if it is given. It is exported as it is: call `eval()` first.
    sets : Sets
        An example: its width and dtype are kept, and whether it has `element_ids` and `weights`; its sizes are not.
    z : Tensor of shape (B, k), optional
        An example of what is known of each set.

    Returns
    -------
    torch.export.ExportedProgram
        The graph, (sets[, z]) to the output of the model.

    Examples
    --------
    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(3, 8, 8), nn.mlp(8, 8, 2)).eval()
    >>> program = export_program(model, Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)]))
    >>> program.module()(Sets.from_list([torch.randn(1, 3), [], torch.randn(7, 3)])).shape
    torch.Size([3, 2])
    """
    shapes = _shapes(sets, z)
    with _open_sizes():
        if z is None:
            return torch.export.export(model, (sets,), dynamic_shapes=([*_of_sets(shapes)],))
        return torch.export.export(model, (sets, z), dynamic_shapes=([*_of_sets(shapes)], shapes["z"]))


def export_onnx(model: nn.Module, sets: Sets, path: str | Path, z: Tensor | None = None) -> Path:
    """Write a model as an ONNX file.

    Its inputs are values (N, in) and offsets (B + 1,); its output, ``output``, is (B, out) for a model of sets and
    (N, out) for a model of members. The file holds the weights, up to 2 GB, the limit of the format; it appears when
    it is complete. Needs the extra ``deepsets[onnx]``.

    Parameters
    ----------
    model : torch.nn.Module
        A function of sets, and of z if it is given. It is exported as it is: call `eval()` first.
    sets : Sets
        An example; if it has `element_ids` or `weights`, the file has inputs of these names. Sizes stay open.
    path : str or Path
        The file.
    z : Tensor of shape (B, k), optional
        An example; adds an input of this name.

    Examples
    --------
    >>> import onnxruntime, tempfile
    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(3, 8, 8), nn.mlp(8, 8, 2)).eval()
    >>> example = Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export_onnx(model, example, f"{folder}/model.onnx")
    ...     session = onnxruntime.InferenceSession(path)
    >>> new = Sets.from_list([torch.randn(1, 3), [], torch.randn(7, 3)])
    >>> session.run(["output"], {"values": new.values.numpy(), "offsets": new.offsets.numpy()})[0].shape
    (3, 2)
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"writing ONNX needs {' and '.join(missing)}: pip install 'deepsets[onnx]'.")
    inputs = {
        "values": sets.values,
        "offsets": sets.offsets,
        "element_ids": sets.element_ids,
        "weights": sets.weights,
        "z": z,
    }
    inputs = {name: part for name, part in inputs.items() if part is not None}
    shapes = {name: shape for name, shape in _shapes(sets, z).items() if name in inputs}
    with _open_sizes(), _quiet():
        program = torch.export.export(_Flat(model), (), inputs, dynamic_shapes=shapes)
        written = torch.onnx.export(program, dynamo=True, verbose=False, output_names=["output"])
    assert written is not None
    path = Path(path)
    with atomic_path(path) as temporary:
        written.save(str(temporary))
    return path


def estimator_onnx(estimator: Any, path: str | Path) -> Path:
    """Write a fitted estimator as an ONNX file, from features in their own units to the final prediction.

    The file computes `predict_proba` (classifiers, `OddOneOut`) or `predict` (regressors). Inputs: values
    (N, features), with NaN allowed if the estimator imputes, or ids (N,) of the vocabulary; offsets (B + 1,); z (B, k)
    if it was fitted with z. Output: (B, out) for estimators of sets, (N, out) for those of members.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator.
    path : str or Path
        The file.
    """
    name = type(estimator).__name__
    if hasattr(estimator, "expand") or not hasattr(estimator, "network_"):
        raise ValueError(f"a {name} cannot be exported to ONNX: wanted an estimator whose predictions are one network.")
    sizes = [3, 2, 4]  # an example; all sizes stay open
    vocabulary = getattr(estimator, "vocabulary_", None)
    width = estimator.n_features_in_
    values = torch.zeros(sum(sizes), dtype=torch.long) if vocabulary else torch.zeros(sum(sizes), width)
    sets = Sets(values, torch.tensor([0, *sizes]).cumsum(0))
    z = torch.zeros(len(sizes), estimator.n_context_) if estimator.n_context_ else None
    return export_onnx(_Prediction(estimator).eval(), sets, path, z)


class _Prediction(nn.Module):
    """The networks of an estimator and what makes one prediction of their outputs."""

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.network = estimator.network_
        self.task = task_of(estimator)

    def forward(self, sets: Sets, z: Tensor | None = None) -> Tensor:
        outputs = self.network(sets, z)  # (networks, B or N, out)
        if self.task.classes:
            return outputs.softmax(-1).mean(0)
        if self.task.name == "odd-one-out":
            from ..estimators.odd_one_out import log_softmax

            return torch.stack([log_softmax(each[:, 0], sets) for each in outputs]).exp().mean(0)[:, None]
        return self.network.unscale(outputs.mean(0))


class _Flat(nn.Module):
    """A model as a function of the parts of a batch, (N, in), (B + 1,), … -> (B, out) or (N, out)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        values: Tensor,
        offsets: Tensor,
        element_ids: Tensor | None = None,
        weights: Tensor | None = None,
        z: Tensor | None = None,
    ) -> Tensor:
        sets = Sets.unchecked(values, offsets, element_ids, weights)
        output = self.model(sets) if z is None else self.model(sets, z)
        return output.materialize().values if isinstance(output, Sets) else output


def _shapes(sets: Sets, z: Tensor | None) -> dict[str, Any]:
    """Which sizes stay open, and which of them are equal."""
    count, elements = torch.export.Dim("sets"), torch.export.Dim("elements")
    return {
        "values": {0: elements if sets.element_ids is None else torch.export.Dim("distinct")},
        "offsets": {0: count + 1},
        "element_ids": None if sets.element_ids is None else {0: elements},
        "weights": None if sets.weights is None else {0: elements},
        "z": None if z is None else {0: count},
    }


def _of_sets(shapes: dict[str, Any]) -> Iterator[Any]:
    return (shapes[name] for name in ("values", "offsets", "element_ids", "weights"))


@contextmanager
def _open_sizes() -> Iterator[None]:
    """Allow a size of 0 or 1 later that was not in the example; torch treats these as special cases otherwise."""
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]  # created at import
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages of torch and onnxscript about themselves."""
    # "torchvision is not installed", "Attribute type is ambiguous"
    loggers = [logging.getLogger(name) for name in ("torch.onnx._internal.exporter._registration", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # torch 2.13 copies its own pytree specs through a class it has deprecated.
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)", category=FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
