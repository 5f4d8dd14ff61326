"""A set larger than memory: pooled piece by piece.

The state of a pooling is a few numbers per set, and states of two parts of a set add up to the state of the whole. So a
set of any size can be read in pieces, on one machine or on many, and the prediction is that of the whole set.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from deepsets import Sets, nn


def pieces(members: int, size: int, seed: int):
    """A stream of members that never exists as one array."""
    rng = np.random.default_rng(seed)
    for start in range(0, members, size):
        yield torch.from_numpy(rng.normal(size=(min(size, members - start), 3)).astype(np.float32))


def main(quick: bool = False) -> plt.Figure:
    torch.manual_seed(0)
    members, size = (20_000, 2_000) if quick else (2_000_000, 20_000)
    model = nn.DeepSet(nn.mlp(3, 64, 32), nn.mlp(65, 32, 1), pool=["mean", "std"], append_size=True).eval()
    state, seen, predictions = None, [], []
    with torch.no_grad():
        for piece in pieces(members, size, seed=0):
            part = model.encode(Sets.from_list([piece]), dtype=torch.float64)
            state = part if state is None else state + part
            seen.append(seen[-1] + len(piece) if seen else len(piece))
            predictions.append(float(model.decode(state)))
        whole = float(model(Sets.from_list([torch.cat(list(pieces(members, size, seed=0)))])))
    print(f"{members:,} members in pieces of {size:,}: {predictions[-1]:.6f}, at once: {whole:.6f}")
    figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    ax.semilogx(seen, predictions, label="state after so many members")
    ax.axhline(whole, color="black", linewidth=0.8, linestyle="--", label="all members at once")
    ax.set(xlabel="members read", ylabel="prediction")
    ax.legend()
    return figure


if __name__ == "__main__":
    main().savefig("larger_than_memory.png", dpi=120)
