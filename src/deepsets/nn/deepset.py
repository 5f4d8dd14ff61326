"""The permutation-invariant model `rho(pool(phi(x)))` (Deep Sets, theorem 2 and section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from ..sets import Sets
from .pooling import ELEMENTS, Parts, PoolSpec, State, pooling
from .reductions import _LinearPooling
from .sequential import Linear, SetLayer, reset_children

Condition = Literal["phi", "rho", "both"]


class DeepSet(nn.Module):
    r"""Permutation-invariant function of sets, $f(X) = ρ(\mathrm{pool}_{x ∈ X}\, φ(x))$.

    Elements that are in several sets (`Sets.element_ids`) go through phi once. Where phi ends in a linear map and the
    pooling is linear, that map runs after the pooling, on B rows instead of N: $Σ(Wh + b) = WΣh + n b$.

    Parameters
    ----------
    phi : nn.Module
        Any module on rows, (N, in) -> (N, latent), or a `SetLayer`, for example a
        `SetSequential` of equivariant layers.
    rho : nn.Module
        Any module on rows, (B, pooled) -> (B, out); one column more with `append_size`, and those of z.
    pool : str, Pooling or sequence of them, default="sum"
        A name, a `Pooling`, or several side by side: ``["max", "mean"]``; see :func:`pooling`.
    condition : {"phi", "rho", "both"}, optional
        Where a vector z of each set, (B, z), is appended: to the input of phi, of rho, or of both.
    append_size : bool, default=False
        Append log(1 + number of elements) to the input of rho; mean and max do not depend on it otherwise.

    Shape
    -----
    Sets with values (N, in), z (B, z) or None -> (B, out).

    Examples
    --------
    >>> from deepsets.nn import mlp
    >>> model = DeepSet(phi=mlp(3, 64, 64), rho=mlp(64, 64, 10), pool="sum")
    >>> model(Sets.from_list([torch.randn(5, 3), torch.randn(2, 3)])).shape
    torch.Size([2, 10])
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

    def reset_parameters(self) -> None:
        """Initialise all parameters of phi, rho and the pooling again."""
        reset_children(self)

    def extra_repr(self) -> str:
        """Describe the model in its `repr`."""
        return f"condition={self.condition!r}, append_size={self.append_size}"

    def forward(self, sets: Sets, z: Tensor | None = None) -> Tensor:
        """Map sets with values (N, in), and z (B, z) or None, to (B, out)."""
        if z is not None or self.condition is not None:
            self._check(sets, z)
        if self._late_map() is None:
            members = self._members(sets, z)
            pooled, counts = self.pool(members), members.counts if self.append_size else None
        else:
            parts = self._parts(sets, z, None)
            counts = parts.pop(ELEMENTS, None)
            pooled = self.pool.finish(parts)
        return self._apply_rho(pooled, counts, z)

    # --------------------------------------------------------------------------------------------------- states

    @property
    def mergeable(self) -> bool:
        """Whether the model has states: phi sees one element at a time, and the pooling can be merged."""
        return not isinstance(self.phi, SetLayer) and bool(self.pool.part_names)

    def encode(self, sets: Sets, z: Tensor | None = None, *, dtype: torch.dtype | None = None) -> State:
        """Compute the state of each set, which can be stored, merged and added to.

        ``decode(encode(sets))`` equals ``forward(sets)``.

        Parameters
        ----------
        sets : Sets
            With values (N, in).
        z : Tensor, optional
            (B, z), needed if phi is conditioned on it.
        dtype : torch.dtype, optional
            Precision of the pooling, for example torch.float64 to add up many states; phi stays in its own.

        Returns
        -------
        State
        """
        if isinstance(self.phi, SetLayer):
            raise ValueError(
                "states need a phi that sees one element at a time; this phi is a set layer, whose output for an "
                "element depends on the whole set, so states of parts would not merge to the state of the whole."
            )
        if z is not None or self.condition != "rho":  # z of rho is needed only when the state is decoded
            self._check(sets, z)
        return State(self.pool, self._parts(sets, z, dtype))

    def state(self, parts: Mapping[str, Tensor]) -> State:
        """Rebuild a state from its parts, for example from a file.

        Parameters
        ----------
        parts : mapping from str to Tensor
            The `parts` of a state of this model.
        """
        wanted = [*self.pool.part_names, *([ELEMENTS] if self.append_size else [])]
        if set(parts) != set(wanted):
            raise ValueError(f"a state of this model has the parts {', '.join(wanted)}; found {', '.join(parts)}.")
        lengths = {name: part.shape[0] if part.ndim else None for name, part in parts.items()}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            raise ValueError(f"all parts of a state need one row per set; found {lengths} rows.")
        return State(self.pool, parts)

    def decode(self, state: State, z: Tensor | None = None) -> Tensor:
        """Compute the output from states.

        Parameters
        ----------
        state : State
            Of B sets, in any precision.
        z : Tensor, optional
            (B, z), needed if rho is conditioned on it.

        Returns
        -------
        Tensor
            (B, out), in the precision of rho.
        """
        if self.condition in ("rho", "both") and z is None:
            raise ValueError("this model conditions rho on z: decode needs z.")
        if self.condition is None and z is not None:
            raise ValueError("this model takes no z (condition=None); z was given.")
        self._check_rows(z, len(state))
        if self.append_size and ELEMENTS not in state.parts:
            raise ValueError(
                f"this model uses the size of a set, so a state needs the part {ELEMENTS!r}; "
                f"found {', '.join(state.parts)}. Make states with this model's encode."
            )
        pooled = state.finish()
        parameters = (p for module in (self.rho, self) for p in module.parameters() if p.is_floating_point())
        model = next(parameters, None)
        return self._apply_rho(pooled if model is None else pooled.to(model.dtype), state.parts.get(ELEMENTS), z)

    # -------------------------------------------------------------------------------------------- implementation

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

    def _members(self, sets: Sets, z: Tensor | None, phi: nn.Module | None = None) -> Sets:
        """The members after phi, or after the part of it that is given."""
        phi = self.phi if phi is None else phi
        if z is not None and self.condition != "rho":
            sets = sets.materialize()  # with z appended, the same element differs between sets
            sets = sets.with_values(torch.cat([sets.values, sets.broadcast(z).to(sets.dtype)], dim=-1))
        return phi(sets) if isinstance(phi, SetLayer) else sets.map(phi)

    def _late_map(self) -> nn.Linear | None:
        """Last linear map of phi, if it may run after the pooling."""
        phi = self.phi
        last = next(reversed(phi._modules.values()), None) if isinstance(phi, nn.Sequential) else None
        if not isinstance(last, nn.Linear) or type(last) not in (nn.Linear, Linear):
            return None
        hooks = last._forward_hooks or last._forward_pre_hooks
        return last if isinstance(self.pool, _LinearPooling) and not hooks else None

    def _parts(self, sets: Sets, z: Tensor | None, dtype: torch.dtype | None) -> Parts:
        last = self._late_map()
        members = self._members(sets, z, None if last is None else self.phi[:-1])  # type: ignore[index]
        parts = self.pool.state(members, dtype)
        if last is not None:
            kind = parts["sum"].dtype
            parts["sum"] = parts["sum"] @ last.weight.T.to(kind)
            if last.bias is not None:
                parts["sum"] = torch.addcmul(parts["sum"], parts["count"][:, None], last.bias.to(kind))
        if self.append_size:
            parts[ELEMENTS] = (members if dtype is None else sets.to(dtype)).counts
        return parts

    def _apply_rho(self, pooled: Tensor, counts: Tensor | None, z: Tensor | None) -> Tensor:
        if counts is not None:
            pooled = torch.cat([pooled, counts.to(pooled.dtype).log1p()[:, None]], dim=-1)
        if z is not None and self.condition != "phi":
            pooled = torch.cat([pooled, z.to(pooled.dtype)], dim=-1)
        return self.rho(pooled)
