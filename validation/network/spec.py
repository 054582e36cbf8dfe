"""What an emulated network looks like: a port per node, one switch or two with a line between them."""

from __future__ import annotations

from dataclasses import dataclass

#: Share of the wire that carries payload: 1448 bytes in each 1514-byte frame (TCP with time stamps).
PAYLOAD_SHARE = 1448 / 1514

#: Largest segment a host hands down, bytes, and the same as frames on the wire.
SEGMENT = 16_400
WIRE_SEGMENT = SEGMENT // 1448 * 1514


@dataclass(frozen=True)
class Port:
    """Wire rates of one node's port, bytes/s: `up` leaves the node, `down` enters it."""

    up: float
    down: float


@dataclass(frozen=True)
class NetworkSpec:
    """Ports and switches.

    Parameters
    ----------
    ports : one per node.
    burst_time : seconds of the port's rate that a token bucket holds beside one segment; it must exceed the lateness
        of the kernel's timers or tokens are lost. After idle time a full bucket passes unshaped.
    queue : bytes a port's queue holds before it drops.
    leaves : index of the leaf switch (0 or 1) of every node, or () for a single switch.
    uplink : wire bytes/s of the line between the two leaf switches, each direction; needed with two leaves.
    """

    ports: tuple[Port, ...]
    burst_time: float = 4e-4
    queue: int = 32_000_000
    leaves: tuple[int, ...] = ()
    uplink: float | None = None

    def __post_init__(self) -> None:
        if not self.ports or any(min(p.up, p.down) <= 0 for p in self.ports):
            raise ValueError("every port needs a rate above 0 bytes/s in both directions")
        if self.leaves and (len(self.leaves) != len(self.ports) or not set(self.leaves) <= {0, 1}):
            raise ValueError(f"leaves={self.leaves} must name 0 or 1 for each of the {len(self.ports)} nodes")
        if len(set(self.leaves)) == 2 and not self.uplink:
            raise ValueError("two leaf switches need the rate of their uplink, in bytes/s")

    @property
    def switches(self) -> int:
        """How many leaf switches there are."""
        return 2 if len(set(self.leaves)) == 2 else 1

    def burst(self, rate: float) -> int:
        """Bytes in the token bucket of a port of `rate` bytes/s."""
        return WIRE_SEGMENT + round(rate * self.burst_time)

    def leaf_of(self, node: int) -> int:
        """The leaf switch of a node."""
        return self.leaves[node] if self.switches == 2 else 0


def uniform(nodes: int, rate: float, **changes: object) -> NetworkSpec:
    """Return `nodes` equal ports of `rate` bytes/s in both directions."""
    return NetworkSpec(ports=(Port(rate, rate),) * nodes, **changes)  # type: ignore[arg-type]
