"""One training loop for sets: any source of batches, exact resume, data parallel under torchrun."""

from .batches import Batch, BatchSource, balanced, split_rows
from .checkpoint import CheckpointError, checkpoint_seed
from .loop import Loss, evaluate, train
from .process import seeded
from .run import History, TrainingError

__all__ = [
    "Batch",
    "BatchSource",
    "CheckpointError",
    "History",
    "Loss",
    "TrainingError",
    "balanced",
    "checkpoint_seed",
    "evaluate",
    "seeded",
    "split_rows",
    "train",
]
