"""Multi-stream: operators of one GPU that do not depend on each other run side by side on streams, as far as they fit.

Paper: Pourghassemi, Zhang, Lee, Chandramowlishwaran, On the Limits of Parallelizing Convolutional Neural Networks on GPUs, SPAA'20:
frameworks launch operators one after another; beside each other they are limited by what a kernel takes of the multiprocessors
and by the workspace of fast convolutions.
Simplified: a kernel's share of the GPU follows from its output alone, the backward kernels of an operator are one and take as much;
a workspace is the patch matrix of the convolution; kernels slow each other only by the shares.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from poseidon_sim.plan.placed import kernel, operator_layers, operator_times
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce
from poseidon_sim.strategy.base import Job, Strategy, require
from poseidon_sim.workload.graph import readers, sources
from poseidon_sim.workload.layer import ELEMENT_BYTES, Layer


def gpu_share(layer: Layer, batch_size: float, block_elements: int, resident_blocks: int) -> float:
    """Return the share of the GPU that a layer's kernel can use: its thread blocks over those that fill the GPU; 1 if unknown.

    >>> gpu_share(Layer("conv", "conv", output_elements=8192), 40, block_elements=8192, resident_blocks=160)
    0.25
    """
    blocks = math.ceil(batch_size * layer.output_elements / block_elements)
    return min(1.0, blocks / resident_blocks) if blocks else 1.0


def workspace_bytes(layer: Layer, batch_size: float, element_bytes: int) -> float:
    """Return the bytes of a convolution's patch matrix (k k C rows, a column for each output pixel); 0 where it copies nothing."""
    if layer.kind != "conv" or not layer.tensors or not layer.output_elements:
        return 0.0
    rows = layer.forward_flops / 2 / layer.output_elements
    pixels = layer.forward_flops / 2 / layer.tensors[0]
    copies = rows * pixels > layer.input_elements  # a 1 x 1 convolution reads its input as it stands
    return batch_size * rows * pixels * element_bytes if copies else 0.0


@dataclass
class _Workspace:
    """Gives out workspace in the order of launches: what is let go first was taken first."""

    size: float
    held: deque[tuple[float, Handles]] = field(default_factory=deque)
    retired: list[Handles] = field(default_factory=list)

    def room(self, plan: Plan, wanted: float) -> list[Handles]:
        """Return what must have ended before `wanted` bytes are free (a kernel that wants more than all runs without others')."""
        taken = sum(each for each, _ in self.held)
        while wanted and self.held and taken + wanted > self.size:
            num_bytes, done = self.held.popleft()
            taken -= num_bytes
            self.retired = [plan.all_of(*self.retired, done)]
        return self.retired if wanted else []


@dataclass(frozen=True)
class MultiStream(Strategy):
    """Run the operators of the layer graph on several streams; several GPUs then average gradients by all-reduce.

    Parameters
    ----------
    streams : kernels at once on a GPU; 1 is what frameworks do.
    workspace_size : bytes for the workspaces of all kernels that run at once.
    block_elements : output elements of one thread block (128 x 64, the tile of an implicit matrix product).
    resident_blocks : thread blocks that fill the GPU (two on each of a V100's 80 multiprocessors).
    algorithm, overlap : of the all-reduce, as in `AllReduce`.
    """

    name: ClassVar[str] = "multi-stream"
    summary: ClassVar[str] = "operators that do not depend on each other share the GPU on several streams"
    source: ClassVar[str] = "Pourghassemi et al., SPAA'20"
    every_micro_batch: ClassVar[bool] = True

    streams: int = 1
    workspace_size: float = math.inf
    block_elements: int = 8192
    resident_blocks: int = 160
    algorithm: str = "ring"
    overlap: bool = True

    @property
    def _all_reduce(self) -> AllReduce:
        return AllReduce(algorithm=self.algorithm)

    def validate(self, job: Job) -> Iterator[str]:
        for setting in ("streams", "workspace_size", "block_elements", "resident_blocks"):
            require(getattr(self, setting) > 0, f"{setting}={getattr(self, setting)!r} must be above 0")
        yield from (text for text in self._all_reduce.validate(job) if job.cluster.num_gpus > 1)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        before, launch, gradient = sources(plan.workload.layers), self._launcher(plan), dict[int, Handles]()
        after, end = readers(before), start
        for _ in range(plan.num_passes):
            done: dict[int, Handles] = {}
            for i, needs in enumerate(before):
                done[i] = launch("forward", i, [done[j] for j in needs] or [end])
            loss = plan.all_of(*done.values())
            for i in reversed(range(len(before))):
                gradient[i] = launch("backward", i, [gradient[j] for j in after[i]] or [loss])
            end = plan.all_of(*gradient.values())
        names = {layer.name: i for i, layer in enumerate(plan.workload.layers)}
        ready = {layer: gradient[names[layer.name]] if self.overlap else end for layer in reversed(plan.layers)}
        return plan.all_of(end, *(self._all_reduce.sync(plan, layer, each) for layer, each in ready.items()))

    def _launcher(self, plan: Plan) -> Callable[[str, int, list[Handles]], Handles]:
        """Return a function that launches an operator, in graph order, when its inputs are there and its workspace is free."""
        times, owners, operators = operator_times(plan), operator_layers(plan), plan.workload.layers
        batch_size, element_bytes = plan.own_batch_size, ELEMENT_BYTES[plan.workload.precision]
        workspace = _Workspace(self.workspace_size)

        def launch(kind: str, index: int, needs: list[Handles]) -> Handles:
            operator, forward = operators[index], kind == "forward"
            wanted = workspace_bytes(operator, batch_size, element_bytes)
            ready = plan.all_of(*needs, *workspace.room(plan, wanted))
            share = gpu_share(operator, batch_size, self.block_elements, self.resident_blocks)
            label = kind if owners[index].layer is operator else f"{kind} {operator.name} with"
            with plan.at_priority(index if forward else 2 * len(operators) - 1 - index):
                done = kernel(
                    plan, kind, times[index, 0 if forward else 1], ready, layer=owners[index], label=label, streams=self.streams,
                    share=share,
                )  # fmt: skip
            if wanted:
                workspace.held.append((wanted, done))
            return done

        return launch

    def network_bytes(self, job: Job) -> float:
        """What the all-reduce sends."""
        return self._all_reduce.network_bytes(job)
