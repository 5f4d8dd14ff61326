"""Poolings, layers and models on sets: plain `torch.nn.Module`s, for any training code.

Those with parameters take `device` and `dtype` as keyword arguments, as the modules of torch do.
"""

from .attention import InducedSetAttention, SetAttention
from .attention_pooling import GatedAttentionPooling, SeedAttentionPooling
from .deepset import DeepSet
from .equivariant import Equivariant, EquivariantBlock
from .kernels import segment_max, segment_min, segment_sum
from .leave_one_out import leave_one_out
from .norm import SetDropout, SetNorm, Standardize
from .pooling import ConcatPooling, Pooling, State, pooling
from .reductions import (
    LogSumExpPooling,
    MaxPooling,
    MeanPooling,
    MinPooling,
    SqrtSumPooling,
    StdPooling,
    SumPooling,
)
from .sequential import PaddedInput, SetLayer, SetSequential, mlp
from .sorted_pooling import QuantilePooling, SortPooling

__all__ = [
    "ConcatPooling",
    "DeepSet",
    "Equivariant",
    "EquivariantBlock",
    "GatedAttentionPooling",
    "InducedSetAttention",
    "LogSumExpPooling",
    "MaxPooling",
    "MeanPooling",
    "MinPooling",
    "PaddedInput",
    "Pooling",
    "QuantilePooling",
    "SeedAttentionPooling",
    "SetAttention",
    "SetDropout",
    "SetLayer",
    "SetNorm",
    "SetSequential",
    "SortPooling",
    "SqrtSumPooling",
    "Standardize",
    "State",
    "StdPooling",
    "SumPooling",
    "leave_one_out",
    "mlp",
    "pooling",
    "segment_max",
    "segment_min",
    "segment_sum",
]
