"""A distribution over sums as rho(Σ phi): phi is the log-characteristic function of a digit read from an image."""

import math

import torch
from torch import Tensor, nn

from deepsets.nn import DeepSet


class LogCharacteristic(nn.Module):
    r"""Of a distribution over digits:  $\log Σ_d p_d\, e^{2πi\, dk/K}$  for k = 0 … K/2, with K = most + 1.

    >>> LogCharacteristic(most=90)(torch.full((7, 10), 0.1)).shape
    torch.Size([7, 92])

    (N, 10) probabilities -> (N, 2 (K//2 + 1)): real parts, then imaginary parts, in float64. The characteristic
    function of a sum of independent digits is the product of theirs, so its logarithm is the sum.
    """

    turns: Tensor

    def __init__(self, most: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(10.0), torch.arange((most + 1) // 2 + 1)).double() * (
            2 * math.pi / (most + 1)
        )
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, probabilities: Tensor) -> Tensor:
        """(N, 10) -> (N, 2 (K//2 + 1))."""
        logs = (probabilities.to(self.turns.dtype) @ self.turns).log()
        return torch.cat([logs.real, logs.imag], dim=1)


class SumDistribution(nn.Module):
    """The inverse: from sums of log-characteristic functions, (B, 2 (K//2 + 1)), to probabilities of sums, (B, K).

    >>> model = sum_model(nn.Identity(), most=18)
    >>> from deepsets import Sets
    >>> seven, four_or_nine = torch.eye(10)[7], (torch.eye(10)[4] + torch.eye(10)[9]) / 2
    >>> model(Sets.from_list([torch.stack([seven, four_or_nine])]))[0].round(decimals=6).nonzero().flatten().tolist()
    [11, 16]

    An inverse Fourier transform. A sum greater than `most` would come round again from 0.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def forward(self, logs: Tensor) -> Tensor:
        """(B, 2 (K//2 + 1)) -> (B, K)."""
        real, imaginary = logs.chunk(2, dim=1)
        # The kernel of the transform here is e^(+2πi), that of irfft's inverse e^(−2πi): hence the conjugate.
        return torch.fft.irfft(torch.polar(real.exp(), -imaginary), n=self.most + 1)


def sum_model(reader: nn.Module, most: int) -> DeepSet:
    """Whatever `reader` maps to probabilities of digits, (N, 10) -> probabilities of sums, (B, most + 1)."""
    return DeepSet(nn.Sequential(reader, LogCharacteristic(most)), SumDistribution(most), pool="sum")


class Reader(nn.Sequential):
    """A small convolutional network: images (N, H, W) of 28 x 28 or 8 x 8 -> probabilities of the ten digits, (N, 10).

    >>> Reader(28)(torch.rand(5, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(self, side: int) -> None:
        if side == 28:
            layers = [*_conv(1, 32, 5, pool=2), *_conv(32, 64, 3), *_conv(64, 64, 3, pool=2)]
            layers += [*_conv(64, 128, 3), *_conv(128, 128, 2)]
        else:
            layers = [*_conv(1, 32, 3), *_conv(32, 64, 3), *_conv(64, 128, 3)]
        width = 128 if side == 28 else 128 * (side - 6) ** 2
        super().__init__(nn.Unflatten(1, (1, side)), *layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, 10))
        self.append(nn.Softmax(dim=1))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class Readers(nn.ModuleList):
    """Some readers, whose answers are averaged, over the image shifted by up to `shift` pixels too.

    >>> Readers(8, 2, shift=1)(torch.rand(5, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(self, side: int, number: int, shift: int) -> None:
        super().__init__(Reader(side) for _ in range(number))
        shifts = range(-shift, shift + 1)
        self.moves = [(down, right) for down in shifts for right in shifts]

    def forward(self, images: Tensor) -> Tensor:
        """(N, H, W) -> (N, 10)."""
        return torch.stack([reader(images.roll(move, (1, 2))) for reader in self for move in self.moves]).mean(0)


def _conv(inputs: int, outputs: int, size: int, pool: int = 1) -> list[nn.Module]:
    """The maximum is taken before the norm and the ReLU, which then have a quarter of the work."""
    largest = [nn.MaxPool2d(pool)] if pool > 1 else []
    return [nn.Conv2d(inputs, outputs, size, bias=False), *largest, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
