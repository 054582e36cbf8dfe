"""A real PyTorch net in place of the emulated GPU: true gradients through hooks, and how long each layer took.

A layer's gradient is handed over in the hook that PyTorch calls when the last of its parameters has one, while the
backward pass goes on below it. Layers that travel as sufficient factors hand over their inputs and output gradients.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from .job import Job
from .model import Array, Model
from .staging import Pairs, staging_of
from .torch_nets import build, modules, samples

Ready = Callable[[int, int], None]


class Span(NamedTuple):
    """A measured time: what one layer (None: the whole net) took in one iteration, and bytes sent for it."""

    iteration: int
    layer: int | None
    phase: str
    seconds: float
    num_bytes: int = 0


class TorchModel(Model):
    """The net, its hooks, and the host buffers that the strategies read and write."""

    def __init__(self, job: Job, rank: int) -> None:
        torch.set_num_threads(1)
        self.staging = staging_of(job)
        super().__init__(job, rank)
        self.net = build(job.net, job.seed)
        self.modules = modules(self.net)
        self.device_parameters = [self._adopt(layer) for layer in range(len(job.layers))]
        self.by_factors = [job.by_factors(x) for x in job.layers]
        self.ready: Ready = lambda layer, iteration: None
        self.iteration, self.mark = 0, self.staging.mark()
        self.inputs: dict[int, torch.Tensor] = {}
        self.errors: dict[int, torch.Tensor] = {}
        self.missing: dict[int, int] = {}
        self.marks: list[tuple[int, int | None, str, Any, Any]] = []
        self.losses: list[torch.Tensor] = []
        self.begun: dict[tuple[int | None, int], float] = {}
        self.ended: dict[tuple[int | None, int], float] = {}
        self.sent: dict[tuple[int | None, int], int] = defaultdict(int)
        for layer, module in enumerate(self.modules):
            self._watch(layer, module)

    def zeros(self, elements: int) -> Array:
        return self.staging.zeros(elements)

    def train(self, iteration: int, ready: Ready) -> None:
        """Run forward and backward on this worker's samples; `ready(layer, iteration)` as gradients come to the host."""
        self.iteration, self.ready = iteration, ready
        self.missing = {layer: len(x.tensors) for layer, x in enumerate(self.job.layers)}
        inputs, classes = (x.to(self.job.device) for x in samples(self.job, self.rank, iteration))
        self.staging.admit()
        self.net.zero_grad(set_to_none=True)
        self.mark = self.staging.mark()
        loss = nn.functional.cross_entropy(self.net(inputs), classes)
        self._lap("forward", len(self.modules) - 1)  # the loss counts with the last layer
        loss.backward()  # type: ignore[no-untyped-call]
        self.losses.append(loss.detach())
        if not self.job.overlap:
            self.staging.drain()

    def refresh(self, layer: int | None) -> None:
        """Bring fresh parameters of a layer (None: of all) to the device."""
        for each in range(len(self.modules)) if layer is None else (layer,):
            self.staging.copy_in(self.parameters[each], self.device_parameters[each])

    def apply_on_device(self, total: torch.Tensor, first: int) -> None:
        """Take one SGD step with the sum of all workers' gradients of the elements from `first` on."""
        for start, parameters in zip(self.first, self.device_parameters, strict=False):
            a, b = max(first, int(start)), min(first + total.numel(), int(start) + parameters.numel())
            if a < b:
                parameters[a - int(start) : b - int(start)].sub_(total[a - first : b - first], alpha=float(self.step))

    def spans(self) -> list[Span]:
        """Everything measured, after the last iteration."""
        self.staging.drain()
        out = [Span(i, layer, phase, self.staging.seconds(a, b)) for i, layer, phase, a, b in self.marks]
        for (layer, iteration), ended in self.ended.items():
            key = layer, iteration
            out.append(Span(iteration, layer, "communicate", ended - self.begun[key], self.sent[key]))
        return out

    def note_begin(self, layer: int | None, iteration: int) -> None:
        """A layer's gradient (None: that of the whole net) begins its way; the last to say so counts."""
        self.begun[layer, iteration] = time.perf_counter()

    def note_end(self, layer: int | None, iteration: int) -> None:
        """A layer (or one of its tensors) is fresh."""
        self.ended[layer, iteration] = time.perf_counter()

    def _adopt(self, layer: int) -> torch.Tensor:
        """Let the module's parameters be views of one flat tensor that shares, or mirrors, the host's."""
        module = self.modules[layer]
        own = list(module.parameters(recurse=False))
        self.parameters[layer][:] = torch.cat([p.detach().reshape(-1) for p in own]).numpy()
        flat = self.staging.adopt(self.parameters[layer])
        first = 0
        for parameter in own:
            parameter.data = flat[first : first + parameter.numel()].view_as(parameter)
            first += parameter.numel()
        return flat

    def _watch(self, layer: int, module: nn.Module) -> None:
        def forward(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            self._lap("forward", layer)
            if self.by_factors[layer]:
                self.inputs[layer] = inputs[0].detach()
                output.register_hook(lambda error: self.errors.__setitem__(layer, error))

        module.register_forward_hook(forward)
        for parameter in module.parameters(recurse=False):
            parameter.register_post_accumulate_grad_hook(lambda _: self._accumulated(layer))

    def _lap(self, phase: str, layer: int) -> None:
        """Everything since the last mark belongs to this layer."""
        now = self.staging.mark()
        self.marks.append((self.iteration, layer, phase, self.mark, now))
        self.mark = now

    def _accumulated(self, layer: int) -> None:
        self.missing[layer] -= 1
        if self.missing[layer]:
            return
        self._lap("backward", layer)
        iteration = self.iteration

        def then(began: Any, ended: Any) -> None:
            self.marks.append((iteration, layer, "copy", began, ended))
            self.ready(layer, iteration)

        self.staging.copy_out(self._pairs(layer), then)
        self.mark = self.staging.resume(self.mark)

    def _pairs(self, layer: int) -> Pairs:
        """What is sent of a layer, and where it is put."""
        parity = self.iteration % 2
        if self.by_factors[layer]:
            own = self.factors[parity][layer]
            assert own is not None
            error, given = self.errors.pop(layer), self.inputs.pop(layer)
            return [(error, own[: error.numel()]), (given, own[error.numel() :])]
        target, first, pairs = self.gradients[parity][layer], 0, []
        for parameter in self.modules[layer].parameters(recurse=False):
            assert parameter.grad is not None
            pairs.append((parameter.grad, target[first : first + parameter.numel()]))
            first += parameter.numel()
        return pairs
