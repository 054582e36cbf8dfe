"""The digits and two small networks, each a function of one flat vector of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional

#: images kept apart for testing, of the 1797 that ship with scikit-learn
NUM_TEST = 500


@dataclass(frozen=True)
class Digits:
    """Images of 8 x 8, values 0 to 1, and their digits."""

    train_images: torch.Tensor
    train_digits: torch.Tensor
    test_images: torch.Tensor
    test_digits: torch.Tensor


@cache
def digits() -> Digits:
    """Return the digits in one fixed order, the last `NUM_TEST` of it for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(2015))
    images = torch.tensor(bunch.images, dtype=torch.float32)[order] / 16.0
    target = torch.tensor(bunch.target, dtype=torch.int64)[order]
    return Digits(images[:-NUM_TEST], target[:-NUM_TEST], images[-NUM_TEST:], target[-NUM_TEST:])


@dataclass(frozen=True)
class Net:
    """Shapes of the parameters, in the order in which they lie in the flat vector, and the function of both."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    apply: Callable[[list[torch.Tensor], torch.Tensor], torch.Tensor]

    @property
    def num_parameters(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def initial(self, seed: int) -> torch.Tensor:
        """Return parameters drawn as torch's layers draw theirs: uniform, 1 over the root of the inputs."""
        generator = torch.Generator().manual_seed(seed)
        parts, bound = [], 1.0
        for shape in self.shapes:
            if len(shape) > 1:
                bound = 1.0 / math.sqrt(math.prod(shape[1:]))
            parts.append((torch.rand(math.prod(shape), generator=generator) * 2.0 - 1.0) * bound)
        return torch.cat(parts)

    def logits(self, flat: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Return the scores of images (n, 8, 8) under parameters (num_parameters,)."""
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = [part.view(shape) for part, shape in zip(flat.split(sizes), self.shapes, strict=True)]
        return self.apply(parts, images)

    def loss(self, flat: torch.Tensor, images: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(self.logits(flat, images), target)


def _mlp(parts: list[torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    hidden = torch.relu(functional.linear(images.flatten(1), parts[0], parts[1]))
    return functional.linear(hidden, parts[2], parts[3])


def _cnn(parts: list[torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    first = torch.relu(_convolution(images.unsqueeze(-1), parts[0], parts[1]))
    second = torch.relu(_convolution(first, parts[2], parts[3]))
    return functional.linear(second.flatten(1), parts[4], parts[5])


def _convolution(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Convolve (n, side, side, channels) 2 x 2 at stride 2: a product with patches that do not overlap, quick for many weights at once."""
    n, side, _, channels = images.shape
    patches = images.view(n, side // 2, 2, side // 2, 2, channels).permute(0, 1, 3, 2, 4, 5)
    return functional.linear(patches.reshape(n, side // 2, side // 2, 4 * channels), weight, bias)


NETS = {
    "mlp": Net("mlp", ((32, 64), (32,), (10, 32), (10,)), _mlp),
    "cnn": Net("cnn", ((12, 4), (12,), (32, 48), (32,), (10, 128), (10,)), _cnn),
}
