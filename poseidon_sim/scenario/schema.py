"""The shape of a scenario file, as pydantic models; the published JSON Schema is made from them.

Quantities with a dimension stay as written here ("40 Gbit/s") and are read by `resolve` with the unit parsers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema


def _quantity(what: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "description": what})


Rate = Annotated[Any, _quantity('data rate with its unit, "40 Gbit/s" or "12 GB/s"')]
Size = Annotated[Any, _quantity('size with its unit, "25 MB" or "4 MiB"')]
Time = Annotated[Any, _quantity('time with its unit, "50 us"')]
Flops = Annotated[Any, _quantity('compute rate with its unit, "6.14 TFLOP/s"')]
Share = Annotated[Any, _quantity('share, 0.94 or "94 %"')]
Money = Annotated[Any, _quantity('price per hour, "3.06 USD/h"')]
Count = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Amount = Annotated[float | None, Field(gt=0, le=1e18, allow_inf_nan=False)]
NotNegative = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]


class Strict(BaseModel):
    """Base of all parts: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class GpuSpec(Strict):
    """A GPU written out in the scenario."""

    name: str = "inline"
    flops: Any = Field(default=None, description="one rate, or a mapping of precision to rate")
    memory_bandwidth: Rate = None
    memory: Size = None
    efficiency: Any = Field(default=None, description="one share, or a mapping of layer kind to share")
    memory_efficiency: Share = None
    launch_overhead: Time = None
    pcie: Rate = None
    peer_bandwidth: Rate = None


class NetworkSpec(Strict):
    """The network between nodes."""

    bandwidth: Rate = None
    link: str | None = Field(default=None, description="catalog name that gives bandwidth, efficiency and latency")
    latency: Time = None
    efficiency: Share = None
    message_overhead: Time = None
    collective_overhead: Time = None
    oversubscription: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    nodes_per_leaf: Count | None = None
    jobs: Count | None = Field(default=None, description="equal jobs on the same nodes that begin together and share every port")
    contention: Share = Field(default=None, description="share by which each further job lengthens a byte, beyond sharing")
    incast: list[tuple[float, float]] | None = Field(default=None, description="[[flows into a port, share of goodput left], ...]")
    pair_bandwidth: list[list[Rate]] | None = Field(default=None, description="rate of each ordered pair of nodes, row = sender")


class InputSpec(Strict):
    """How a node's GPUs get their batches."""

    read_bandwidth: Rate = Field(default=None, description="of the node's disk or page cache, all its GPUs together")
    sample_size: Size = Field(default=None, description="one stored sample")
    decode_time: Time = Field(default=None, description="one sample on all CPUs of the node together")
    copied_size: Size = Field(default=None, description="one decoded sample, copied to the GPU")
    prefetch: bool = True


class HostSpec(Strict):
    """What a node's CPU side does to gradients (host staging)."""

    copy_bandwidth: Rate = None
    reduce_bandwidth: Rate = None
    channel_bandwidth: Rate = None
    channel_sharing: list[tuple[float, float]] | None = Field(default=None, description="[[messages at once, share left], ...]")
    memory_bandwidth: Rate = None
    channels: Count | None = None
    send_buffer: Size = None
    input: InputSpec | None = None


class GroupSpec(Strict):
    """A run of nodes that differ from the rest."""

    nodes: Count
    gpu: str | GpuSpec | None = None
    slowdown: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)
    bandwidth: Rate = None
    batch_size: Count | None = None


class ClusterSpec(Strict):
    """The machines."""

    nodes: Count
    gpus_per_node: Count = 1
    gpu: str | GpuSpec | None = None
    pcie: Rate = Field(default=None, description='rate of a GPU\'s lanes, "12 GB/s", or a node template such as pcie-tree')
    node: str | None = Field(default=None, description="node template")
    network: str | NetworkSpec | None = None
    host: HostSpec | None = None
    peer_latency: Time = None
    socket_bandwidth: Rate = None
    groups: list[GroupSpec] | None = None
    jitter: Share = None
    gpu_spread: Share = Field(
        default=None, description="standard deviation of the speed of equal GPUs; the catalog's for its GPUs if not given"
    )
    seed: Annotated[int, Field(strict=True, ge=0, le=2**32)] = 0
    name: str = ""


class ConvergenceSpec(Strict):
    """How many iterations training needs: a law, a curve, or a number of iterations or epochs."""

    min_steps: Amount = Field(default=None, description="iterations that no batch goes below")
    critical_batch: Amount = Field(default=None, description="global batch that needs twice min_steps")
    iterations: Amount = Field(default=None, description="iterations to the target, whatever the batch")
    epochs: Amount = Field(default=None, description="passes over the data to the target, whatever the batch")
    dataset_size: Amount = Field(default=None, description="samples of an epoch")
    curve: str | list[tuple[float, float]] | None = Field(
        default=None, description="[[global batch, iterations], ...], or a CSV with the columns global_batch and iterations"
    )
    staleness: NotNegative = None
    staleness_penalty: NotNegative = None
    local_steps_exponent: NotNegative = None
    sparsity_exponent: NotNegative = None
    factor: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    basis: Literal["assumed", "given", "measured", "fitted"] | None = None
    source: str = ""
    target: str = ""


class ScenarioSpec(Strict):
    """A whole scenario file."""

    model: str | dict[str, Any]
    batch_size: Count | None = Field(default=None, description="samples per GPU and iteration (scaling: strong: of the whole job)")
    global_batch_size: Count | None = Field(default=None, description="samples of the whole job, instead of batch_size")
    micro_batch_size: Count | None = Field(default=None, description="samples of one forward and backward pass")
    scaling: Literal["weak", "strong"] = "weak"
    cluster: ClusterSpec
    strategy: str | dict[str, Any]
    convergence: ConvergenceSpec | None = None
    price_per_gpu_hour: Money = None
    price_per_node_hour: Money = None
    name: str = ""
    description: str = ""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scenario."""
    schema = ScenarioSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "poseidon-sim scenario", **schema}
