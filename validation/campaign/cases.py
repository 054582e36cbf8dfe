"""The list of cases: what varies, in words that stand as columns in the table of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ..network import NetworkSpec, Port
from ..runner import Job
from .nets import NETS


@dataclass(frozen=True)
class Case:
    """One case.

    Parameters
    ----------
    net : a key of `NETS`. `strategy`, `workers`, `batch_size`, `servers`, `fusion`, `overlap`, `staleness` :
    see Job.
    rate_mbit : wire rate of every port, Mbit/s. `slow_port_mbit` : of the last worker's port instead, or 0
    for none.
    delay_ms : message delay. `straggler` : factor on the compute times of the last worker.
    socket_buffer : bytes of each socket's buffers; 0 for the system's automatic size, which fills deep port
        queues with megabytes and keeps the acknowledgements of the other direction waiting there.
    uplink_mbit : rate of the line between two leaf switches (first and second half of the nodes), or 0 for
    one switch.
    """

    net: str
    strategy: str
    workers: int
    rate_mbit: float
    batch_size: int = 16
    servers: str = "colocated"
    fusion: str = "none"
    overlap: bool = True
    staleness: int = 0
    delay_ms: float = 0.0
    straggler: float = 1.0
    slow_port_mbit: float = 0.0
    uplink_mbit: float = 0.0
    socket_buffer: int = 131_072

    @property
    def name(self) -> str:
        """A short name that tells cases apart."""
        short = {"parameter-server": "ps", "sufficient-factor-broadcast": "sfb", "all-reduce": "ring"}
        words = [
            self.net,
            short.get(self.strategy, self.strategy),
            f"n{self.workers}",
            f"{self.rate_mbit:g}M",
        ]
        plain = Case("", "", 0, 0)
        for field, given in asdict(self).items():
            if field not in ("net", "strategy", "workers", "rate_mbit") and given != getattr(plain, field):
                words.append(f"{field}={given:g}" if isinstance(given, float) else f"{field}={given}")
        return " ".join(words)

    def job(self, iterations: int = 8) -> Job:
        """The job for the real runner."""
        slow = (1.0,) * (self.workers - 1) + (self.straggler,) if self.straggler != 1.0 else ()
        return Job(
            NETS[self.net], self.strategy, self.workers, self.batch_size,
            servers=self.servers if self.servers == "colocated" else int(self.servers), fusion=self.fusion,
            overlap=self.overlap, staleness=self.staleness, slowdown=slow, message_delay=self.delay_ms * 1e-3,
            socket_buffer=self.socket_buffer or None, iterations=iterations * (2 if self.staleness else 1),
            warm_up=2 if self.staleness == 0 else 5 * (self.staleness + 1),  # until the fast wait for the slow
        )  # fmt: skip

    def network(self) -> NetworkSpec:
        """The network for the real runner."""
        count = self.job().processes
        wire = self.rate_mbit * 1e6 / 8
        ports = [Port(wire, wire)] * count
        if self.slow_port_mbit:
            slow = self.slow_port_mbit * 1e6 / 8
            ports[self.workers - 1] = Port(slow, slow)
        if not self.uplink_mbit:
            return NetworkSpec(tuple(ports))
        leaves = tuple(int(node >= -(-count // 2)) for node in range(count))
        return NetworkSpec(tuple(ports), leaves=leaves, uplink=self.uplink_mbit * 1e6 / 8)


PS, SFB, POSEIDON, RING = "parameter-server", "sufficient-factor-broadcast", "poseidon", "all-reduce"


def first_cases() -> Iterator[Case]:
    """About twenty: every strategy at several sizes."""
    for strategy in (PS, SFB, POSEIDON, RING):
        yield Case("cnn5", strategy, 2, 100)
        yield Case("cnn5", strategy, 4, 200)
        yield Case("cnn5", strategy, 4, 200, overlap=False)
        yield Case("vgg7", strategy, 4, 500)
    yield Case("cnn5", RING, 4, 200, fusion="all")
    yield Case("cnn5", PS, 4, 200, servers="1")
    yield Case("cnn5", PS, 4, 200, servers="2")
    yield Case("deep8", PS, 8, 200)
    yield Case("deep8", RING, 8, 200)


def more_cases() -> Iterator[Case]:
    """Sizes, rates, delays, heterogeneity, staleness."""
    for strategy in (PS, SFB, POSEIDON, RING):
        yield Case("mlp3", strategy, 3, 100)
        yield Case("mlp4b", strategy, 3, 200, batch_size=8)
        yield Case("vgg7", strategy, 2, 1000)
        yield Case("cnn5", strategy, 8, 200)
        yield Case("cnn5", strategy, 4, 200, delay_ms=5)
        yield Case("cnn5", strategy, 3, 200, straggler=1.5)
        yield Case("cnn5", strategy, 4, 200, slow_port_mbit=100)
        yield Case("vgg7", strategy, 4, 500, overlap=False)
    for strategy in (PS, SFB, POSEIDON):
        yield Case("cnn5", strategy, 4, 200, batch_size=64)
        yield Case("cnn5", strategy, 4, 100, uplink_mbit=100)
    yield Case("cnn5", RING, 4, 100, uplink_mbit=100)
    yield Case("vgg7", RING, 8, 200, fusion="all")
    yield Case("vgg7", RING, 4, 500, fusion="all", delay_ms=5)
    yield Case("vgg7", PS, 4, 500, servers="1")
    yield Case("cnn5", PS, 4, 200, servers="2", socket_buffer=0)
    yield Case("cnn5", PS, 4, 200, socket_buffer=0)
    yield Case("mlp3", PS, 3, 100, servers="1", delay_ms=5)
    for staleness in (1, 3):
        yield Case("cnn5", PS, 3, 200, staleness=staleness, straggler=1.5)
        yield Case("cnn5", PS, 4, 200, staleness=staleness)


def last_cases() -> Iterator[Case]:
    """Short steps, where latency and compute matter more than bytes; stronger stragglers; mixed conditions."""
    for strategy in (PS, SFB, POSEIDON, RING):
        yield Case("mlp3", strategy, 4, 500, batch_size=8, delay_ms=5)
        yield Case("mlp4b", strategy, 8, 100, batch_size=8)
        yield Case("vgg7", strategy, 3, 1000, straggler=2)
        yield Case("cnn5", strategy, 4, 200, overlap=False, delay_ms=5)
    for strategy in (PS, RING):
        yield Case("deep8", strategy, 4, 1000)
        yield Case("deep8", strategy, 4, 200, uplink_mbit=200)
    yield Case("deep8", RING, 4, 500, fusion="all", delay_ms=5)
    yield Case("mlp4b", PS, 6, 200, servers="3")
    yield Case("mlp4b", PS, 4, 200, servers="1", straggler=1.5)
    yield Case("deep8", PS, 4, 1000, staleness=2, straggler=2)


def wide_cases() -> Iterator[Case]:
    """Up to sixteen nodes, two more nets, and heterogeneity under every strategy."""
    for strategy in (PS, SFB, POSEIDON, RING):
        yield Case("mlp3", strategy, 16, 100, batch_size=8)
        yield Case("mlp4b", strategy, 16, 100, batch_size=4)
        yield Case("mlp3", strategy, 6, 200, batch_size=32)
        yield Case("vgg7", strategy, 6, 500, batch_size=64)
        yield Case("cnn5", strategy, 2, 500)
        yield Case("cnn5", strategy, 3, 1000, delay_ms=1)
        yield Case("head3", strategy, 4, 500)
        yield Case("head3", strategy, 4, 500, batch_size=160)
        yield Case("head3", strategy, 4, 500, uplink_mbit=500)
        yield Case("mlp4b", strategy, 6, 200, batch_size=8, uplink_mbit=200)
        yield Case("mlp3", strategy, 4, 200, slow_port_mbit=100)
        yield Case("vgg7", strategy, 3, 1000, slow_port_mbit=500)
        yield Case("mlp4b", strategy, 4, 1000, straggler=1.25)
        yield Case("head3", strategy, 3, 500, straggler=1.5, delay_ms=2)
        yield Case("mlp3", strategy, 3, 500, overlap=False)
    for strategy in (PS, RING):
        yield Case("deep8", strategy, 16, 100)
        yield Case("cnn5", strategy, 16, 200)
        yield Case("tower12", strategy, 4, 200)
        yield Case("tower12", strategy, 6, 500, delay_ms=2)
        yield Case("tower12", strategy, 4, 500, overlap=False)
    yield Case("tower12", RING, 4, 200, fusion="all")
    yield Case("tower12", RING, 8, 200, fusion="all", overlap=False)
    yield Case("tower12", PS, 4, 500, servers="2")
    yield Case("tower12", PS, 4, 500, staleness=1, straggler=1.5)
    yield Case("head3", PS, 3, 500, staleness=2)


def slow_cases() -> Iterator[Case]:
    """Twelve and sixteen nodes at half the rate: at 100 Mbit/s their messages take two processors more time than is trusted."""
    for strategy in (PS, SFB, POSEIDON, RING):
        yield Case("mlp3", strategy, 16, 50, batch_size=8)
        yield Case("mlp4b", strategy, 12, 50, batch_size=4)
    for strategy in (PS, RING):
        yield Case("deep8", strategy, 16, 50)


def all_cases() -> list[Case]:
    """Every case of the campaign, no two alike."""
    return list(dict.fromkeys([*first_cases(), *more_cases(), *last_cases(), *wide_cases(), *slow_cases()]))
