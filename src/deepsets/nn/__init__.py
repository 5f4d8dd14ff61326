"""Poolings, layers and models on sets: plain `torch.nn.Module`s, at home in anybody's training code."""

from ._attention import InducedSetAttention as InducedSetAttention
from ._attention import SetAttention as SetAttention
from ._attention_pool import GatedAttention as GatedAttention
from ._attention_pool import SeedAttention as SeedAttention
from ._block import Block as Block
from ._deepset import DeepSet as DeepSet
from ._equivariant import Equivariant as Equivariant
from ._mlp import mlp as mlp
from ._norm import SetDropout as SetDropout
from ._norm import SetNorm as SetNorm
from ._norm import Standardize as Standardize
from ._pooling import Concat as Concat
from ._pooling import Pooling as Pooling
from ._pooling import pooling as pooling
from ._reduce import LogSumExp as LogSumExp
from ._reduce import Max as Max
from ._reduce import Mean as Mean
from ._reduce import Min as Min
from ._reduce import SqrtSum as SqrtSum
from ._reduce import Std as Std
from ._reduce import Sum as Sum
from ._sorted import Quantile as Quantile
from ._sorted import Sorted as Sorted
from ._stack import SetLayer as SetLayer
from ._stack import Stack as Stack
from ._state import State as State
