"""Small networks for the campaign: true gradient sizes, stated compute times per iteration."""

from __future__ import annotations

from ..runner import RunLayer

MS = 1e-3


def conv(name: str, parameters: int, forward: float, backward: float) -> RunLayer:
    """A convolution of `parameters` weights; times in milliseconds."""
    return RunLayer(name, (parameters,), None, forward * MS, backward * MS)


def linear(name: str, m: int, n: int, forward: float, backward: float, bias: bool = False) -> RunLayer:
    """A linear layer with an M x N weight; times in milliseconds."""
    return RunLayer(name, (m * n, m) if bias else (m * n,), (m, n), forward * MS, backward * MS)


NETS: dict[str, tuple[RunLayer, ...]] = {
    # 3.1 MB, all linear
    "mlp3": (linear("fc1", 512, 512, 3, 6), linear("fc2", 512, 512, 3, 6), linear("fc3", 512, 512, 3, 6)),
    # 8.3 MB: small convolutions first, most bytes in the linear layers at the end
    "cnn5": (
        conv("conv1", 37_000, 12, 24), conv("conv2", 295_000, 14, 28), conv("conv3", 590_000, 8, 16),
        linear("fc1", 1024, 1024, 2, 4), linear("fc2", 100, 1024, 1, 2),
    ),
    # 20.4 MB: like VGG, scaled down
    "vgg7": (
        conv("conv1", 37_000, 10, 20), conv("conv2", 147_000, 12, 24), conv("conv3", 590_000, 14, 28),
        conv("conv4", 1_180_000, 8, 16), linear("fc1", 1024, 2048, 3, 6), linear("fc2", 1024, 1024, 2, 4),
        linear("fc3", 100, 1024, 1, 2),
    ),
    # 4.7 MB, all convolutions, even
    "deep8": tuple(conv(f"conv{i}", 147_456, 5, 10) for i in range(1, 9)),
    # 4.6 MB with biases
    "mlp4b": (
        linear("fc1", 512, 784, 4, 8, bias=True), linear("fc2", 1024, 512, 4, 8, bias=True),
        linear("fc3", 200, 1024, 3, 6, bias=True), linear("fc4", 10, 200, 1, 2, bias=True),
    ),
    # 7.7 MB: many convolutions, small at the front, growing towards the end
    "tower12": tuple(conv(f"conv{i}", 12_288 * i * i // 4, 4, 8) for i in range(1, 13)),
    # 8.6 MB: nearly all bytes in one wide classifier, like a net with very many classes
    "head3": (
        conv("conv1", 75_000, 14, 28), linear("fc1", 512, 512, 2, 4), linear("fc2", 3500, 512, 4, 8),
    ),
}  # fmt: skip
