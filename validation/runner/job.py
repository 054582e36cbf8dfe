"""What the runner is told: layers, strategy and conditions. Plain values that travel as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

NETS = ("mlp", "cnn", "wide-mlp")  # built in `torch_nets`
STRATEGIES = ("parameter-server", "sufficient-factor-broadcast", "poseidon", "all-reduce")
ELEMENT_BYTES = 4


@dataclass(frozen=True)
class RunLayer:
    """One layer, in forward order.

    Parameters
    ----------
    name : unique in the job.
    tensors : elements of each parameter tensor (weight first), float32.
    factor_shape : (M, N) of a linear layer's weight, else None.
    forward_time, backward_time : seconds per iteration that the emulated GPU takes.
    """

    name: str
    tensors: tuple[int, ...]
    factor_shape: tuple[int, int] | None = None
    forward_time: float = 0.0
    backward_time: float = 0.0

    @property
    def elements(self) -> int:
        """Parameters of the layer."""
        return sum(self.tensors)


@dataclass(frozen=True)
class Job:
    """A training job of several real processes.

    Parameters
    ----------
    layers : in forward order.
    strategy : one of `STRATEGIES`.
    workers : processes that compute. `batch_size` : samples per worker (rows of the sufficient factors).
    servers : 'colocated' or the number of extra server processes (parameter-server only).
    fusion : 'none' (one all-reduce per tensor) or 'all' (one for the whole model).
    overlap : synchronise a layer as soon as its backward ends, or all after the whole backward.
    staleness : iterations a worker may run ahead (parameter-server only); 0 is BSP.
    iterations, warm_up : measured iterations, and those before them.
    slowdown : factor on the compute times of each worker; () is 1 for all.
    message_delay : seconds between the arrival of a message's last byte and its being handed over.
    pacing : payload bytes/s (up, down) of every process, for loopback without a shaped network; () is
    unpaced.
    socket_buffer : bytes of each socket's send and receive buffer, or None for the system's automatic size.
    numeric : compute made-up gradients and update true parameters (tests); else the bytes are dummies.
    net : one of `NETS`, a real PyTorch net whose layers `torch_nets.job_of` fills in; '' is the emulated GPU.
    device : 'cpu' or 'cuda', where `net` trains; gradients of a CUDA device are staged through pinned host memory.
    transport : 'tcp' (the runner's own messages), or, for an all-reduce of `net`, torch.distributed over 'gloo'
        or 'nccl'.
    keep_parameters : send the parameters back to the launcher (with `numeric` always).
    coupling : share by which gradients depend on the parameters (numeric only).
    seed : of the initial parameters and the samples (numeric only).
    real_time : ask the system for real-time priority (needs root; ignored without).
    """

    layers: tuple[RunLayer, ...]
    strategy: str
    workers: int
    batch_size: int = 1
    servers: int | str = "colocated"
    fusion: str = "none"
    overlap: bool = True
    staleness: int = 0
    iterations: int = 10
    warm_up: int = 2
    slowdown: tuple[float, ...] = ()
    message_delay: float = 0.0
    pacing: tuple[tuple[float, float], ...] = ()
    socket_buffer: int | None = None
    numeric: bool = False
    coupling: float = 0.5
    seed: int = 0
    learning_rate: float = 0.1
    real_time: bool = True
    net: str = ""
    device: str = "cpu"
    transport: str = "tcp"
    keep_parameters: bool = False
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy={self.strategy!r} is not one of {', '.join(STRATEGIES)}")
        if self.fusion not in ("none", "all"):
            raise ValueError(f"fusion={self.fusion!r} is not one of none, all")
        if (self.staleness or self.servers != "colocated") and self.strategy != "parameter-server":
            raise ValueError(
                f"servers and staleness are the parameter server's; strategy={self.strategy!r} has neither"
            )
        self._check_net()
        if self.slowdown and len(self.slowdown) != self.workers:
            raise ValueError(f"slowdown names {len(self.slowdown)} workers of {self.workers}")
        if self.pacing and len(self.pacing) != self.processes:
            raise ValueError(f"pacing names {len(self.pacing)} processes of {self.processes}")

    def _check_net(self) -> None:
        if self.net and self.net not in NETS:
            raise ValueError(f"net={self.net!r} is not one of {', '.join(NETS)}")
        if not self.net and (self.device, self.transport) != ("cpu", "tcp"):
            raise ValueError("device and transport are those of a real net; name one with net=")
        if self.net and (self.numeric or self.slowdown):
            raise ValueError("a real net has gradients and times of its own: neither numeric nor slowdown")
        if self.device not in ("cpu", "cuda") or self.transport not in ("tcp", "gloo", "nccl"):
            raise ValueError(f"device={self.device!r} (cpu, cuda) or transport={self.transport!r} (tcp, gloo, nccl) is unknown")
        if self.transport != "tcp" and self.strategy != "all-reduce":
            raise ValueError(f"transport={self.transport!r} has all-reduce only, not {self.strategy}")
        if (self.transport == "nccl") != (self.device == "cuda" and self.transport != "tcp"):
            raise ValueError("nccl needs device='cuda', and gloo device='cpu'")

    @property
    def true_gradients(self) -> bool:
        """Whether gradients are computed and parameters change."""
        return self.numeric or bool(self.net)

    @property
    def processes(self) -> int:
        """Workers and extra servers."""
        return self.workers + (0 if self.servers == "colocated" else int(self.servers))

    @property
    def server_ranks(self) -> tuple[int, ...]:
        """Ranks of the processes that serve parameters."""
        return (
            tuple(range(self.workers))
            if self.servers == "colocated"
            else tuple(range(self.workers, self.processes))
        )

    def by_factors(self, layer: RunLayer) -> bool:
        """Whether a layer travels as sufficient factors (ATC'17, BestScheme, for poseidon)."""
        if layer.factor_shape is None or self.workers == 1:
            return False
        if self.strategy == "sufficient-factor-broadcast":
            return True
        m, n = layer.factor_shape
        others = self.workers - 1
        factors = 2 * self.batch_size * others * (m + n)
        return self.strategy == "poseidon" and factors <= 2 * m * n * 2 * others / self.workers

    def to_json(self) -> str:
        """Spell the job out."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        layers = tuple(
            RunLayer(
                **{
                    **x,
                    "tensors": tuple(x["tensors"]),
                    "factor_shape": x["factor_shape"] and tuple(x["factor_shape"]),
                }
            )
            for x in values.pop("layers")
        )
        pairs = {
            "slowdown": tuple(values.pop("slowdown")),
            "pacing": tuple(tuple(x) for x in values.pop("pacing")),
        }
        return Job(layers=layers, **pairs, **values)
