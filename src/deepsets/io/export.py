"""Models without Python: `torch.export` programs and ONNX files that take sets of any number and any size."""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..sets import Sets


def export_program(model: nn.Module, sets: Sets, z: Tensor | None = None) -> torch.export.ExportedProgram:
    """A model as one graph, (Sets[, z]) -> what the model gives, for any number of sets of any size.

    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(3, 8, 8), nn.mlp(8, 8, 2)).eval()
    >>> program = export_program(model, Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)]))
    >>> program.module()(Sets.from_list([torch.randn(1, 3), [], torch.randn(7, 3)])).shape
    torch.Size([3, 2])

    `sets` (and z, (B, z)) are examples: their widths and dtypes are kept, and whether they have `element_ids` and
    `weights`; their sizes are not. The model is exported as it is: call `eval()` first.
    """
    shapes = _shapes(sets, z)
    with _open_sizes():
        if z is None:
            return torch.export.export(model, (sets,), dynamic_shapes=([*_of_sets(shapes)],))
        return torch.export.export(model, (sets, z), dynamic_shapes=([*_of_sets(shapes)], shapes["z"]))


def export_onnx(model: nn.Module, sets: Sets, path: str | Path, z: Tensor | None = None) -> Path:
    """Writes a model as an ONNX file; inputs values (N, in) and offsets (B + 1,), output answer.

    >>> import onnxruntime, tempfile
    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(3, 8, 8), nn.mlp(8, 8, 2)).eval()
    >>> example = Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = export_onnx(model, example, f"{folder}/model.onnx")
    ...     session = onnxruntime.InferenceSession(path)
    >>> new = Sets.from_list([torch.randn(1, 3), [], torch.randn(7, 3)])
    >>> session.run(["answer"], {"values": new.values.numpy(), "offsets": new.offsets.numpy()})[0].shape
    (3, 2)

    The answer is (B, out) for a model of sets, (N, out) for one of members. `sets` (and z, (B, z)) are examples: if
    they have `element_ids` or `weights` the file has these inputs too, and z likewise; all sizes stay open. The weights
    are in the file up to 2 GB, the limit of the format. The file appears when it is complete. Needs the extra
    ``deepsets[onnx]``.
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
        written = torch.onnx.export(program, dynamo=True, verbose=False, output_names=["answer"])
    assert written is not None
    path = Path(path)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        new = Path(folder) / path.name
        written.save(str(new))
        new.replace(path)
    return path


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
        answer = self.model(sets) if z is None else self.model(sets, z)
        return answer.materialize().values if isinstance(answer, Sets) else answer


def _shapes(sets: Sets, z: Tensor | None) -> dict[str, Any]:
    """Which sizes stay open, and which of them are the same."""
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
    """Lets a size be 0 or 1 later when it was not in the example: torch otherwise takes these as special cases."""
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]  # made at import
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences what torch and onnxscript say about themselves, not about the model."""
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
