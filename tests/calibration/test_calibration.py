"""Logs are read with their own units, fits give back what made the data, and damaged logs get one clear message."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.calibration.fit import fit_line
from poseidon_sim.errors import PoseidonSimError

SAMPLES = Path(__file__).parent / "samples"
LOGS = sorted(p for p in SAMPLES.iterdir() if p.suffix in (".txt", ".json"))
SIZES = [2**k for k in range(10, 29, 2)]

# file: (number of figures, operation, ranks, nodes, time in s or bandwidth in bytes/s of the last one), read off the file by hand
BY_HAND = {
    "nccl_all_reduce_perf.txt": (10, "all-reduce", 8, 1, 3176.1e-6),
    "nccl_all_reduce_perf_old.txt": (3, "all-reduce", 2, 2, 3774.0e-6),
    "nccl_all_reduce_perf.json": (1, "all-reduce", 1, 1, 32.1e-6),
    "osu_allreduce.txt": (11, "all-reduce", 0, 0, 439.49e-6),
    "osu_latency.txt": (13, "point-to-point", 2, 0, 356.50e-6),
    "osu_bw.txt": (12, "stream", 2, 2, 12150e6),
    "ib_write_bw.txt": (1, "stream", 2, 2, 97.66e9 / 8),
    "ib_write_bw_mib.txt": (1, "stream", 2, 2, 2756.41 * 2**20),
    "ib_write_bw.json": (1, "stream", 2, 2, 0.186268e6 * 65536),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_log_is_read_with_the_units_of_its_tool(name: str) -> None:
    count, operation, ranks, nodes, figure = BY_HAND[name]
    rows = ps.read_measurements(SAMPLES / name)
    last = rows[-1]
    assert (len(rows), last.operation, last.ranks, last.nodes) == (count, operation, ranks, nodes)
    assert (last.time or last.bandwidth) == pytest.approx(figure, rel=1e-9)


def test_iperf3_counts_what_the_receiver_got() -> None:
    document = json.loads((SAMPLES / "iperf3.json").read_text())
    (row,) = ps.read_measurements(SAMPLES / "iperf3.json")
    assert row.bandwidth == document["end"]["sum_received"]["bits_per_second"] / 8


def nccl_log(ranks: int, nodes: int, alpha: float, beta: float, noise: float = 0.0, seed: int = 0) -> str:
    """A log as nccl-tests prints it, of a ring with given hop latency (s) and rate (bytes/s)."""
    chance = np.random.default_rng(seed)
    lines = ["# Collective test starting: all_reduce_perf"]
    lines += [f"#  Rank {r:2} Group  0 Pid {100 + r} on node-{r * nodes // ranks} device {r} [0] GPU" for r in range(ranks)]
    lines += ["#       size  count type redop root time algbw busbw #wrong time algbw busbw #wrong", "#  (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)"]
    for size in SIZES:
        time = (2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size / beta) * (1 + noise * chance.uniform(-1, 1))
        gb = size / time / 1e9
        lines.append(f"{size:12} {size // 4:12} float sum -1 {time * 1e6:.6f} {gb:.2f} {gb:.2f} 0 {time * 1e6:.6f} {gb:.2f} {gb:.2f} 0")
    return "\n".join(lines) + "\n"


@given(st.floats(1e-5, 1e-3), st.floats(1e8, 1e11), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_a_line_gives_back_what_made_it_even_with_an_outlier(alpha: float, beta: float, seed: int) -> None:
    chance = random.Random(seed)
    times = [(alpha + s / beta) * (1 + chance.uniform(-0.01, 0.01)) for s in SIZES]
    times[chance.randrange(3, len(times))] *= 3.0  # an outlier where latency rules could as well be latency
    line = fit_line(SIZES, times)
    for size in SIZES:
        assert line.alpha + line.slope * size == pytest.approx(alpha + size / beta, rel=0.08)


def test_two_sizes_of_a_ring_tell_hop_latency_and_rate(tmp_path: Path) -> None:
    for ranks in (4, 16):
        (tmp_path / f"{ranks}.txt").write_text(nccl_log(ranks, ranks, alpha=20e-6, beta=1.1e9, noise=0.01, seed=ranks))
    found = ps.calibrate(x for ranks in (4, 16) for x in ps.read_measurements(tmp_path / f"{ranks}.txt"))
    values = {p.key: p.value for p in found.parameters}
    assert values["network.bandwidth"] == pytest.approx(1.1e9, rel=0.02)
    assert values["network.latency"] == pytest.approx(20e-6, rel=0.05)


def test_a_calibrated_cluster_gives_the_measured_times_back(tmp_path: Path) -> None:
    ranks, alpha, beta = 8, 30e-6, 1.2e9
    for n in (4, ranks):
        (tmp_path / f"{n}.txt").write_text(nccl_log(n, n, alpha, beta))
    found = ps.calibrate((x for n in (4, ranks) for x in ps.read_measurements(tmp_path / f"{n}.txt")), line_rate=1.25e9)
    for size in (2**16, 2**24):
        layer = {"name": "only", "kind": "conv", "gradient_bytes": f"{size} B", "forward_time": "1 s", "backward_time": "1 s"}
        scenario = ps.load_scenario({"model": {"name": "one", "layers": [layer]}, "batch_size": 1, "strategy": "all-reduce",
                                     "cluster": {"nodes": ranks, **found.cluster()}})  # fmt: skip
        measured = 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size / beta
        assert ps.simulate(scenario).step_time - 2.0 == pytest.approx(measured, rel=0.01)


def test_the_written_file_is_what_a_scenario_accepts_and_names_its_sources(tmp_path: Path) -> None:
    rows = [x for name in ("nccl_all_reduce_perf_old.txt", "osu_latency.txt") for x in ps.read_measurements(SAMPLES / name)]
    text = str(ps.calibrate(rows))
    network = yaml.safe_load(text)["network"]
    scenario = ps.load_scenario({"model": "alexnet", "strategy": "poseidon", "cluster": {"nodes": 2, "gpu": "titan-x-maxwell", "network": network}})
    assert scenario.cluster.network is not None and scenario.cluster.network.latency == pytest.approx(1.05e-6, rel=0.01)
    assert all("#" in line for line in text.splitlines() if line.startswith("  ")) and "residual" in text


def test_what_one_size_cannot_tell_is_said() -> None:
    notes = " ".join(ps.calibrate(ps.read_measurements(SAMPLES / "nccl_all_reduce_perf_old.txt")).notes)
    assert "cannot tell the latency of a hop from the overhead of a call" in notes


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not the output of a tool"), (b"hello", "give one of nccl-tests"), (b"\xff\xfe\x00", "not text"), (b'{"a": 1', "not JSON"), (b"{}", "not the output"),
     (b'{"error": "unable to connect"}', "iperf3 failed"), (b'{"end": {}}', "lacks"), (b"# OSU MPI Latency Test v5.9\n# Size Latency (us)\n", "no measurement"),
     (b"# size algbw\n1024 256 float sum x y z w q\n", "not a number"), (b"# size algbw\n1024 256\n", "columns")],
)  # fmt: skip
def test_a_foreign_or_damaged_log_gets_one_clear_message(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(PoseidonSimError, match=words) as error:
        ps.read_measurements(tmp_path / "log")
    assert str(tmp_path / "log") in str(error.value)


def test_a_huge_or_missing_log_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as out:
        out.truncate(60_000_000)
    for path, words in ((tmp_path / "huge", "too large"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(ps.UnreadableFileError, match=words):
            ps.read_measurements(path)


@pytest.mark.parametrize("log", LOGS, ids=lambda p: p.name)
def test_no_mutation_of_a_log_ends_in_a_traceback(log: Path, tmp_path: Path) -> None:
    whole, chance = log.read_bytes(), random.Random(log.name)
    for _ in range(150):
        blob = bytearray(whole)
        kind = chance.randrange(4)
        if kind == 0:
            del blob[chance.randrange(len(blob)) :]
        elif kind == 1:
            at = chance.randrange(len(blob))
            del blob[at : at + chance.randrange(1, 40)]
        elif kind == 2:
            for _ in range(chance.randrange(1, 6)):
                blob[chance.randrange(len(blob))] = chance.randrange(256)
        else:
            lines = bytes(blob).split(b"\n")
            chance.shuffle(lines)
            blob = bytearray(b"\n".join(lines))
        (tmp_path / "log").write_bytes(bytes(blob))
        try:
            ps.calibrate(ps.read_measurements(tmp_path / "log"))
        except PoseidonSimError as error:
            assert str(error)
