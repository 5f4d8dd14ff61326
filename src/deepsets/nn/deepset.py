"""The invariant model `rho(pool(phi(x)))` (Deep Sets, theorem 2 and section 3)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..sets import Sets
from .pooling import PoolSpec, pooling
from .reductions import _LinearPooling
from .sequential import SetLayer
from .state import ELEMENTS, Parts, State

Condition = Literal["phi", "rho", "both"]


class DeepSet(nn.Module):
    r"""A function of sets:  $f(X) = ρ(\mathrm{pool}_{x ∈ X}\, φ(x))$, with values (N, in) -> (B, out).

    >>> from deepsets.nn import mlp
    >>> model = DeepSet(phi=mlp(3, 64, 64), rho=mlp(64, 64, 10), pool="sum")
    >>> model(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).shape
    torch.Size([2, 10])

    phi:  any module on rows, (N, in) -> (N, latent), or a `SetLayer` (a `Stack` of equivariant layers).
    rho:  any module on rows, (B, latent [+ 1] [+ z]) -> (B, out).
    pool: a name, a `Pooling`, or several side by side: ``["max", "mean"]``.
    condition: where a vector z of each set, (B, z), goes: appended to the input of ``phi`` ($φ(x|z)$), of ``rho``,
        or of ``both``.
    append_size: appends log(1 + number of elements) to the input of rho: mean and max do not see it otherwise.

    Elements that stand in several sets (`Sets.element_ids`) go through phi once. Where phi ends in a linear map and the
    pooling is linear, that map runs after the pooling, on B rows instead of N: $Σ(Wh + b) = WΣh + n b$.
    """

    def __init__(
        self,
        phi: nn.Module,
        rho: nn.Module,
        pool: PoolSpec = "sum",
        *,
        condition: Condition | None = None,
        append_size: bool = False,
    ) -> None:
        super().__init__()
        if condition not in (None, "phi", "rho", "both"):
            raise ValueError(f"condition must be 'phi', 'rho', 'both' or None, found {condition!r}.")
        self.phi, self.rho, self.pool = phi, rho, pooling(pool)
        self.condition, self.append_size = condition, append_size

    def forward(self, sets: Sets, z: Tensor | None = None) -> Tensor:
        """Sets with values (N, in), z (B, z) or None -> (B, out)."""
        self._check(sets, z)
        if self._late_map() is not None:
            state = State(self.pool, self._parts(sets, z))
            pooled, counts = state.finish(), state.parts.get(ELEMENTS)
        else:
            members = self._members(sets, z)
            pooled, counts = self.pool(members), members.counts if self.append_size else None
        return self._answer(pooled, counts, z)

    def encode(self, sets: Sets, z: Tensor | None = None) -> State:
        """The state of each set, which can be stored, merged and added to: `decode(encode(sets)) = forward(sets)`."""
        if isinstance(self.phi, SetLayer):
            raise ValueError(
                "states need a phi that sees one element at a time; this phi is a set layer, whose view of an element "
                "changes with its set, so states of parts would not merge to the state of the whole."
            )
        if z is not None or self.condition != "rho":  # what goes into rho only is asked for when the state is decoded
            self._check(sets, z)
        return State(self.pool, self._parts(sets, z))

    def decode(self, state: State, z: Tensor | None = None) -> Tensor:
        """The answer, (B, out), from states."""
        if self.condition in ("rho", "both") and z is None:
            raise ValueError("this model conditions rho on z: decode needs z.")
        if self.condition is None and z is not None:
            raise ValueError("this model takes no z (condition=None); z was given.")
        self._check_rows(z, len(state))
        if self.append_size and ELEMENTS not in state.parts:
            raise ValueError(
                f"this model looks at the size of a set, so a state needs the part {ELEMENTS!r}; "
                f"found {', '.join(state.parts)}. Make states with this model's encode."
            )
        return self._answer(state.finish(), state.parts.get(ELEMENTS), z)

    # ---------------------------------------------------------------------------------------------- the parts

    def _check(self, sets: Sets, z: Tensor | None) -> None:
        if (z is None) != (self.condition is None):
            wanted = "no z" if self.condition is None else f"z, which goes into {self.condition}"
            raise ValueError(
                f"this model takes {wanted} (condition={self.condition!r}); z was {'not ' * (z is None)}given."
            )
        self._check_rows(z, sets.shape[0])

    @staticmethod
    def _check_rows(z: Tensor | None, count: int) -> None:
        if z is not None and (z.ndim != 2 or z.shape[0] != count):
            raise ValueError(
                f"z must have one row for each of the {count} sets, shape ({count}, z); found shape {tuple(z.shape)}."
            )

    def _input(self, sets: Sets, z: Tensor | None) -> Sets:
        if z is None or self.condition == "rho":
            return sets
        sets = sets.materialize()  # the same element differs between sets once it is seen together with z
        return sets.with_values(torch.cat([sets.values, sets.broadcast(z).to(sets.dtype)], dim=-1))

    def _members(self, sets: Sets, z: Tensor | None) -> Sets:
        sets = self._input(sets, z)
        return self.phi(sets) if isinstance(self.phi, SetLayer) else sets.map(self.phi)

    def _late_map(self) -> nn.Linear | None:
        """The last linear map of phi, if it may run after the pooling."""
        if isinstance(self.pool, _LinearPooling) and isinstance(self.phi, nn.Sequential) and len(self.phi):
            last = self.phi[-1]
            if type(last) is nn.Linear and not last._forward_hooks and not last._forward_pre_hooks:
                return last
        return None

    def _parts(self, sets: Sets, z: Tensor | None) -> Parts:
        last = self._late_map()
        if last is None:
            parts = self.pool.state(self._members(sets, z))
        else:
            assert isinstance(self.phi, nn.Sequential)
            sets = self._input(sets, z)
            parts = self.pool.state(sets.map(self.phi[:-1]))
            parts["sum"] = parts["sum"] @ last.weight.T.to(parts["sum"].dtype)
            if last.bias is not None:
                parts["sum"] = torch.addcmul(parts["sum"], parts["count"][:, None], last.bias)
        if self.append_size:
            parts[ELEMENTS] = sets.counts
        return parts

    def _answer(self, pooled: Tensor, counts: Tensor | None, z: Tensor | None) -> Tensor:
        extra = []
        if counts is not None:
            extra.append(counts.to(pooled.dtype).log1p()[:, None])
        if z is not None and self.condition in ("rho", "both"):
            extra.append(z.to(pooled.dtype))
        return self.rho(torch.cat([pooled, *extra], dim=-1) if extra else pooled)
