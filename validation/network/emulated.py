"""Build the network with `ip` and `tc`, and take it down again whatever happens.

Every node is a network namespace; its only line is a veth pair to a bridge in a namespace of its own. A token
bucket on the node's end shapes what leaves it, one on the bridge's end what enters it. Nothing of the host's
own network is touched, and no system-wide setting is changed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .spec import SEGMENT, NetworkSpec


class NetworkError(RuntimeError):
    """The emulated network could not be made; the message says what is missing."""


@dataclass(frozen=True)
class Network:
    """A network that stands: the namespace and address of every node, and how to look at its counters."""

    spec: NetworkSpec
    namespaces: tuple[str, ...]
    addresses: tuple[str, ...]
    switches: tuple[str, ...] = field(default=())

    def command(self, node: int) -> list[str]:
        """The words that, put before a command, run it on `node`."""
        return ["ip", "netns", "exec", self.namespaces[node]]

    def drops(self) -> int:
        """Packets that the token buckets of all ports have dropped so far."""
        total = 0
        for name in (*self.namespaces, *self.switches):
            text = _run(["tc", "-n", name, "-s", "qdisc", "show"])
            total += sum(int(part.split(",")[0]) for part in text.split("(dropped ")[1:])
        return total

    def wire_bytes(self) -> int:
        """Bytes of all frames that the nodes have sent so far, headers and acknowledgements included."""
        texts = [_run(["tc", "-n", name, "-s", "qdisc", "show", "dev", "eth0"]) for name in self.namespaces]
        return sum(int(text.split("Sent ")[1].split()[0]) for text in texts)

    def retransmits(self) -> int:
        """TCP segments sent again by all nodes so far."""
        return sum(
            _retransmitted(_run([*self.command(node), "cat", "/proc/net/snmp"]))
            for node in range(len(self.namespaces))
        )


def missing_requirements() -> str:
    """Return what stands in the way of an emulated network in words, or '' when nothing does.

    Needs root, and the commands `ip` and `tc` (package iproute2).
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "an emulated network needs root (network namespaces); the runner falls back to paced loopback"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the command {tool!r} is missing; install it with: apt-get install iproute2"
    probe = f"pse-probe-{secrets.token_hex(2)}"
    try:
        _run(["ip", "netns", "add", probe])
        _batch("tc", ["qdisc add dev lo root tbf rate 8mbit burst 4000 limit 8000"], probe)
    except NetworkError as error:
        return f"the system allows no network namespace or token bucket: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return ""


@contextmanager
def emulated_network(spec: NetworkSpec) -> Iterator[Network]:
    """Make the network of `spec` for the length of a `with` block.

    Raises
    ------
    NetworkError
        Root, `ip` or `tc` is missing, or the kernel refuses.
    """
    problem = missing_requirements()
    if problem:
        raise NetworkError(problem)
    prefix = f"pse-{secrets.token_hex(3)}"
    nodes = tuple(f"{prefix}-n{i}" for i in range(len(spec.ports)))
    switches = tuple(f"{prefix}-s{i}" for i in range(spec.switches))
    network = Network(spec, nodes, tuple(f"10.77.0.{i + 1}" for i in range(len(nodes))), switches)
    try:
        _build(network)
        yield network
    finally:
        for name in (*nodes, *switches):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _build(network: Network) -> None:
    spec = network.spec
    _batch("ip", [f"netns add {name}" for name in (*network.namespaces, *network.switches)])
    for switch in network.switches:
        _batch("ip", ["link set lo up", "link add bridge0 type bridge", "link set bridge0 up"], switch)
    lines = []
    for node, name in enumerate(network.namespaces):
        switch = network.switches[spec.leaf_of(node)]
        lines.append(f"link add eth0 netns {name} type veth peer name port{node} netns {switch}")
    if len(network.switches) == 2:
        first, second = network.switches
        lines.append(f"link add uplink netns {first} type veth peer name uplink netns {second}")
    _batch("ip", lines)
    for node, name in enumerate(network.namespaces):
        switch = network.switches[spec.leaf_of(node)]
        address = f"addr add {network.addresses[node]}/24 dev eth0"
        _batch(
            "ip",
            ["link set lo up", f"link set eth0 gso_max_size {SEGMENT}", address, "link set eth0 up"],
            name,
        )
        _attach(switch, f"port{node}")
        _shape(name, "eth0", spec.ports[node].up, spec)
        _shape(switch, f"port{node}", spec.ports[node].down, spec)
    if len(network.switches) == 2:
        for switch in network.switches:
            _attach(switch, "uplink")
            _shape(switch, "uplink", spec.uplink or 0.0, spec)
    for name in (*network.namespaces, *network.switches):
        _steer(name)


def _attach(switch: str, device: str) -> None:
    _batch(
        "ip", [f"link set {device} gso_max_size {SEGMENT} master bridge0", f"link set {device} up"], switch
    )


def _shape(namespace: str, device: str, rate: float, spec: NetworkSpec) -> None:
    bits = round(rate * 8)
    _batch(
        "tc",
        [f"qdisc add dev {device} root tbf rate {bits}bit burst {spec.burst(rate)} limit {spec.queue}"],
        namespace,
    )


def _steer(namespace: str) -> None:
    """Receive packet steering on every veth: keeps the segments of a connection in order."""
    mask = format((1 << (os.cpu_count() or 1)) - 1, "x")
    script = f"for q in /sys/class/net/*/queues/rx-*/rps_cpus; do echo {mask} > $q || true; done"
    _run(["ip", "netns", "exec", namespace, "sh", "-c", script])


def _batch(tool: str, lines: list[str], namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    _run([tool, *where, "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise NetworkError(
            f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()} (input: {text!r})"
        )
    return done.stdout


def _retransmitted(snmp: str) -> int:
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])
