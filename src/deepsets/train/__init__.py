"""One readable training loop for sets: exact to resume, balanced by elements, at home under torchrun."""

from ._batches import Batch as Batch
from ._batches import balanced as balanced
from ._checkpoint import CheckpointError as CheckpointError
from ._loop import evaluate as evaluate
from ._loop import split_rows as split_rows
from ._loop import train as train
from ._memory import keep_memory as keep_memory
from ._run import History as History
from ._run import TrainingError as TrainingError
