"""Networks that score tags for an image and the tags it has (section 4.2.2, appendix F), and their training."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from deepsets.expand.network import EncodedQueries, ScoreNetwork
from deepsets.nn import DeepSet, mlp
from deepsets.sets import Sets
from deepsets.train import Batch, train


class TagNetwork(nn.Module):
    r"""As published:  $s(x|X, z) = ρ(φ(x) + \sum_{x' ∈ X} φ(x'),\ z)$,  φ an embedding and two layers, ρ three layers.

    >>> network = TagNetwork(tags=9, features=4, width=6)
    >>> network(Sets(torch.tensor([1, 3, 8]), torch.tensor([0, 2, 2, 3])), torch.randn(3, 4)).shape  # one X is empty
    torch.Size([3, 9])
    """

    def __init__(self, tags: int, features: int, vectors: Tensor | None = None, width: int = 150) -> None:
        super().__init__()
        self.score = ScoreNetwork(
            tags, width // 3 if vectors is None else vectors.shape[1], 0, features,
            phi=(width, width), rho=(width, width // 2), pool="sum", concat=False, dropout=0.0,
        )  # fmt: skip
        # Variance is kept from layer to layer, and what a tag adds to the first layer of ρ is the larger part: each tag
        # opens units of its own, through which the image is seen. Started small, ρ learns slowly to relate the two.
        for layer in self.score.modules():
            if isinstance(layer, nn.Linear) and layer is not self.score.rest[-1]:
                nn.init.kaiming_normal_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        if self.score.context is not None:
            next(self.score.context.parameters()).data.mul_(0.4)
        embedding = _embedding(self.score).weight.data
        embedding.copy_(vectors if vectors is not None else embedding).mul_(3)

    def pairs(
        self, sets: Sets, z: Tensor | None, owner: Tensor, wanted: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of the tags `wanted` (P,) for the sets `owner` (P,), and of `other` for every set."""
        phi = self.score.encode_elements(torch.arange(_embedding(self.score).num_embeddings), None)
        keys = self.score.keys(phi)
        asked = self.score.encode_queries(Sets(phi[sets.values], sets.offsets), z)
        right = self.score.score(EncodedQueries(None, asked.shift[owner]), keys[wanted])
        return right, self.score.score(EncodedQueries(None, asked.shift[:, None]), keys[other][None])

    def forward(self, sets: Sets, z: Tensor | None) -> Tensor:
        """Map X (B sets of ids) and z, (B, Z) or None, to (B, tags)."""
        none = torch.zeros(0, dtype=torch.long)
        return self.pairs(sets, z, none, none, torch.arange(_embedding(self.score).num_embeddings))[1]


class TagHeads(nn.Module):
    r"""All tags at once:  $s(·|X, z) = ρ(\sum_{x' ∈ X} φ(x'),\ z)$,  with one output of ρ for each tag.

    >>> network = TagHeads(tags=9, features=4, width=6)
    >>> network(Sets(torch.tensor([1, 3, 8]), torch.tensor([0, 2, 2, 3])), torch.randn(3, 4)).shape
    torch.Size([3, 9])
    """

    def __init__(self, tags: int, features: int, vectors: Tensor | None = None, width: int = 512) -> None:
        super().__init__()
        embedding = nn.Embedding(tags, 100 if vectors is None else vectors.shape[1])
        if vectors is not None:
            embedding.weight.data.copy_(vectors)
        phi = nn.Sequential(embedding, *mlp(embedding.embedding_dim, 300, 300))
        rho = mlp(300 + features, width, tags, dropout=0.5)
        self.model = DeepSet(phi, rho, pool="sum", condition="rho" if features else None)

    def forward(self, sets: Sets, z: Tensor | None) -> Tensor:
        """Map X (B sets of ids) and z, (B, Z) or None, to (B, tags)."""
        scores: Tensor = self.model(sets, z)
        return scores

    def pairs(
        self, sets: Sets, z: Tensor | None, owner: Tensor, wanted: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Do as `TagNetwork.pairs`."""
        scores = self(sets, z)
        return scores[owner, wanted], scores[:, other]


class TagLoss:
    r"""Loss of tags x of an image that are not in the query X, against tags x' that the image does not have.

    With a `margin` Δ it is the paper's hinge loss, $\max(0, s(x'|X) − s(x|X) + Δ)$, averaged over x'. Without, its
    smooth form $\log(1 + \sum_{x'} \exp(s(x'|X) − s(x|X) + Δ(x, x')))$ with $Δ(x, x') = τ (\log p(x') − \log p(x))$:
    the rarer x and the more frequent x', the larger the margin, which takes the frequency p of tags out of the score.

    `frequency` (tags,) is p, `balance` τ. The share `alone` of the queries is empty: the image alone. Features of the
    image are dropped with probability `drop`. `candidates` tags x' are drawn per step, frequent ones more often; in the
    smooth form they are weighted so that they stand for all.
    """

    def __init__(
        self, frequency: Tensor, *, balance: float, alone: float, drop: float, candidates: int, margin: float | None
    ) -> None:
        self.prior, self.chance = balance * frequency.log(), frequency.sqrt() / frequency.sqrt().sum()
        self.alone, self.drop, self.candidates, self.margin = alone, drop, candidates, margin

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, float]:
        """Return the sum of the losses, and their number."""
        assert isinstance(model, TagNetwork | TagHeads)
        sets, tags = batch.sets, len(self.prior)
        share = torch.rand(len(sets)) * (torch.rand(len(sets)) >= self.alone)  # of the tags that are given
        given = torch.rand(sets.total) < share[sets.set_ids]
        sizes = torch.zeros(len(sets), dtype=torch.long).index_add_(0, sets.set_ids, given.long())
        query = Sets(sets.values[given], torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))
        z = None if batch.z is None else nn.functional.dropout(batch.z, self.drop)
        wanted, owner = sets.values[~given], sets.set_ids[~given]
        other, weight = self._others()
        right, wrong = model.pairs(query, z, owner, wanted, other)
        has = torch.zeros(len(sets), tags, dtype=torch.bool)
        has[sets.set_ids, sets.values] = True
        if self.margin is not None:
            excess = (wrong[owner] - right[:, None] + self.margin).relu().masked_fill(has[:, other][owner], 0)
            return excess.mean(1).sum(), float(len(right))
        total = (wrong + self.prior[other] + weight).masked_fill(has[:, other], -torch.inf).logsumexp(1)
        right = right + self.prior[wanted]
        return (torch.logaddexp(right, total[owner]) - right).sum(), float(len(right))

    def _others(self) -> tuple[Tensor, Tensor]:
        """Return tags x', and the logarithm of the number of tags that each of them stands for."""
        if self.candidates >= len(self.prior):
            return torch.arange(len(self.prior)), torch.zeros(())
        other = torch.multinomial(self.chance, self.candidates, replacement=True)
        return other, -(self.candidates * self.chance[other]).log()


def fit_network(
    kind: type[TagNetwork] | type[TagHeads],
    sets: list[np.ndarray],
    z: np.ndarray | None,
    tags: int,
    *,
    vectors: np.ndarray | None = None,
    balance: float = 0.0,
    alone: float = 0.5,
    drop: float = 0.3,
    candidates: int = 512,
    margin: float | None = None,
    epochs: int = 10,
    learning_rate: float = 1e-3,
    seed: int = 0,
    checkpoint_dir: Path | None = None,
    progress: bool = False,
) -> TagNetwork | TagHeads:
    """Train a network on the tag sets of images (arrays of ids); z (n, Z) are their features, or None: tags only."""
    counts = np.bincount(np.concatenate(sets), minlength=tags)
    frequency = torch.from_numpy((counts + 1) / (len(sets) + 1)).float()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        start = None if vectors is None else torch.from_numpy(vectors)
        network = kind(tags, 0 if z is None else z.shape[1], start)
    train(
        network,
        TagLoss(frequency, balance=balance, alone=alone, drop=drop, candidates=candidates, margin=margin),
        Batch(as_sets(sets), z=None if z is None else torch.from_numpy(z)),
        epochs=epochs, learning_rate=learning_rate, weight_decay=0.05, micro_elements=None,
        seed=seed, checkpoint_dir=checkpoint_dir, progress=progress,
    )  # fmt: skip
    return network.eval()


@torch.no_grad()
def network_scores(network: nn.Module, queries: list[np.ndarray], z: np.ndarray | None) -> np.ndarray:
    """Return (n, tags): the score of every tag for every query and image."""
    sets, found = as_sets(queries), []
    for rows in torch.arange(len(queries)).split(32):
        found.append(network(sets[rows], None if z is None else torch.from_numpy(z)[rows]).numpy())
    return np.concatenate(found)


def as_sets(ids: list[np.ndarray]) -> Sets:
    """Return arrays of ids, which may be empty, as one batch."""
    offsets = torch.tensor([0, *map(len, ids)]).cumsum(0)
    return Sets(torch.from_numpy(np.concatenate([*ids, np.zeros(0, np.int64)]).astype(np.int64)), offsets)


def _embedding(score: ScoreNetwork) -> nn.Embedding:
    assert score.embedding is not None
    return score.embedding
