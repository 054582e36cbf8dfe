"""What must be computed: layers with parameters, FLOPs, bytes and shapes. A multiply-add is 2 FLOP."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


class Heads(NamedTuple):
    """An attention layer's heads: width of one, whether later positions are hidden, and whether one kernel does it all.

    `fused` None leaves it to the GPU.
    """

    size: int
    causal: bool = False
    fused: bool | None = None


@dataclass(frozen=True)
class Layer:
    """One layer of a network, in forward order; every figure is per sample unless it says otherwise.

    Parameters
    ----------
    name : unique in its workload.
    kind : 'linear', 'conv', 'attention', 'embedding', 'lstm', 'norm', 'pool', 'activation', ...; chooses the GPU
        efficiency. Behaviour is never decided by the name.
    tensors : number of elements of each parameter tensor, e.g. (weight, bias); () for a layer without parameters.
    forward_flops, backward_flops : FLOP per sample.
    input_elements, output_elements : elements of activations read and written per sample.
    factor_shape : (M, N) when the gradient of the first tensor is a sum of outer products (linear layers), else None.
    factor_rows : outer products per sample (1 for a vector, the sequence length for a sequence of tokens).
    forward_time, backward_time : measured seconds per iteration at the batch of the scenario, or None (modelled).
    inputs : names of the layers it reads from.
    block : which repeated block of the model it belongs to ('layer.3'), '' outside of any.
    saved_flops : factor by which a fast algorithm (Winograd) cuts the multiplications of this layer without tensor cores.
    experts : experts the layer holds; every position uses some of them (its FLOP are those of the ones used).
    tied : the layer whose first tensor it shares, '' if none.
    gradient_bytes_given : stated gradient size in bytes, overriding elements x element size; None normally.
    heads : how an attention layer is cut into heads, or None (not known, or no attention).
    """

    name: str
    kind: str
    tensors: tuple[int, ...] = ()
    forward_flops: float = 0.0
    backward_flops: float = 0.0
    input_elements: float = 0.0
    output_elements: float = 0.0
    factor_shape: tuple[int, int] | None = None
    factor_rows: float = 1.0
    forward_time: float | None = None
    backward_time: float | None = None
    gradient_bytes_given: float | None = None
    saved_flops: float = 1.0
    inputs: tuple[str, ...] = ()
    heads: Heads | None = None
    block: str = ""
    experts: int = 1
    tied: str = ""

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(self.tensors)

    def gradient_bytes(self, element_bytes: int = 4) -> float:
        """Bytes of the full gradient, all tensors together."""
        if self.gradient_bytes_given is not None:
            return self.gradient_bytes_given
        return float(self.parameters * element_bytes)

    def tensor_bytes(self, element_bytes: int = 4) -> tuple[float, ...]:
        """Bytes of each parameter tensor's gradient, in order."""
        if self.gradient_bytes_given is not None:
            return (self.gradient_bytes_given,)
        return tuple(float(elements * element_bytes) for elements in self.tensors)

    def factor_bytes(self, samples: float, element_bytes: int = 4) -> float:
        """Bytes of the sufficient factors of `samples` samples: K x (M + N) elements."""
        if self.factor_shape is None:
            raise ValueError(f"layer {self.name!r} has no sufficient factors")
        rows, columns = self.factor_shape
        return samples * self.factor_rows * (rows + columns) * element_bytes


@dataclass(frozen=True)
class Workload:
    """A network to train: its layers in forward order and where they come from.

    Parameters
    ----------
    name : e.g. 'vgg19'.
    layers : in forward order.
    sample : what one sample is ('image', 'sequence', 'token').
    source : where shapes and counts come from.
    single_gpu_throughput : measured samples/s on one GPU, or None; scales modelled times.
    single_gpu_batch_size : samples per pass at which that, or the layers' times, were measured; None for the batch asked about.
    batch_size : the usual batch per GPU, or None.
    issue_time : seconds the host takes to issue one pass of one layer of a transformer, or None for the usual ones.
    element_bytes : bytes of one gradient element on the wire (4 for fp32).
    optimizer_bytes : optimizer state per parameter, in bytes (4 for SGD with momentum, 8 for Adam).
    """

    name: str
    layers: tuple[Layer, ...]
    sample: str = "image"
    source: str = ""
    single_gpu_throughput: float | None = None
    batch_size: int | None = None
    precision: str = "fp32"
    element_bytes: int = 4
    optimizer_bytes: float = 4.0
    notes: tuple[str, ...] = field(default=())
    single_gpu_batch_size: float | None = None
    issue_time: float | None = None

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        """Leave the hash out: another process hashes text otherwise."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @cached_property
    def _hash(self) -> int:
        """The hash, worked out once: caches look networks of hundreds of layers up."""
        measured = (self.single_gpu_throughput, self.single_gpu_batch_size, self.issue_time)
        return hash((self.name, self.layers, measured, self.precision, self.element_bytes))

    @cached_property
    def parameters(self) -> int:
        """Number of trainable parameters of the whole network."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def gradient_bytes(self) -> float:
        """Bytes of all gradients."""
        return sum(layer.gradient_bytes(self.element_bytes) for layer in self.layers)

    def wire_share(self, precision: str) -> float:
        """Return the share of the gradients' bytes that is left when they travel in `precision`, 1 where that is no narrower."""
        return min(1.0, ELEMENT_BYTES[precision] / self.element_bytes)

    @property
    def state_bytes(self) -> float:
        """Bytes per parameter beside it and its gradient: the optimizer's state, and in 16 bits or fewer an fp32 copy."""
        return self.optimizer_bytes + (4.0 if self.element_bytes < 4 else 0.0)

    @property
    def has_times(self) -> bool:
        """Whether some layer states its times."""
        return any(layer.forward_time is not None or layer.backward_time is not None for layer in self.layers)

    def timed_at(self, batch_size: float) -> Workload:
        """Return the workload with the batch that its layers' times belong to: its own word, its usual batch, or this one.

        A throughput beside them holds at the batch asked about, and so do they.
        """
        if not self.has_times or self.single_gpu_batch_size is not None or self.single_gpu_throughput is not None:
            return self
        return self.with_changes(single_gpu_batch_size=self.batch_size or batch_size)

    @property
    def is_measured(self) -> bool:
        """Whether measurements, and no model of the GPU, say how long an iteration computes."""
        return self.single_gpu_throughput is not None or self.has_all_times

    @property
    def has_all_times(self) -> bool:
        """Whether every layer's own times are measured."""
        return all(layer.forward_time is not None for layer in self.layers)

    @property
    def forward_flops(self) -> float:
        """FLOP of one sample's forward pass."""
        return sum(layer.forward_flops for layer in self.layers)

    @property
    def backward_flops(self) -> float:
        """FLOP of one sample's backward pass."""
        return sum(layer.backward_flops for layer in self.layers)

    def layer(self, name: str) -> Layer:
        """Return the layer called `name`."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def with_changes(self, **changes: object) -> Workload:
        """Return a copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]
