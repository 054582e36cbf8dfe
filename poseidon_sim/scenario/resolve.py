"""From a checked scenario mapping to the values the simulation takes: units read, names looked up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from poseidon_sim.cluster import NODE_TEMPLATES, Cluster, Gpu, Host, Input, Network, NodeGroup
from poseidon_sim.cluster.catalog import gpu as catalog_gpu
from poseidon_sim.cluster.catalog import link as catalog_link
from poseidon_sim.cluster.catalog import list_links
from poseidon_sim.errors import InputError, nearest, unknown_name
from poseidon_sim.metrics.convergence import Convergence, read_curve
from poseidon_sim.scenario.schema import ClusterSpec, ConvergenceSpec, GpuSpec, GroupSpec, HostSpec, InputSpec, NetworkSpec
from poseidon_sim.strategy.base import Strategy
from poseidon_sim.strategy.registry import strategy_class
from poseidon_sim.units import parse_flops, parse_rate, parse_share, parse_size, parse_time
from poseidon_sim.workload.layer import ELEMENT_BYTES, Workload
from poseidon_sim.workload.load import load_model

NODE_ALIASES = {"nvlink": "nvlink-ring", "pcie": "pcie"}


def _maybe(parse: Any, value: object, name: str, **options: object) -> float | None:
    return None if value is None else float(parse(value, name, **options))


def workload(model: str | Mapping[str, Any]) -> Workload:
    """Load the model by name or path, with changes ({name: vgg19, single_gpu_throughput: 35.5}), or inline."""
    if isinstance(model, str):
        return load_model(model)
    if "layers" in model or "transformer" in model:
        return load_model(model)
    rest = {key: value for key, value in model.items() if key != "name"}
    if not isinstance(model.get("name"), str):
        raise InputError("model has neither a name nor layers; write model: vgg19, or give name and layers")
    return load_model(model["name"], **rest)


def cluster(spec: ClusterSpec) -> Cluster:
    """Build the cluster."""
    template, lanes = spec.node or "pcie", None
    if isinstance(spec.pcie, str) and not spec.pcie[:1].isdigit():
        template = spec.pcie
    elif spec.pcie is not None:
        lanes = parse_rate(spec.pcie, "cluster.pcie")
    template = NODE_ALIASES.get(template, template)
    if template not in NODE_TEMPLATES:
        raise unknown_name(
            "node template in cluster.pcie (or cluster.node)", template, [*NODE_TEMPLATES, "nvlink"]
        )
    groups = tuple(_group(g, f"cluster.groups[{i}]") for i, g in enumerate(spec.groups or []))
    return Cluster(
        nodes=spec.nodes, gpus_per_node=spec.gpus_per_node, gpu=_gpu(spec.gpu, "cluster.gpu"),
        network=_network(spec.network, spec.nodes), node=template, pcie=lanes,
        peer_latency=_maybe(parse_time, spec.peer_latency, "cluster.peer_latency", allow_zero=True) or 0.0,
        socket_bandwidth=_maybe(parse_rate, spec.socket_bandwidth, "cluster.socket_bandwidth"),
        host=_host(spec.host), groups=groups,
        jitter=_maybe(parse_share, spec.jitter, "cluster.jitter", allow_zero=True) or 0.0, seed=spec.seed, name=spec.name,
        gpu_spread=_maybe(parse_share, spec.gpu_spread, "cluster.gpu_spread", allow_zero=True),
    )  # fmt: skip


def _gpu(spec: str | GpuSpec | None, name: str) -> Gpu | None:
    if spec is None or isinstance(spec, str):
        return None if spec is None else catalog_gpu(spec)
    base = Gpu(name=spec.name)
    given: dict[str, object] = {}
    if spec.flops is not None:
        rates = spec.flops if isinstance(spec.flops, Mapping) else {"fp32": spec.flops}
        for precision in rates:
            if precision not in ELEMENT_BYTES:
                raise unknown_name(f"precision in {name}.flops", precision, ELEMENT_BYTES)
        given["flops"] = {p: parse_flops(rate, f"{name}.flops") for p, rate in rates.items()}
    if spec.efficiency is not None:
        shares = spec.efficiency if isinstance(spec.efficiency, Mapping) else {"default": spec.efficiency}
        given["efficiency"] = {str(k): parse_share(v, f"{name}.efficiency") for k, v in shares.items()}
    for field, parse in (
        ("memory_bandwidth", parse_rate), ("memory", parse_size), ("memory_efficiency", parse_share),
        ("launch_overhead", parse_time), ("peer_bandwidth", parse_rate),
    ):  # fmt: skip
        if getattr(spec, field) is not None:
            options = {"allow_zero": True} if field == "launch_overhead" else {}
            given[field] = parse(getattr(spec, field), f"{name}.{field}", **options)
    if spec.pcie is not None:
        given["pcie_bandwidth"] = parse_rate(spec.pcie, f"{name}.pcie")
    return replace(base, **given)  # type: ignore[arg-type]


def _group(spec: GroupSpec, name: str) -> NodeGroup:
    return NodeGroup(
        nodes=spec.nodes, gpu=_gpu(spec.gpu, f"{name}.gpu"), slowdown=spec.slowdown,
        bandwidth=_maybe(parse_rate, spec.bandwidth, f"{name}.bandwidth"), batch_size=spec.batch_size,
    )  # fmt: skip


def _host(spec: HostSpec | None) -> Host:
    if spec is None:
        return Host()
    rates = {
        field: _maybe(parse_rate, getattr(spec, field), f"cluster.host.{field}")
        for field in ("copy_bandwidth", "reduce_bandwidth", "channel_bandwidth", "memory_bandwidth")
    }
    return Host(
        **rates,
        channels=spec.channels,
        channel_sharing=_points(spec.channel_sharing, "cluster.host.channel_sharing"),
        send_buffer=_maybe(parse_size, spec.send_buffer, "cluster.host.send_buffer"),
        input=_input(spec.input),
    )


def _input(spec: InputSpec | None) -> Input | None:
    if spec is None:
        return None
    where = "cluster.host.input"
    return Input(
        read_bandwidth=_maybe(parse_rate, spec.read_bandwidth, f"{where}.read_bandwidth"),
        sample_size=_maybe(parse_size, spec.sample_size, f"{where}.sample_size") or 0.0,
        decode_time=_maybe(parse_time, spec.decode_time, f"{where}.decode_time", allow_zero=True) or 0.0,
        copied_size=_maybe(parse_size, spec.copied_size, f"{where}.copied_size") or 0.0,
        prefetch=spec.prefetch,
    )


def _network(spec: str | NetworkSpec | None, nodes: int) -> Network | None:
    if spec is None:
        if nodes > 1:
            raise InputError(
                f"cluster.nodes={nodes} but no cluster.network; write network: 10 Gbit/s, or {{bandwidth: ...}}"
            )
        return None
    if isinstance(spec, str):
        spec = (
            NetworkSpec(bandwidth=spec)
            if spec[:1].isdigit() and spec not in list_links()
            else NetworkSpec(link=spec)
        )
    where = "cluster.network"
    base = catalog_link(spec.link) if spec.link is not None else None
    if spec.bandwidth is None and base is None:
        raise InputError(f"{where}.bandwidth is missing; write bandwidth: 10 Gbit/s, or link: 10gbe-tcp")
    bandwidth = (
        parse_rate(spec.bandwidth, f"{where}.bandwidth")
        if base is None or spec.bandwidth is not None
        else base.bandwidth
    )
    latency = _maybe(parse_time, spec.latency, f"{where}.latency", allow_zero=True)
    efficiency = _maybe(parse_share, spec.efficiency, f"{where}.efficiency")
    network = Network(
        bandwidth=bandwidth,
        latency=latency if latency is not None else (base.latency if base else 0.0),
        efficiency=efficiency if efficiency is not None else (base.efficiency if base else 1.0),
        message_overhead=_maybe(
            parse_time, spec.message_overhead, f"{where}.message_overhead", allow_zero=True
        )
        or 0.0,
        collective_overhead=_maybe(
            parse_time, spec.collective_overhead, f"{where}.collective_overhead", allow_zero=True
        )
        or 0.0,
        oversubscription=spec.oversubscription or 1.0,
        nodes_per_leaf=spec.nodes_per_leaf,
        incast=_points(spec.incast, f"{where}.incast"),
        pair_bandwidth=_matrix(spec.pair_bandwidth, nodes, f"{where}.pair_bandwidth"),
        catalog=efficiency is None and base is not None,
    )
    contention = _maybe(parse_share, spec.contention, f"{where}.contention") or 0.0
    return network if spec.jobs is None else network.shared_by(spec.jobs, contention)


def _points(points: list[tuple[float, float]] | None, name: str) -> tuple[tuple[float, float], ...]:
    for flows, share in points or ():
        if not (math.isfinite(flows) and flows >= 1 and 0 < share <= 1):
            raise InputError(
                f"{name}=[{flows}, {share}]: flows must be at least 1 and the share above 0 and at most 1"
            )
    if points and [p[0] for p in points] != sorted({p[0] for p in points}):
        raise InputError(f"{name}: the numbers of flows must rise from point to point")
    return tuple(points or ())


def _matrix(rows: list[list[Any]] | None, nodes: int, name: str) -> tuple[tuple[float, ...], ...] | None:
    if rows is None:
        return None
    if len(rows) != nodes or any(len(row) != nodes for row in rows):
        raise InputError(
            f"{name} must have {nodes} rows of {nodes} rates, one for each ordered pair of nodes"
        )
    return tuple(
        tuple(math.inf if i == j else parse_rate(rate, f"{name}[{i}][{j}]") for j, rate in enumerate(row))
        for i, row in enumerate(rows)
    )


#: ways to say how many iterations training needs: the keys each takes, and the basis it has when none is stated
_WAYS = (
    (("min_steps", "critical_batch"), "assumed"),
    (("iterations",), "given"),
    (("epochs", "dataset_size"), "given"),
    (("curve",), "measured"),
)


def convergence(spec: ConvergenceSpec | None) -> Convergence | None:
    """Build the iterations to the target; exactly one way to say them may be taken."""
    if spec is None:
        return None
    taken = [(keys, basis) for keys, basis in _WAYS if any(getattr(spec, key) is not None for key in keys)]
    if len(taken) != 1:
        named = ", ".join(key for keys, _ in taken for key in keys if getattr(spec, key) is not None)
        wrong = f"{named} are given, which is more than one way to say it" if named else "says no iterations"
        raise InputError(
            f"convergence: {wrong}; give min_steps and critical_batch, or iterations, or epochs and dataset_size, or curve"
        )
    (keys, basis), more = taken[0], spec.model_dump(include=_SHARED)
    for key in keys:
        if getattr(spec, key) is None:
            raise InputError(f"convergence.{key} is missing; {' and '.join(keys)} belong together")
    more["basis"] = spec.basis or basis
    if spec.min_steps is not None and spec.critical_batch is not None:
        return Convergence(spec.min_steps, spec.min_steps * spec.critical_batch, **more)
    if spec.epochs is not None and spec.dataset_size is not None:
        return Convergence(min_samples=spec.epochs * spec.dataset_size, **more)
    if spec.iterations is not None:
        return Convergence(spec.iterations, **more)
    curve = read_curve(spec.curve) if isinstance(spec.curve, str) else tuple(spec.curve or ())
    return Convergence(curve=curve, **more)


_SHARED = {"staleness", "staleness_penalty", "local_steps_exponent", "sparsity_exponent", "factor", "source", "target"}


def strategy(given: str | Mapping[str, Any]) -> Strategy:
    """Build the strategy from its name or a mapping {name: ..., setting: ...}."""
    settings = {"name": given} if isinstance(given, str) else dict(given)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise InputError(f"strategy.name={name!r} must be a name; see `poseidon-sim list strategies`")
    kind: Any = strategy_class(name)
    known, hints = _settings_of(kind)
    values = {}
    for key, value in settings.items():
        if key not in known:
            close = nearest(str(key), known)
            hint = f"; did you mean {close!r}?" if close else "."
            raise InputError(
                f"strategy.{key}: {name} has no such setting{hint} It has: {', '.join(sorted(known)) or 'none'}"
            )
        default = known[key].default
        values[key] = _setting(
            f"strategy.{key}", key, value, hints[key], None if default is MISSING else default
        )
    built: Strategy = kind(**values)
    return built


@lru_cache(maxsize=256)
def _settings_of(kind: Any) -> tuple[dict[str, Field[Any]], dict[str, Any]]:
    """Return the fields of a strategy and their types."""
    return {f.name: f for f in fields(kind)}, get_type_hints(kind)


def _setting(path: str, key: str, value: object, hint: object, default: object) -> object:
    """Read one setting by the type its dataclass field states."""
    if key.endswith("_size") and value is not None:
        return math.inf if value in ("inf", math.inf) else parse_size(value, path, allow_zero=True)
    if key.endswith("_time") and value is not None:
        return parse_time(value, path, allow_zero=True)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InputError(f"{path}={value!r} must be true or false")
        return value
    text = str(hint)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if "float" in text and isinstance(value, str) and value.lower() in ("inf", "infinity"):
        return math.inf
    if number and ("int" in text or "float" in text) and not (isinstance(value, float) and math.isnan(value)):
        if "float" not in text and int(value) != value:  # type: ignore[call-overload]
            raise InputError(f"{path}={value!r} must be a whole number")
        return value
    if isinstance(value, str) and ("str" in text or hint is str or value in get_args(hint)):
        return value
    if value is None and "None" in text:
        return None
    if value is None and hint is str:
        return "none"
    choices = ", ".join(str(each) for each in get_args(hint) if isinstance(each, str))
    plain = {"<class 'str'>": "text", "<class 'float'>": "a number", "<class 'int'>": "a whole number"}
    wanted = f"one of {choices}" if choices else plain.get(text, text)
    raise InputError(f"{path}={value!r} must be {wanted}")
