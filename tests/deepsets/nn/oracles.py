"""Slow references for the tests of layers: formulas written out, one set and one member at a time."""

import math

import torch

from deepsets import Sets, nn

WIDTH = 4  # features of a member


def oracle(name: str, module: nn.Pooling | None, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Pool one set, (n, D), with weights (n,), as the formula is written. The module gives only its parameters."""
    x, w = x[w > 0], w[w > 0]
    n = len(x)
    if name == "concat":
        return torch.cat([oracle(s, p, x, w) for s, p in zip(["max", "mean", "gated"], module.poolings, strict=True)])
    if name == "seeds":
        return seeds(module, x, w)
    if n == 0:
        return x.new_zeros(x.shape[1] * (len(module.q) if name == "quantile" else 1))
    total = sum(w[i] * x[i] for i in range(n))
    mean = total / w.sum()
    if name == "sum":
        return total
    if name == "mean":
        return mean
    if name == "sqrt":
        return total / w.sum().sqrt()
    if name == "std":
        return (sum(w[i] * (x[i] - mean) ** 2 for i in range(n)) / w.sum()).sqrt()
    if name == "max":
        return x.amax(0)
    if name == "min":
        return x.amin(0)
    if name == "logsumexp":
        return sum(w[i] * x[i].exp() for i in range(n)).log()
    if name == "gated":
        score = (torch.tanh(module.content(x)) * torch.sigmoid(module.gate(x))) @ module.score.weight[0]
        return torch.softmax(score + w.log(), 0) @ x
    if name == "quantile":
        return torch.quantile(x, torch.tensor(module.q, dtype=x.dtype), dim=0).flatten()
    assert name == "sorted"
    ordered, knots = x.sort(0).values, module.weight
    output = torch.zeros_like(x[0])
    for k in range(n):
        place = k / max(n - 1, 1) * (len(knots) - 1)
        low = min(math.floor(place), len(knots) - 2)
        output = output + ordered[k] * (knots[low] + (place - low) * (knots[low + 1] - knots[low])) / n
    return output


def seeds(module: nn.SeedAttentionPooling, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    key, value = module.key_value(x).split(WIDTH, dim=-1)
    each = WIDTH // module.num_heads
    mixed = torch.zeros(module.num_seeds, WIDTH, dtype=x.dtype)
    for s in range(module.num_seeds):
        for h in range(module.num_heads):
            channels = slice(h * each, (h + 1) * each)
            if len(x):
                score = key[:, channels] @ module.query[s, channels] / each**0.5
                mixed[s, channels] = torch.softmax(score + w.log(), 0) @ value[:, channels]
    hidden = module.query + module.out(mixed)
    return (hidden + module.feedforward(module.norm(hidden))).flatten()


def randomized(layer: torch.nn.Module, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    """The layer in eval mode with random weights, as after training: nothing is 0 or 1 by initialisation."""
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.eval().to(dtype)


def unweighted(sets: Sets) -> Sets:
    return Sets(sets.values, sets.offsets, sets.element_ids)
