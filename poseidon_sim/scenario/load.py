"""Load a scenario from a file, a mapping or standard input, and say in one line what is wrong with it."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from poseidon_sim.cluster import Cluster
from poseidon_sim.errors import InputError, PoseidonSimError, UnreadableFileError, nearest
from poseidon_sim.metrics.convergence import Convergence
from poseidon_sim.scenario import resolve
from poseidon_sim.scenario.overrides import SHORT, apply, whole_path
from poseidon_sim.scenario.schema import NetworkSpec, ScenarioSpec
from poseidon_sim.strategy.base import Strategy
from poseidon_sim.units import parse_money
from poseidon_sim.workload.layer import Workload
from poseidon_sim.workload.load import read_yaml

MAX_BYTES = 5_000_000


@dataclass(frozen=True, eq=False)
class Scenario:
    """One question: what to train, on what, and how. `raw` is the mapping it came from, overrides included.

    `batch_size` is per GPU (already divided where the scenario gives it for the whole job: below 1 where GPUs share a sample);
    prices are per hour in the user's currency.
    """

    workload: Workload
    cluster: Cluster
    strategy: Strategy
    batch_size: float
    scaling: str
    price_per_hour: float | None
    warnings: tuple[str, ...]
    raw: dict[str, Any]
    source: str = ""
    micro_batch_size: int | None = None
    convergence: Convergence | None = None

    @property
    def currency(self) -> str:
        """The currency as the scenario spells it: what its price leaves without the figure and the hour."""
        given = self.raw.get("price_per_gpu_hour", self.raw.get("price_per_node_hour"))
        return re.sub(r"[\d.,+\-\s]|/\s*(h|hr|hour)s?$", "", str(given)) if isinstance(given, str) else ""

    @property
    def network_name(self) -> str:
        """The network as the scenario spells it."""
        given = self.raw.get("cluster", {}).get("network")
        return str(given.get("bandwidth", given.get("link"))) if isinstance(given, dict) else str(given)


def load_scenario(scenario: str | Path | Mapping[str, Any], /, **changes: object) -> Scenario:
    """Load a scenario file (YAML or TOML; '-' is standard input) or mapping, with dotted changes applied.

    Raises
    ------
    UnreadableFileError : the file is missing or is not YAML or TOML.
    InputError : anything in it is wrong; the message names file, line, key, what was given, the rule, the next move.

    Examples
    --------
    >>> s = load_scenario({"model": "vgg19", "cluster": {"nodes": 2, "gpu": "titan-x-maxwell", "network": "10 Gbit/s"},
    ...                    "strategy": "poseidon"}, nodes=8)
    >>> s.cluster.nodes, s.batch_size
    (8, 32)
    """
    if isinstance(scenario, Mapping):
        return _build(dict(scenario), changes, "")
    text, name = _read(scenario)
    raw = _parse(text, name)
    if not isinstance(raw, dict):
        raise InputError(f"{name}: a scenario is a mapping of keys (model, cluster, strategy, ...), not {_kind(raw)}")
    try:
        return _build(raw, changes, name)
    except InputError as error:
        given = _change_behind(str(error), changes)
        if given is not None:
            raise type(error)(f"{name} with {given}: {error}") from None
        line = _line_of(text, str(error)) if not name.endswith(".toml") else None
        where = f"{name}:{line}" if line else name
        raise type(error)(f"{where}: {error}") from None


def _read(path: str | Path) -> tuple[str, str]:
    name = "<stdin>" if str(path) == "-" else str(path)
    try:
        blob = sys.stdin.buffer.read(MAX_BYTES + 1) if str(path) == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(f"{name}: cannot be read ({reason}); give the path of a scenario file") from None
    if len(blob) > MAX_BYTES:
        raise UnreadableFileError(f"{name}: larger than {MAX_BYTES} bytes, which no scenario is")
    try:
        return blob.decode("utf-8"), name
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{name}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def _parse(text: str, name: str) -> object:
    if name.endswith(".toml"):
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise UnreadableFileError(f"{name}: is not TOML: {error}") from None
    return read_yaml(text, name)


def _kind(value: object) -> str:
    return {"NoneType": "an empty file", "list": "a list", "str": "one line of text"}.get(type(value).__name__, type(value).__name__)


def _build(raw: dict[str, Any], changes: Mapping[str, object], source: str) -> Scenario:
    changed = apply(raw, changes)
    try:
        spec = ScenarioSpec.model_validate(changed)
    except ValidationError as error:
        raise InputError(_first_mistake(error)) from None
    except RecursionError:
        raise InputError("the scenario is nested too deeply; a scenario has at most a few levels") from None
    try:
        workload = resolve.workload(spec.model)
        cluster = resolve.cluster(spec.cluster)
        strategy = resolve.strategy(spec.strategy)
        price = _price(spec, cluster)
        convergence = resolve.convergence(spec.convergence)
    except PoseidonSimError:
        raise
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"the scenario cannot be read: {error}") from None
    batch = _batch_size(spec, workload, cluster)
    beside = raw.get("batch_size")  # times stand in a file beside a batch, and keep it when a change names another
    workload = workload.timed_at(beside if isinstance(beside, int) else batch)
    return Scenario(
        workload, cluster, strategy, batch, spec.scaling, price, tuple(_warnings(spec, cluster, workload, batch)), changed, source,
        spec.micro_batch_size, convergence,
    )


def _batch_size(spec: ScenarioSpec, workload: Workload, cluster: Cluster) -> float:
    """Return the samples per GPU and iteration; whole unless `global_batch_size` does not divide over the GPUs."""
    if spec.global_batch_size is not None:
        if spec.batch_size is not None:
            raise InputError("batch_size (per GPU) and global_batch_size (whole job) are both given; keep one")
        if spec.scaling == "strong":
            raise InputError("scaling: strong says that batch_size is of the whole job, as global_batch_size does; keep one of them")
        share = spec.global_batch_size / cluster.num_gpus
        return int(share) if share == int(share) else share
    batch = spec.batch_size or workload.batch_size
    if batch is None:
        raise InputError(f"batch_size is missing and model {workload.name!r} has no usual one; write batch_size: 32")
    return _divided(batch, cluster.num_gpus) if spec.scaling == "strong" else batch


def _price(spec: ScenarioSpec, cluster: Cluster) -> float | None:
    """Return the price of the whole cluster per hour."""
    if spec.price_per_gpu_hour is not None and spec.price_per_node_hour is not None:
        raise InputError("price_per_gpu_hour and price_per_node_hour are both given; keep one")
    if spec.price_per_gpu_hour is not None:
        return parse_money(spec.price_per_gpu_hour, "price_per_gpu_hour") * cluster.num_gpus
    if spec.price_per_node_hour is not None:
        return parse_money(spec.price_per_node_hour, "price_per_node_hour") * cluster.nodes
    return None


def _divided(batch: int, gpus: int) -> int:
    if batch % gpus:
        low = batch // gpus * gpus
        near = f"{low} or {low + gpus}" if low else str(gpus)
        raise InputError(f"batch_size={batch} does not divide over {gpus} GPUs (scaling: strong); use {near}")
    return batch // gpus


def _warnings(spec: ScenarioSpec, cluster: Cluster, workload: Workload, batch: float) -> list[str]:
    """Name the keys that cannot change the answer, and what is taken for granted."""
    found = []
    known = workload.single_gpu_batch_size
    if workload.has_times and known is not None and (known != batch or spec.global_batch_size is not None):
        found.append(
            f"layer times of {workload.name} are taken as those of {known:g} samples and grow evenly with the batch; "
            "give model.single_gpu_batch_size if they were measured with others"
        )
    if workload.has_all_times and any(group.gpu for group in cluster.groups):
        found.append("cluster.groups: gpu has no effect where the layers' times are given; use slowdown")
    if spec.scaling == "strong" and cluster.num_gpus > 1 and workload.single_gpu_throughput and not workload.single_gpu_batch_size:
        found.append("model.single_gpu_throughput is taken to hold at every batch per GPU; give single_gpu_batch_size with it")
    network = spec.cluster.network
    if cluster.nodes == 1 and network is not None:
        found.append("cluster.network has no effect: there is one node")
    elif isinstance(network, NetworkSpec):
        if network.contention is not None and (network.jobs or 1) == 1:
            found.append("cluster.network.contention has no effect: there is one job")
        if network.nodes_per_leaf is not None and (network.oversubscription or 1) <= 1:
            found.append("cluster.network.nodes_per_leaf has no effect without oversubscription above 1")
        if network.nodes_per_leaf is not None and network.nodes_per_leaf >= cluster.nodes:
            found.append("cluster.network.oversubscription has no effect: all nodes are under one leaf switch")
        elif (network.oversubscription or 1) > 1 and network.nodes_per_leaf is None:
            found.append("cluster.network.nodes_per_leaf is not given: two leaves of half the nodes each are assumed")
    if cluster.gpus_per_node == 1 and spec.cluster.peer_latency is not None:
        found.append("cluster.peer_latency has no effect: there is one GPU per node")
    if cluster.node != "pcie-tree" and spec.cluster.socket_bandwidth is not None:
        found.append("cluster.socket_bandwidth has no effect: only node template pcie-tree has two sockets")
    given = cluster.host.input
    if given is not None and (given.read_bandwidth is None) != (given.sample_size == 0):
        missing = "read_bandwidth" if given.read_bandwidth is None else "sample_size"
        found.append(f"cluster.host.input.{missing} is not given: reading batches costs nothing")
    if given is not None and given.copied_size and cluster.pcie_bandwidth(cluster.gpu) is None:
        found.append("cluster.host.input.copied_size has no effect: no PCIe rate is given")
    if cluster.pcie_bandwidth(cluster.gpu) is None and cluster.host.copy_bandwidth is None and cluster.nodes > 1:
        found.append("no PCIe rate is given: copies between GPU and host cost nothing")
    return found


def _first_mistake(error: ValidationError) -> str:
    """Turn pydantic's first complaint into one line with the user's own names."""
    problems = error.errors(include_url=False, include_input=True)
    problem = max(problems, key=lambda p: (p["type"] == "extra_forbidden", len(p["loc"])))
    path = ".".join(str(part) for part in problem["loc"] if str(part) not in _UNION_TAGS)
    given = problem.get("input")
    if problem["type"] == "extra_forbidden":
        known = _keys_at(problem["loc"])
        given_key = str(problem["loc"][-1])
        short = [*SHORT, "model.precision"] if len(problem["loc"]) == 1 else []
        close = "model.precision" if short and given_key == "precision" else nearest(given_key, [*short, *known])
        return f"{path}: unknown key" + (f"; did you mean {close!r}?" if close else ".") + f" Known: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{path} is missing; {_EXAMPLES.get(path, 'give it')}"
    shown = repr(given) if len(repr(given)) < 80 else repr(given)[:77] + "..."
    if problem["type"] == "literal_error":
        return f"{path}={shown}: must be {problem['ctx']['expected'].replace(chr(39), '')}"
    rule = _RULES.get(problem["type"])
    return f"{path}={shown}: {problem['msg'].lower() if rule is None else rule.format(**problem.get('ctx', {}))}"


_UNION_TAGS = {"str", "GpuSpec", "NetworkSpec", "dict[str,any]", "function-wrap[_any()]"}
_RULES = {
    "int_type": "must be a whole number, for example 16",
    "float_parsing": "must be a number, for example 1.5",
    "float_type": "must be a number, for example 1.5",
    "int_parsing": "must be a whole number, for example 16",
    "int_from_float": "must be a whole number, for example 16",
    "greater_than_equal": "is too small; it must be at least {ge}",
    "less_than_equal": "is too large; it must be at most {le:,}",
    "greater_than": "must be above 0",
    "string_type": "must be a name (in YAML, put quotes around words such as no, yes, on, off)",
    "model_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "list_type": "must be a list",
}
_EXAMPLES = {
    "model": "write model: vgg19 (see `poseidon-sim list models`)",
    "cluster": "write cluster: {nodes: 8, gpu: titan-x-maxwell, network: 10 Gbit/s}",
    "cluster.nodes": "write nodes: 8 under cluster",
    "strategy": "write strategy: poseidon (see `poseidon-sim list strategies`)",
}


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are known where an unknown one was found."""
    from poseidon_sim.scenario import schema

    where = [str(part) for part in location[:-1] if not isinstance(part, int)]
    spec: type = schema.ScenarioSpec
    for part in where:
        spec = {
            "cluster": schema.ClusterSpec, "network": schema.NetworkSpec, "host": schema.HostSpec, "input": schema.InputSpec,
            "groups": schema.GroupSpec, "gpu": schema.GpuSpec, "convergence": schema.ConvergenceSpec,
        }.get(part, spec)  # fmt: skip
    return list(spec.model_fields)  # type: ignore[attr-defined]


def _path_of(message: str) -> str:
    """Return the dotted path that a message begins with."""
    return message.split("=")[0].split(":")[0].split(" ")[0].replace("[", ".").replace("]", "")


def _change_behind(message: str, changes: Mapping[str, object]) -> str | None:
    """Return the key=value given beside the file that a message is about, or None."""
    path = _path_of(message) + "."
    behind = [key for key in changes if path.startswith(whole_path(key) + ".")]  # the key itself or what it lies in
    below = [key for key in changes if f"{whole_path(key)}.".startswith(path)]
    if not behind and not below:
        return None
    told = [key for key in behind or below if f"{whole_path(key).rpartition('.')[2]}=" in message]
    key = max(told or behind or below, key=lambda each: len(whole_path(each)))
    return f"{key}={changes[key]}"


def _line_of(text: str, message: str) -> int | None:
    """Return the line of the key a message begins with, by walking the YAML nodes."""
    path = _path_of(message).split(".")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    line = None
    for part in path:
        if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
            continue
        found = None
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value == part:
                found, line = value, key.start_mark.line + 1
        if found is None:
            break
        node = found
    return line


