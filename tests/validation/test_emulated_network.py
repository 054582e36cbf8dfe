"""The emulated network comes up, shapes, and leaves nothing behind."""

from __future__ import annotations

import subprocess

import pytest

from validation.network import NetworkSpec, Port, emulated_network, missing_requirements, uniform
from validation.network import emulated as module
from validation.runner import Job, RunLayer, awake_processors, run_job

PROBLEM = missing_requirements()
needs_network = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM or "none")


def namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line}


def streamed(spec: NetworkSpec, sender_bytes: int = 400_000) -> float:
    """Payload bytes/s of one stream from the first node to the second."""
    settings = {
        "probe": "stream",
        "pattern": "one",
        "bytes": str(sender_bytes),
        "count": "2",
        "nodes": str(len(spec.ports)),
    }
    job = Job((RunLayer("none", (1,)),), "parameter-server", len(spec.ports), extra=settings)
    with emulated_network(spec) as network, awake_processors():
        found = run_job(job, network, timeout=60).processes[0]["probe"]
    return found["bytes"] / found["seconds"]


@needs_network
def test_a_network_that_failed_leaves_no_namespace_behind() -> None:
    made: set[str] = set()
    with pytest.raises(KeyError), emulated_network(uniform(2, 1e6)) as network:
        made = {*network.namespaces, *network.switches}
        assert made <= namespaces()
        raise KeyError("something went wrong inside")
    assert made and not made & namespaces()


@needs_network
def test_two_networks_stand_side_by_side() -> None:
    with emulated_network(uniform(2, 1e6)) as one, emulated_network(uniform(3, 1e6)) as other:
        assert not set(one.namespaces) & set(other.namespaces)


@needs_network
def test_the_slower_of_two_ports_sets_the_rate_in_each_direction() -> None:
    spec = NetworkSpec((Port(up=2e6, down=20e6), Port(up=20e6, down=20e6)))
    assert 1.6e6 < streamed(spec) < 2.05e6


@needs_network
def test_a_slow_uplink_sets_the_rate_between_two_switches() -> None:
    spec = NetworkSpec((Port(20e6, 20e6),) * 2, leaves=(0, 1), uplink=2e6)
    assert 1.6e6 < streamed(spec) < 2.05e6


def test_without_root_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    assert "needs root" in missing_requirements()


def test_without_iproute2_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    monkeypatch.setattr(module.shutil, "which", lambda tool: None)
    assert "apt-get install iproute2" in missing_requirements()


def test_ports_without_a_rate_and_leaves_without_an_uplink_are_refused() -> None:
    with pytest.raises(ValueError, match="rate above 0"):
        uniform(2, 0.0)
    with pytest.raises(ValueError, match="uplink"):
        NetworkSpec((Port(1.0, 1.0),) * 2, leaves=(0, 1))
