"""Networks that find the odd one out: the paper's (appendix I), its baseline, and one that knows the question."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsets.nn import DeepSet, Equivariant, SetDropout, SetLayer, SetSequential, SumPooling, mlp
from deepsets.sets import Sets


def published(side: int) -> SetSequential:
    """Images (U, C, side, side) in sets -> a score for every member: convolutions, then 256, 128 and 1 channels."""
    convolutions, width = _published_convolutions(side)
    return SetSequential(
        convolutions,
        *[Equivariant(width, 256, pool="mean"), nn.ELU(), SetDropout(0.5)],
        *[Equivariant(256, 128, pool="mean"), nn.ELU(), SetDropout(0.5)],
        Equivariant(128, 1, pool="mean"),
    )


def pooled(side: int, size: int = 16) -> DeepSet:
    """The paper's baseline: the set is pooled after the convolutions, so places cannot be distinguished; (B, size)."""
    convolutions, width = _published_convolutions(side)
    rho = mlp(width, 256, 128, size, activation=nn.ELU, dropout=0.5)
    return DeepSet(convolutions, rho, pool="mean")


def _published_convolutions(side: int) -> tuple[nn.Sequential, int]:
    """Nine convolutions of 3 x 3 without a border, ELU, batch norm, dropout; images of 48 and 64 pixels end at one."""
    widths = [(32, 32, 64), (64, 64, 128), (128, 128, 256)] if side > 8 else [(32, 64)]
    layers: list[nn.Module] = []
    last = 3 if side > 8 else 1
    for group in widths:
        for width in group:
            largest = [nn.MaxPool2d(2)] if width == group[-1] and group is not widths[-1] else []
            layers += [nn.Conv2d(last, width, 3, bias=False), *largest, nn.BatchNorm2d(width), nn.ELU(inplace=True)]
            last = width
        layers.append(nn.Dropout(0.2))
    network = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten())
    return network.to(memory_format=torch.channels_last), last  # type: ignore[call-overload]


class Traits(SetLayer):
    r"""Who lacks two traits of all others:  $s_i = \log Σ_{ab} w_{ab} v_{ia} v_{ib} − \log Σ_{ab} w_{ab} u_a u_b$.

    >>> Traits(10)(Sets.from_list([torch.randn(16, 10), torch.randn(5, 10)])).values.shape
    torch.Size([21, 1])

    (N, K) log-odds t of K traits -> (N, 1). With $u_a = ∏_j σ(t_{ja}) / π_a$ over all members and
    $v_{ia} = \frac{σ(−t_{ia})}{π'_a} ∏_{j≠i} \frac{σ(t_{ja})}{π_a}$, and $w_{ab}$ for how often a pair a ≠ b is
    asked about, the first sum is the likelihood of the set if i alone lacks both traits, the second if nobody
    does. So the softmax of s over the members is Bayes' rule, and s itself the log-odds that i is odd. Products over
    the set are sums of logarithms, the sum over pairs is a small matrix product.
    """

    def __init__(self, traits: int) -> None:
        super().__init__()
        self.pool = SumPooling()
        self.has = nn.Parameter(torch.full((traits,), 0.5))  # −log π
        self.lacks = nn.Parameter(torch.full((traits,), 0.5))  # −log π'
        self.pairs = nn.Parameter(torch.zeros(traits, traits))  # log w
        # How far the evidence of one member is trusted: members are not as independent as the products say.
        self.trust = nn.Parameter(torch.full((traits,), -1.5))
        self.bias = nn.Parameter(torch.full((1,), -2.0))  # most members are not odd

    def forward(self, sets: Sets) -> Sets:
        """Map log-odds (N, K) to scores (N, 1)."""
        trust = F.softplus(self.trust)
        has = sets.map(lambda t: trust * (F.logsigmoid(t) + self.has))
        change = sets.map(lambda t: trust * (F.logsigmoid(-t) + self.lacks - F.logsigmoid(t) - self.has)).materialize()
        all_have = self.pool(has)
        if_odd = self._over_pairs(change.broadcast(all_have) + change.values)
        return change.with_values(if_odd - change.broadcast(self._over_pairs(all_have)) + self.bias)

    def _over_pairs(self, logs: Tensor) -> Tensor:
        r"""(…, K) -> (…, 1): $\log Σ_{a≠b} w_{ab} e^{x_a + x_b}$."""
        top = logs.detach().amax(1, keepdim=True)
        parts = (logs - top).exp()
        weights = (self.pairs + self.pairs.T).fill_diagonal_(-torch.inf).exp()
        return (parts @ weights * parts).sum(1, keepdim=True).clamp_min(1e-35).log() + 2 * top


class Verdict(SetLayer):
    """Bayes' rule on traits, and three equivariant layers for what it does not know: (N, K) -> (N, 1).

    >>> Verdict(10)(Sets.from_list([torch.randn(16, 10), torch.randn(5, 10)])).values.shape
    torch.Size([21, 1])

    It computes in float32 also where a network is trained in bfloat16: what all scores of a set have in common does not
    count, so it may grow to thousands, and rounding it would leave nothing of their differences.
    """

    def __init__(self, traits: int) -> None:
        super().__init__()
        self.rule, both = Traits(traits), ("max", "mean")
        inner = [Equivariant(traits, 256, both), nn.ELU(), Equivariant(256, 128, both), nn.ELU()]
        self.rest = SetSequential(nn.BatchNorm1d(traits), *inner, Equivariant(128, 1, both))

    def forward(self, sets: Sets) -> Sets:
        """Map log-odds (N, K) to scores (N, 1)."""
        with torch.autocast(sets.values.device.type, enabled=False):
            sets = sets.map(Tensor.float)
            rule = self.rule(sets)
            return rule.with_values(rule.values + self.rest(sets).values)


def ours(side: int, traits: int = 128) -> SetSequential:
    """Residual convolutions to the log-odds of traits, and the one that lacks two of them.

    Faces are aligned, so what a trait is read from has its place: there are weights for each of 4 x 4 parts of a face.
    """
    if side == 8:
        encoder = nn.Sequential(*_conv(1, 32, pool=2), *_conv(32, 64), nn.Flatten(), nn.Linear(1024, 32))
        return SetSequential(encoder, Verdict(32))
    layers = [*_conv(3, 32, stride=2), _Residual(32), *_conv(32, 64, pool=2), _Residual(64)]
    layers += [*_conv(64, 128, pool=2), _Residual(128), *_conv(128, 256), nn.AdaptiveAvgPool2d(4)]
    layers += [nn.Flatten(), nn.Dropout(0.4), nn.Linear(256 * 4 * 4, traits)]
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return SetSequential(network, Verdict(traits))


def _conv(inputs: int, outputs: int, stride: int = 1, pool: int = 1) -> list[nn.Module]:
    """The maximum is taken before the norm and the ReLU, which then have a quarter of the work."""
    largest = [nn.MaxPool2d(pool)] if pool > 1 else []
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return [convolution, *largest, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


class _Residual(nn.Module):
    """$x + f(x)$ with two convolutions; it starts as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        last = nn.BatchNorm2d(width)
        nn.init.zeros_(last.weight)
        self.inner = nn.Sequential(*_conv(width, width), nn.Conv2d(width, width, 3, padding=1, bias=False), last)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.inner(x), inplace=True)


def without_encoder(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """What sees an image, and what sees the sets of codes that it gives."""
    if isinstance(model, DeepSet):
        return model.phi, DeepSet(nn.Identity(), model.rho, pool=model.pool)
    assert isinstance(model, SetSequential)
    return model.layers[0], SetSequential(*model.layers[1:])
