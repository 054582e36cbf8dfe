"""Poseidon, the transformer for partial differential equations (Herde et al., 2024): a workload that shares the name.

The published figures are sizes; they are counted from the shapes. The graph database of the same name (Bebee et al., 2025) trains
nothing and has no place here.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

#: model card -> our model
MODELS = {"Poseidon-T": "poseidon-t", "Poseidon-B": "poseidon-b", "Poseidon-L": "poseidon-l"}
STRATEGIES = ("ddp", "poseidon", "parameter-server", "fsdp")


def rows() -> list[Row]:
    """Return the sizes of the three networks, published and counted."""
    return [
        Row(
            line["id"], f"{line['model']}, millions of parameters", float(line["value"]), ps.load_model(MODELS[line["model"]]).parameters / 1e6,
            "counted", flag_of(line["confidence"].split("(")[0]),
        )
        for line in targets("S9-")
    ]  # fmt: skip


def main(out_dir: Path) -> int:
    """Print the sizes, and how the largest network trains under several strategies on four nodes."""
    show(rows(), out_dir)
    where = {"nodes": 4, "gpus_per_node": 8, "gpu": "a100-sxm-80gb", "node": "nvswitch", "network": "200 Gbit/s"}
    print("Poseidon-B, batch 8 per GPU, 4 nodes of 8 A100, 200 Gbit/s (predicted)")
    for name in STRATEGIES:
        run = ps.simulate(ps.load_scenario({"model": "poseidon-b", "batch_size": 8, "cluster": where, "strategy": name}))
        print(f"  {name:<20} {run.step_time * 1e3:8.1f} ms  {run.throughput:8.1f} samples/s  efficiency {run.scaling_efficiency:.0%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/poseidon-pde")))
