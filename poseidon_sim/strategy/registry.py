"""Strategies by name: ours, and a stranger's through the entry-point group `poseidon_sim.strategies`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from poseidon_sim.errors import unknown_name
from poseidon_sim.strategy.base import Strategy

_OURS = {
    "parameter-server": "parameter_server:ParameterServer",
    "sufficient-factor-broadcast": "sufficient_factor:SufficientFactorBroadcast",
    "poseidon": "poseidon:Poseidon",
    "adam": "adam:Adam",
    "one-bit": "one_bit:OneBit",
    "all-reduce": "all_reduce:AllReduce",
    "mg-wfbp": "merged_gradient:MergedGradient",
    "ddp": "ddp:Ddp",
    "horovod": "horovod:Horovod",
    "byteps": "byteps:BytePs",
    "backup-workers": "backup_workers:BackupWorkers",
    "byte-scheduler": "byte_scheduler:ByteScheduler",
    "fire-caffe": "fire_caffe:FireCaffe",
    "fsdp": "fsdp:Fsdp",
    "local-sgd": "local_sgd:LocalSgd",
    "megatron": "megatron:Megatron",
    "multi-stream": "multi_stream:MultiStream",
    "par-dnn": "par_dnn:ParDnn",
}


@cache
def _plugins() -> dict[str, type[Strategy]]:
    return {point.name: point.load() for point in entry_points(group="poseidon_sim.strategies")}


def list_strategies() -> tuple[str, ...]:
    """Return the names of all registered strategies, plug-ins included."""
    return tuple(sorted({*_OURS, *_plugins()}))


def strategy_class(name: str) -> type[Strategy]:
    """Return the class of the strategy called `name`; raise UnknownNameError with the nearest known name."""
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        found: type[Strategy] = getattr(import_module(f"poseidon_sim.strategy.{module}"), attribute)
        return found
    if name in _plugins():
        return _plugins()[name]
    raise unknown_name("strategy", name, list_strategies())
