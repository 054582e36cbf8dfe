"""FusionLLM: a graph of operators along a chain of devices whose links differ a thousandfold, compressed most on the slowest.

Paper: Tang, Kang, Yin et al., FusionLLM, 2024, arXiv 2410.12707: OP-Fence keeps groups of fast links together and slow links off
the cut, AdaTopK sends the largest values of activations and gradients, fewest over the slowest link; micro-batches are pipelined.
Simplified: one pipeline, every GPU a stage while there are operators; transfers run beside compute; spreading received values over
zeros costs nothing; a tensor that two stages share is summed whole; what compression does to convergence is not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Cluster, Layout
from poseidon_sim.plan.fence import Chain, Fence, Links, Operators
from poseidon_sim.plan.memory import operator_memory
from poseidon_sim.plan.placed import compute_on, move, one_class_per_gpu, operator_layers, operator_times
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.replicas import update_seconds
from poseidon_sim.plan.schedule import SCHEDULES, bubble_words, pipeline_schedule
from poseidon_sim.strategy.base import Job, Strategy, require, require_choices
from poseidon_sim.strategy.megatron import Megatron
from poseidon_sim.workload.layer import Workload


@dataclass(frozen=True)
class FusionLlm(Strategy):
    """Cut the model along a chain of GPUs that crosses slow links seldom, where little crosses them.

    Parameters
    ----------
    compression : elements over elements sent on the slowest link of the chain, in proportion to slowness on the others, down to 1;
        1 sends everything (their ratio is not known to us). A message is whole where values and places would not be fewer bytes.
    fence : group and cut by the links; else devices as numbered, equal shares of the work.
    schedule : '1f1b', 'gpipe' or 'message-driven'.
    selection_time : s of the selection's s x log2(x) seconds on the GPU, as of strategy `top-k`; 0 for none.
    """

    name: ClassVar[str] = "fusionllm"
    summary: ClassVar[str] = "operators pipelined over GPUs far apart: fast links grouped, slow links off the cut, top-k by link"
    source: ClassVar[str] = "Tang et al., FusionLLM, arXiv 2410.12707"
    model_parallel: ClassVar[bool] = True
    every_micro_batch: ClassVar[bool] = True

    compression: float = 1.0
    fence: bool = True
    schedule: str = "1f1b"
    selection_time: float = 2.19e-10

    def layout(self, job: Job) -> Layout:
        return one_class_per_gpu(job.cluster)

    def passes(self, job: Job) -> tuple[int, int]:
        return Megatron(pipeline=job.cluster.num_gpus).passes(job)

    def num_iterations(self) -> tuple[int, int]:
        return 0, 1  # all wait for all at its end: every iteration is like the first

    def chain(self, workload: Workload, cluster: Cluster, micro_batch: int, count: int) -> Chain:
        """Return which GPU runs which operators of `count` micro-batches, and what they send each other."""
        return _chain(self, workload, cluster, micro_batch, count)

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, schedule=SCHEDULES)
        require(self.compression >= 1, f"compression={self.compression} must be at least 1, which sends everything")
        require(self.selection_time >= 0, f"selection_time={self.selection_time} must be 0 or more seconds")
        micro, count = self.passes(job)
        stages = len(self.chain(job.workload, job.cluster, micro, count).order)
        if stages < job.cluster.num_gpus:
            yield f"fusionllm uses {stages} of {job.cluster.num_gpus} GPUs: the model has no more operators"
        yield from bubble_words(stages, count)

    def memory_shares(self, job: Job) -> dict[str, float]:
        """Of the GPU that holds most: its parameters, and what its micro-batches in flight keep."""
        chain = self.chain(job.workload, job.cluster, *self.passes(job))
        most = int(np.argmax(chain.fixed + chain.kept))
        fixed, kept = (float(each.sum()) or 1.0 for each in operator_memory(job.workload, self.passes(job)[0]))
        share = float(chain.fixed[most]) / fixed
        return {"parameters": share, "gradients": share, "optimizer": share, "activations": float(chain.kept[most]) / kept}

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        chain = self.chain(plan.workload, plan.cluster, plan.own_batch_size, plan.num_passes)
        owners = [operator_layers(plan)[first] for first in chain.starts[:-1]]
        seconds = np.add.reduceat(operator_times(plan), chain.starts[:-1], axis=0)
        order, last = pipeline_schedule(self.schedule, len(chain.order), plan.num_passes), len(chain.order) - 1
        ran, arrived = list[Handles](), list[Handles]()
        for stage, back, before, source in zip(order.device, order.backward, order.before, order.source, strict=True):
            gpu, other = chain.order[stage], stage - 1 if back else stage + 1
            needs = [*([ran[before]] if before >= 0 else []), *([arrived[source]] if source >= 0 else [])]
            ready = plan.all_of(*needs) if needs else start[gpu : gpu + 1]
            kind, label = ("backward", "gradients of activations") if back else ("forward", "activations")
            done = compute_on(plan, gpu, kind, seconds[stage, int(back), gpu], ready, layer=owners[stage])
            sent = done
            if 0 <= other <= last:
                cut, layer = min(stage, other), owners[stage]
                selecting = float(chain.selection[cut]) * plan.slowdown[gpu]
                done = compute_on(plan, gpu, "update", selecting, done, layer=layer, label="select")
                sent = move(plan, gpu, chain.order[other], float(chain.message_bytes[cut]), done, label=label, layer=layer)
            ran.append(done)
            arrived.append(sent)
        return plan.everyone(self._update(plan, chain, plan.all_of(*ran)))

    def _update(self, plan: Plan, chain: Chain, done: Handles) -> Handles:
        """Sum the gradients of a tensor that two stages hold, then run every GPU's optimizer; return (W,) handles."""
        ready = done
        for one, other, num_bytes in _copies(plan.workload, chain):
            ways = [move(plan, a, b, num_bytes, done, label="gradients of copies") for a, b in ((one, other), (other, one))]
            ready = plan.all_of(ready, *ways)
        held = np.zeros(len(plan.workers))
        held[list(chain.order)] = np.add.reduceat([x.parameters for x in plan.workload.layers], chain.starts[:-1])
        seconds = update_seconds(plan, held) * (held > 0)
        return plan.on_gpu("update", seconds, np.repeat(ready, len(seconds)), label="optimizer")

    def network_bytes(self, job: Job) -> float:
        """Every micro-batch both ways over every cut between nodes, and a tensor that two nodes hold both ways, once."""
        micro, count = self.passes(job)
        chain, per = self.chain(job.workload, job.cluster, micro, count), job.cluster.gpus_per_node
        crosses = np.diff(np.array(chain.order) // per) != 0
        copies = sum(size for one, other, size in _copies(job.workload, chain) if one // per != other // per)
        return float(2 * count * chain.message_bytes[crosses].sum() + 2 * copies)


def _copies(workload: Workload, chain: Chain) -> Iterator[tuple[int, int, float]]:
    """Yield (GPU, GPU, bytes of its gradient) of tensors that operators of two stages share."""
    place = {layer.name: i for i, layer in enumerate(workload.layers)}
    for layer in workload.layers:
        if layer.tied:
            one, other = (chain.order[chain.stage_of(place[name])] for name in (layer.tied, layer.name))
            if one != other:
                yield one, other, float(workload.layer(layer.tied).tensors[0] * workload.element_bytes)


@lru_cache(maxsize=64)
def _chain(strategy: FusionLlm, workload: Workload, cluster: Cluster, micro_batch: int, count: int) -> Chain:
    stages = min(cluster.num_gpus, len(workload.layers))
    flying = (count,) if strategy.schedule == "gpipe" else tuple(min(count, stages - stage) for stage in range(stages))
    operators, links = Operators.of(workload, cluster, micro_batch), Links.of(cluster)
    fence = Fence(operators, links, strategy.compression, strategy.selection_time, flying)
    return fence.fenced() if strategy.fence else fence.even()
