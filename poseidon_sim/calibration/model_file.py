"""From measured layers to a model file: each layer by its kind and shapes where they account for all its parameters.

A layer that the toolkit's kinds cannot describe exactly (another layout of biases, weights shared with an earlier
layer) is written as kind `other` with the number of parameters it brings. Its times are measured either way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from poseidon_sim.errors import InputError
from poseidon_sim.units import format_time
from poseidon_sim.workload.shapes import infer_layers

Shape = tuple[int, ...]
_ACTIVATIONS = frozenset({
    "ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh",
    "Softmax", "LogSoftmax", "Softplus", "Hardswish", "Hardsigmoid", "Hardtanh",
})  # fmt: skip
_NORMS = {"BatchNorm1d": "batch", "BatchNorm2d": "batch", "SyncBatchNorm": "batch", "LayerNorm": "layer", "GroupNorm": "batch",
          "RMSNorm": "rms"}  # fmt: skip


@dataclass(frozen=True)
class MeasuredLayer:
    """One layer as it ran: `keys` are those of a model file without times; times are seconds per iteration of the whole batch.

    >>> print(MeasuredLayer("fc", {"kind": "linear", "shape": [4, 2]}, 2e-6, 4e-6))
    {name: "fc", kind: linear, shape: [4, 2], forward_time: 2 us, backward_time: 4 us}
    """

    name: str
    keys: Mapping[str, object]
    forward_time: float
    backward_time: float

    def __str__(self) -> str:
        keys = "".join(f", {key}: {_written(value)}" for key, value in self.keys.items())
        times = f"forward_time: {format_time(self.forward_time)}, backward_time: {format_time(self.backward_time)}"
        return f"{{name: {json.dumps(self.name)}{keys}, {times}}}"


@dataclass(frozen=True)
class Profile:
    """A model as it ran on one device; printed, it is a model file that `load_model` and scenarios take.

    Parameters
    ----------
    layers : in forward order.
    iteration_time : median seconds of forward and backward without any hook.
    hook_time : seconds that one hook's mark added, subtracted from every layer's times.
    precision : of the parameters, as model files spell it.
    """

    name: str
    layers: tuple[MeasuredLayer, ...]
    batch_size: int
    precision: str
    sample: str
    source: str
    iteration_time: float
    hook_time: float
    notes: tuple[str, ...] = ()

    @property
    def layer_time(self) -> float:
        """Seconds of all layers' forward and backward passes together."""
        return sum(layer.forward_time + layer.backward_time for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; times in seconds."""
        layers = [
            {"name": x.name, **x.keys, "forward_time_s": x.forward_time, "backward_time_s": x.backward_time} for x in self.layers
        ]
        return {
            "name": self.name, "source": self.source, "batch_size": self.batch_size, "precision": self.precision,
            "iteration_time_s": self.iteration_time, "layer_time_s": self.layer_time, "hook_time_s": self.hook_time,
            "layers": layers, "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        head = [
            f"# times are per iteration of {self.batch_size} samples and hold for that batch only",
            f"name: {json.dumps(self.name)}",
            f"source: {json.dumps(self.source)}",
            f"sample: {self.sample}",
            f"batch_size: {self.batch_size}",
            f"precision: {self.precision}",
            "notes:",
            *(f"  - {json.dumps(note)}" for note in self.notes),
            "layers:",
        ]
        return "\n".join([*head, *(f"  - {layer}" for layer in self.layers)])


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def layer_keys(module: Any, inputs: Shape, outputs: Shape, parameters: int) -> dict[str, object]:
    """Return the keys of a model file for a module of torch.nn; kind `other` unless its kind accounts for everything.

    Parameters
    ----------
    inputs, outputs : shapes of what it read and gave, without the batch.
    parameters : trainable elements that belong to it.
    """
    found = _by_kind(module, inputs)
    if found is not None and _accounts(found, outputs, parameters):
        return found
    return {"kind": "other", "parameters": parameters} if parameters else {"kind": "other"}


def _accounts(keys: dict[str, object], outputs: Shape, parameters: int) -> bool:
    """Whether shape inference gives the parameters and the output that the module really has."""
    try:
        (layer,) = infer_layers([{"name": "x", **keys, "forward_time": "1 s", "backward_time": "1 s"}])
    except InputError:
        return False
    return layer.parameters == parameters and layer.output_elements == prod(outputs)


def _by_kind(module: Any, inputs: Shape) -> dict[str, object] | None:
    """Return the keys of a module by its class, or None; what it reads is given outright, since the chain may branch."""
    name = type(module).__name__
    read: dict[str, object] = {"input": list(inputs)}
    if name in ("Linear", "NonDynamicallyQuantizableLinear"):
        read["input"] = [prod(inputs[:-1]), inputs[-1]] if len(inputs) > 1 else list(inputs)
        keys = {"kind": "linear", "shape": [module.in_features, module.out_features], "bias": module.bias is not None}
        return {**keys, **(read if len(inputs) > 1 else {})}
    if name == "Conv2d":
        keys = {"kind": "conv", "channels": module.out_channels, "kernel": list(module.kernel_size), "stride": list(module.stride)}
        padding = module.padding if isinstance(module.padding, str) else list(module.padding)
        rest = {"padding": padding, "dilation": list(module.dilation), "groups": module.groups, "bias": module.bias is not None}
        return {**keys, **rest, **read}
    if name in ("MaxPool2d", "AvgPool2d"):
        kernel, stride, padding = (_pair(getattr(module, key)) for key in ("kernel_size", "stride", "padding"))
        return {"kind": "pool", "kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": module.ceil_mode, **read}
    if name == "Embedding":
        return {"kind": "embedding", "vocabulary": module.num_embeddings, "outputs": module.embedding_dim, **read}
    if name in _NORMS:
        return {"kind": "norm", "type": _NORMS[name], **read}
    if name in _ACTIVATIONS:
        return {"kind": "activation", **read}
    plain = {"AdaptiveAvgPool2d": "global-pool", "Flatten": "flatten"}
    kind = "dropout" if name.startswith("Dropout") else plain.get(name)
    return {"kind": kind, **read} if kind else None


def _pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, tuple | list) else [value, value]
