"""The pictures of the Poseidon reproduction, by the report's own plots."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from fit_poseidon import measured
from poseidon_systems import NODES, simulate

import poseidon_sim as ps
from poseidon_sim.report import plots

COLUMNS = {"Caffe+PS": "Caffe+PS", "Caffe+WFBP": "Caffe+WFBP", "Poseidon": "Poseidon-Caffe"}


def frame(runs: list[tuple[str, ps.Run]]) -> pd.DataFrame:
    """Return one row per run, the system as its strategy."""
    table = pd.DataFrame([{**run.summary(), "strategy": name} for name, run in runs])
    return table.drop(columns=["warnings", "bytes_sent_busiest_node", "cost_per_million_samples"])


def draw_all(out_dir: Path) -> list[Path]:
    """Draw scaling at 40 and 10 Gbit/s, traffic, and where the time goes at 8 nodes."""
    base = 0.925
    scaling = frame([(system, simulate(system, "vgg19-22k", n)) for system in COLUMNS for n in NODES])
    points = pd.DataFrame([
        {"nodes": n, "strategy": system, "speedup": n * base / seconds}
        for system, name in COLUMNS.items() for n, seconds in measured(name).items()
    ])  # fmt: skip
    points = pd.concat([points, pd.DataFrame([
        {"nodes": 1, "strategy": "Poseidon", "speedup": base / 0.935},
    ])]).drop_duplicates(["nodes", "strategy"])  # fmt: skip
    slow = frame([(system, simulate(system, "vgg19-22k", n, gbits=10)) for system in ("Caffe+WFBP", "Poseidon") for n in NODES])
    headline = pd.DataFrame([{"nodes": 16, "strategy": "Poseidon", "speedup": 15.5}])
    traffic = frame([(system, simulate(system, "vgg19", n)) for system in ("Caffe+WFBP", "Adam", "Poseidon") for n in (2, 4, 8, 16, 32)])
    eight = frame([(system, simulate(system, "vgg19-22k", 8)) for system in ("TensorFlow", "Caffe+PS", "Caffe+WFBP", "Poseidon")])
    return [
        plots.scaling(scaling, points, out_dir / "scaling-40gbe.png", "VGG19-22K, 40 Gbit/s Ethernet, Titan X",
                      "PS and WFBP lines fitted on their own points, Poseidon predicted; points: Zhang et al. ATC'17, authors' plot data"),
        plots.scaling(slow, headline, out_dir / "scaling-10gbe.png", "VGG19-22K, 10 Gbit/s Ethernet, Titan X",
                      "predicted; point: 15.5x at 16 nodes, abstract of Zhang et al. ATC'17"),
        plots.traffic(traffic, out_dir / "traffic-vgg19.png", "VGG19: bytes a node sends per step", "counted, batch 32; Caffe+WFBP is an even parameter server"),
        plots.breakdown(eight, out_dir / "breakdown-8-nodes.png", "VGG19-22K on 8 nodes, 40 Gbit/s: where a step goes"),
    ]  # fmt: skip
