"""What the toolkit knows by name, for `list`."""

from __future__ import annotations

from typing import Any

from poseidon_sim.units import format_rate

CATALOGS = ("models", "gpus", "links", "strategies", "collectives")


def catalog(what: str) -> list[dict[str, Any]]:
    """Return one row per known name, each with a one-line summary.

    >>> catalog("strategies")[0]["name"]
    'adam'
    """
    rows: list[dict[str, Any]] = {
        "models": _models, "gpus": _gpus, "links": _links, "strategies": _strategies, "collectives": _collectives,
    }[what]()  # fmt: skip
    return rows


def _models() -> list[dict[str, Any]]:
    from poseidon_sim import list_models, load_model

    rows = []
    for name in list_models():
        model = load_model(name)
        gflops = model.forward_flops / 1e9
        rows.append({
            "name": name, "parameters": model.parameters, "forward_gflops_per_sample": gflops, "batch_size": model.batch_size,
            "source": model.source,
            "summary": f"{model.parameters / 1e6:9.1f} M parameters, {gflops:9.2f} GFLOP forward per {model.sample}",
        })  # fmt: skip
    return rows


def _gpus() -> list[dict[str, Any]]:
    from poseidon_sim import gpu, list_gpus

    rows = []
    for name in list_gpus():
        part = gpu(name)
        peak = ", ".join(f"{p} {rate / 1e12:g}" for p, rate in part.flops.items())
        memory = f"{(part.memory or 0) / 2**30:.0f} GiB at {format_rate(part.memory_bandwidth)}" if part.memory_bandwidth else ""
        rows.append({
            "name": name, "flops": part.flops, "memory_bytes": part.memory, "memory_bandwidth": part.memory_bandwidth,
            "source": part.source, "confidence": part.confidence, "summary": f"{memory}; peak TFLOP/s: {peak}",
        })  # fmt: skip
    return rows


def _links() -> list[dict[str, Any]]:
    from poseidon_sim import link, list_links

    rows = []
    for name in list_links():
        part = link(name)
        rows.append({
            "name": name, "kind": part.kind, "bandwidth": part.bandwidth, "efficiency": part.efficiency,
            "latency_s": part.latency, "source": part.source, "confidence": part.confidence,
            "summary": f"{part.kind:<7} {format_rate(part.bandwidth)} one direction, {part.efficiency:.0%} achievable",
        })  # fmt: skip
    return rows


def _strategies() -> list[dict[str, Any]]:
    from poseidon_sim import list_strategies, strategy_class

    rows = []
    for name in list_strategies():
        kind = strategy_class(name)
        settings = {k: "inf" if v == float("inf") else v for k, v in kind().describe().items() if k != "name"}
        rows.append({"name": name, "summary": kind.summary, "source": kind.source, "settings": settings})
    return rows


def _collectives() -> list[dict[str, Any]]:
    from poseidon_sim import collective_algorithm, list_collectives

    return [{"name": name, "summary": collective_algorithm(name).summary} for name in list_collectives()]
