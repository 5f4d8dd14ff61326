"""One readable training loop for sets: exact to resume, balanced by elements, at home under torchrun."""

from .batches import Batch as Batch
from .batches import balanced as balanced
from .checkpoint import CheckpointError as CheckpointError
from .loop import evaluate as evaluate
from .loop import split_rows as split_rows
from .loop import train as train
from .memory import keep_memory as keep_memory
from .run import History as History
from .run import TrainingError as TrainingError
