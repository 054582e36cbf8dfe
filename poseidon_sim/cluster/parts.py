"""The parts a cluster is made of: GPUs, nodes, networks. Plain frozen values in SI units (s, bytes, bytes/s, FLOP/s)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Gpu:
    """One GPU (one device as the software sees it).

    Parameters
    ----------
    name : catalog name, lower case with hyphens.
    flops : peak dense rate by precision, FLOP/s, e.g. {'fp32': 6.14e12}.
    memory_bandwidth : bytes/s.
    memory : bytes.
    efficiency : achievable share of the peak rate by kind of layer; key 'default' for the rest.
    memory_efficiency : achievable share of the memory bandwidth.
    launch_overhead : seconds per kernel (per layer and pass).
    pcie_bandwidth : achievable bytes/s in one direction between GPU and host, or None (copies cost nothing).
    peer_bandwidth : achievable bytes/s per GPU and direction between GPUs of a node (NVLink), or None.
    fill_flops : FLOP a matrix kernel loses while the GPU fills and drains, at most as many as it does; 0 for none.
    fused_attention : whether 16-bit attention never writes its scores to memory (FlashAttention, Ampere and later).
    multiprocessors : processors that each work on one tile of a matrix product at a time; 0 for products without tiles.
    spread : standard deviation of the speed of equal GPUs, as a share of their mean (see `cluster.spread`).
    """

    name: str
    flops: dict[str, float] = field(default_factory=dict, hash=False)
    memory_bandwidth: float | None = None
    memory: float | None = None
    efficiency: dict[str, float] = field(default_factory=dict, hash=False)
    memory_efficiency: float = 0.75
    launch_overhead: float = 0.0
    pcie_bandwidth: float | None = None
    peer_bandwidth: float | None = None
    price_per_hour: float | None = None
    price: float | None = None
    year: int | None = None
    source: str = ""
    confidence: str = ""
    fill_flops: float = 0.0
    fused_attention: bool = False
    multiprocessors: int = 0
    spread: float = 0.0


@dataclass(frozen=True)
class Link:
    """A catalog entry for a kind of link: NIC, PCIe or NVLink. One direction, bytes/s."""

    name: str
    kind: str
    bandwidth: float
    efficiency: float = 1.0
    latency: float = 0.0
    source: str = ""
    confidence: str = ""


@dataclass(frozen=True)
class Network:
    """The network between nodes and the transport that runs on it.

    Parameters
    ----------
    bandwidth : line rate of a node's port, bytes/s, one direction (full duplex).
    latency : seconds from the last byte sent to the message being usable at the other end; does not hold the channel.
    efficiency : goodput as a share of the line rate (headers, protocol, host limits).
    message_overhead : seconds a message occupies its channel before its first byte moves.
    collective_overhead : seconds per call of a collective operation (launch, negotiation).
    oversubscription : ratio of a leaf switch's downlinks to its uplinks; 1 is a full fabric.
    nodes_per_leaf : nodes under one leaf switch, or None for a single switch.
    incast : points (concurrent flows into one port, share of the goodput that remains), or () for none.
    pair_bandwidth : optional (n, n) tuple of rows: goodput cap of each ordered pair of nodes, bytes/s.
    catalog : whether `efficiency` is the catalog's for such links and nobody's measurement of this network.
    """

    bandwidth: float
    latency: float = 0.0
    efficiency: float = 1.0
    message_overhead: float = 0.0
    collective_overhead: float = 0.0
    oversubscription: float = 1.0
    nodes_per_leaf: int | None = None
    incast: tuple[tuple[float, float], ...] = ()
    pair_bandwidth: tuple[tuple[float, ...], ...] | None = None
    catalog: bool = False

    @property
    def states_goodput(self) -> bool:
        """Whether the goodput is someone's figure for this network, and neither the catalog's nor the bare line rate."""
        return not self.catalog and self.efficiency < 1.0

    def shared_by(self, jobs: int, contention: float = 0.0) -> Network:
        """Return the network as one of `jobs` equal jobs sees it that run on the same nodes and begin together.

        Alike and begun together, they stay in step, and fair sharing leaves each a part of every port for good. `contention` is
        what each further job adds to the time of a byte beyond that, as a share: k jobs take k + contention (k - 1) times as long
        (Wang, Shi et al. 2020, communication contention).

        >>> Network(bandwidth=1e9).shared_by(4).goodput
        250000000.0
        """
        return replace(self, efficiency=self.efficiency / (jobs + contention * (jobs - 1)), catalog=not self.states_goodput)

    @property
    def goodput(self) -> float:
        """Payload bytes/s of one port in one direction."""
        return self.bandwidth * self.efficiency


@dataclass(frozen=True)
class Input:
    """How a node's GPUs get their batches: read from a disk, decoded on its CPUs, copied to each GPU.

    Parameters
    ----------
    read_bandwidth : bytes/s that the node's disk (or page cache) gives all its GPUs together, or None (costs nothing).
    sample_size : bytes of one stored sample.
    decode_time : seconds of one sample on all CPUs of the node together.
    copied_size : bytes of one decoded sample, copied to the GPU.
    prefetch : load the next batch while this one is trained on (one batch ahead); else an iteration begins with loading.
    """

    read_bandwidth: float | None = None
    sample_size: float = 0.0
    decode_time: float = 0.0
    copied_size: float = 0.0
    prefetch: bool = True


@dataclass(frozen=True)
class Host:
    """What a node's CPU side does to gradients on their way (host staging).

    Parameters
    ----------
    copy_bandwidth : bytes/s of GPU <-> host copies when they are slower than PCIe (pageable memory), or None.
    reduce_bandwidth : bytes/s at which the host sums incoming gradients, or None (costs nothing).
    channel_bandwidth : bytes/s that the communication software of a node can push through, both directions
        together (serialisation, memory copies), or None.
    channel_sharing : points (messages in the channel at once, share of `channel_bandwidth` left), or () for none: one
        thread that serves many connections spends time on polling and switching between them.
    memory_bandwidth : bytes/s that all staging traffic of a node shares, or None.
    channels : messages a node's communication software handles at once, or None for one channel per peer.
    send_buffer : bytes per connection that the system takes off a sending thread's hands (socket buffer), or None.
    input : how batches come to the GPUs, or None (they are there).
    """

    copy_bandwidth: float | None = None
    reduce_bandwidth: float | None = None
    channel_bandwidth: float | None = None
    channel_sharing: tuple[tuple[float, float], ...] = ()
    memory_bandwidth: float | None = None
    channels: int | None = None
    send_buffer: float | None = None
    input: Input | None = None


@dataclass(frozen=True)
class NodeGroup:
    """A run of equal nodes that differ from the cluster's default in something.

    `slowdown` multiplies compute times (1.5 is a straggler); None fields fall back to the cluster's.
    """

    nodes: int
    gpu: Gpu | None = None
    slowdown: float = 1.0
    bandwidth: float | None = None
    batch_size: int | None = None
