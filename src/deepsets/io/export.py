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
from .predictions import TASKS, task_of


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
    (N, features), NaN where missing; offsets (B + 1,); z (B, k) if it was fitted with z. Output: (B, out) for
    estimators of sets, (N, out) for those of members. Only networks on columns of numbers can be exported: estimators
    of members, and estimators of sets fitted with ``model="deep"``.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator.
    path : str or Path
        The file.
    """
    name, task = type(estimator).__name__, task_of(estimator)
    heads = getattr(estimator, "head_weights_", {"deep": 1.0})
    if task is TASKS["expansion"] or set(heads) != {"deep"}:
        found = "an expander" if task is TASKS["expansion"] else f"a blend of {', '.join(heads)}"
        raise ValueError(
            f"this {name} cannot be exported to ONNX: wanted an estimator that is a network, found {found}. "
            "Fit it with model='deep' (--model deep)."
        )
    encoders = [encoder for encoder in (estimator.encoder_, estimator.context_) if encoder is not None]
    if any(encoder.vocabularies for encoder in encoders):
        raise ValueError(f"this {name} cannot be exported to ONNX: it was fitted on text or tokens, not only numbers.")
    sizes = [3, 2, 4]  # an example; all sizes stay open
    values = torch.zeros(sum(sizes), estimator.encoder_.numbers)
    sets = Sets(values, torch.tensor([0, *sizes]).cumsum(0))
    z = torch.zeros(len(sizes), estimator.context_.numbers) if estimator.context_ is not None else None
    return export_onnx(_Prediction(estimator).eval(), sets, path, z)


class _Prediction(nn.Module):
    """Scaling, networks, and what makes one prediction of their outputs, as the estimators compute it."""

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.encoder, self.context, self.task = estimator.encoder_, estimator.context_, task_of(estimator)
        self.members = not hasattr(estimator, "heads_")
        self.network = estimator.network_ if self.members else estimator.heads_.deep
        self.unscale: Any = getattr(estimator, "unscale_", getattr(self.network, "unscale", None))
        self.temperature = 1.0 if self.members else estimator.heads_.temperatures.get("blend", 1.0)
        self.labels = not self.members and estimator.heads_.kind == "labels"

    def forward(self, sets: Sets, z: Tensor | None = None) -> Tensor:
        context = None
        if z is not None and self.members:
            context = _views(self.context, z)
        elif z is not None:
            context = self.context.scale.deviations(z)
            context = torch.where(context.isnan(), 0, context).clamp(-3, 3).float()
        outputs = self.network(sets.with_values(_views(self.encoder, sets.values)), context)  # (networks, B or N, out)
        outputs = outputs.double()
        if self.labels:
            chance = outputs.sigmoid().mean(0)
            return ((chance.log() - (1 - chance).log()) / self.temperature).sigmoid()
        if self.task.classes:
            return (outputs.softmax(-1).mean(0).log() / self.temperature).softmax(-1)
        if self.task.name == "odd-one-out":
            from ..estimators.members import log_softmax

            return torch.stack([log_softmax(each[:, 0], sets) for each in outputs]).exp().mean(0)[:, None]
        return self.unscale(outputs.mean(0))


def _views(encoder: Any, values: Tensor) -> Tensor:
    """What a network sees of numbers, as `ColumnEncoder.views`."""
    views = encoder.scale(values)[:, : encoder.view_width - len(encoder.gaps)]
    gaps = torch.from_numpy(encoder.gaps)
    return torch.cat([views, values[:, gaps].isnan().float()], dim=1) if len(gaps) else views


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
