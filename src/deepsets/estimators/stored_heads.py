"""Heads of set estimators in model files."""

from __future__ import annotations

from typing import Any

import torch

from .deep import Plan
from .heads import HEADS, Heads
from .linear import LinearHead
from .state import bounded, load_weights, under
from .summaries import Summaries
from .trees import TreeEnsemble


class StoredHeads:
    """Adds the heads to the state of a set estimator, and restores them."""

    encoder_: Any
    context_: Any
    n_outputs_: int
    network_facts_: dict[str, Any]
    _build: Any
    _is_mergeable: Any
    _kind: Any

    def _add_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        heads = self.heads_
        facts["heads"] = {"weights": heads.weights, "temperature": heads.temperature, "losses": self.head_losses_}
        facts["heads"]["blocks"] = heads.summaries.blocks
        facts["calibration_error"] = self.calibration_error_
        tensors["residuals"] = torch.from_numpy(self.residuals_)
        for name in ("linear", "forest", "boosting"):
            head = getattr(heads, name)
            if head is not None:
                tensors.update({f"{name}.{n}": t for n, t in head.tensors().items()})
        for j, table in heads.summaries.tables.items():
            tensors[f"table.{j}"] = table
        if heads.deep is not None:
            facts["network"] = self.network_facts_
            tensors.update({f"deep.{n}": t.clone() for n, t in heads.deep.state_dict().items()})

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        about, most = facts["heads"], sum(t.numel() for t in tensors.values()) + 64
        outputs = bounded(self.n_outputs_, "n_outputs_", most)
        summaries = Summaries(self.encoder_, self.context_)
        blocks = about["blocks"]
        if not isinstance(blocks, list) or [b for b in summaries.possible_blocks() if b in blocks] != blocks:
            raise ValueError(f"the blocks of summaries do not fit the columns: {blocks!r}.")
        summaries.blocks = blocks
        heads = self.heads_ = Heads(self._kind(), outputs, summaries)
        weights = about["weights"]
        if not isinstance(weights, dict) or not set(weights) <= set(HEADS) or not weights:
            raise ValueError(f"the weights of the heads are not valid: {weights!r}.")
        if not all(isinstance(w, float) and 0 <= w <= 1 for w in weights.values()):
            raise ValueError(f"the weights of the heads are not shares: {weights!r}.")
        heads.weights, self.head_weights_ = dict(weights), dict(weights)
        heads.temperature = float(about["temperature"])
        if not 0.01 < heads.temperature < 100:
            raise ValueError(f"the temperature {heads.temperature} is out of range.")
        self.head_losses_, self.calibration_error_ = about.get("losses", {}), facts.get("calibration_error")
        self.residuals_ = tensors["residuals"].numpy()
        if self.residuals_.ndim != 2 or self.residuals_.shape[1] != outputs:
            raise ValueError("the residuals do not fit the outputs.")
        count = len(summaries.names())
        scores = 1 if heads.kind == "classes" and outputs == 2 else outputs
        if "linear" in weights:
            heads.linear = LinearHead.from_tensors(under(tensors, "linear"), count, scores)
        if "forest" in weights:
            heads.forest = TreeEnsemble.from_tensors(under(tensors, "forest"), count, outputs)
        if "boosting" in weights:
            heads.boosting = TreeEnsemble.from_tensors(under(tensors, "boosting"), count, scores)
        for j in summaries.bag_columns() if "linear" in weights else []:
            table = summaries.tables[j] = tensors[f"table.{j}"]
            if table.dtype != torch.float64 or table.shape != (len(self.encoder_.vocabularies[j]) + 1, scores + 1):
                raise ValueError("a table of token weights does not fit the vocabulary.")
        if "deep" in weights:
            self._restore_networks(under(tensors, "deep"), facts["network"], most)
        self.mergeable_ = self._is_mergeable()

    def _restore_networks(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any], most: int) -> None:
        made = Plan(
            width=bounded(facts["width"], "width", most),
            depth=bounded(facts["depth"], "depth", len(tensors)),
            dropout=float(facts["dropout"]),
            deep_rho=bool(facts["deep_rho"]),
            batch_size=1,
            epochs=1,
            networks=bounded(facts["networks"], "networks", most),
        )
        if not 0 <= made.dropout <= 1:
            raise ValueError(f"dropout must be between 0 and 1, found {made.dropout}.")
        with torch.device("meta"):
            networks = self._build(made, 0)
        if any(name.startswith("pool.") for name in tensors):
            networks.double_pooling()
        load_weights(networks, tensors)
        self.heads_.deep = networks
