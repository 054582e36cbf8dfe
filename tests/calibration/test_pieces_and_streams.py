"""Protocols that change with size, streams that get in each other's way, and real times that lie on no line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import poseidon_sim as ps
from poseidon_sim import cli
from poseidon_sim.calibration import Measurement
from poseidon_sim.calibration.lines import fit_line, fit_pieces

SAMPLES = Path(__file__).parent / "samples"
SIZES = [2**k for k in range(24)]
#: published: all_reduce_perf, out-of-place, 2 GH200 on 2 nodes, Slingshot 200 Gbit/s, NCCL 2.30.7, nccl-tests 2.18.2 (CSCS Alps
#: documentation): bytes, us
ALPS = [(2**20, 339.61), (2**21, 355.53), (2**22, 476.28), (2**23, 556.83), (2**24, 840.36), (2**25, 1537.62), (2**26, 2982.38), (2**27, 5871.07)]


def alps() -> list[Measurement]:
    return [Measurement("nccl-tests", "all-reduce", size, us * 1e-6, None, 2, 2, f"alps.txt:{i}") for i, (size, us) in enumerate(ALPS)]


def two_protocols(size: float) -> float:
    # eager up to 8 KiB: 2 us and 1 GB/s; rendezvous above: 20 us and 10 GB/s
    return 2e-6 + size / 1e9 if size <= 2**13 else 20e-6 + size / 1e10


def test_a_change_of_protocol_is_found_with_both_latencies_and_rates() -> None:
    chance = random.Random(1)
    times = [two_protocols(s) * (1 + chance.uniform(-0.01, 0.01)) for s in SIZES]
    first, second = fit_pieces(SIZES, times)
    assert (first.largest, second.smallest) == (2**13, 2**14)
    assert first.line.alpha == pytest.approx(2e-6, rel=0.02) and 1 / second.line.slope == pytest.approx(1e10, rel=0.02)
    assert second.line.alpha == pytest.approx(20e-6, rel=0.05)
    assert max(first.line.worst, second.line.worst) < 0.05 < fit_line(SIZES, times).worst


@pytest.mark.parametrize("seed", range(5))
def test_a_straight_line_is_not_cut_into_pieces(seed: int) -> None:
    chance = random.Random(seed)
    times = [(1e-4 + s / 1e9) * (1 + chance.uniform(-0.02, 0.02)) for s in SIZES]
    assert len(fit_pieces(SIZES, times)) == 1


def test_too_few_sizes_are_one_line() -> None:
    assert len(fit_pieces([1, 2, 4, 8, 16], [1e-6, 9e-6, 1e-6, 9e-6, 1e-6])) == 1


def test_pieces_are_said_with_the_residual_of_one_line_beside_theirs() -> None:
    rows = [Measurement("osu", "point-to-point", s, two_protocols(s), None, 2, 0, f"lat.txt:{s}") for s in SIZES]
    (note,) = [n for n in ps.calibrate(rows).notes if "change with size" in n]
    assert note.count("residual") == 3 and "1 B to 8.192 kB: 2 us, 1 GB/s" in note and "20 us, 10 GB/s" in note


def iperf3(folder: Path, streams: int, gbits: float) -> str:
    document = json.loads((SAMPLES / "iperf3.json").read_text())
    document["start"]["test_start"]["num_streams"] = streams
    document["end"]["sum_received"]["bits_per_second"] = gbits * 1e9
    (folder / f"{streams}.json").write_text(json.dumps(document))
    return str(folder / f"{streams}.json")


def test_streams_that_get_in_each_others_way_become_incast(tmp_path: Path) -> None:
    # one stream is held back by its own sender (6), two fill the port (9.4), eight and 32 lose 10 and 50 %
    logs = [iperf3(tmp_path, n, g) for n, g in ((1, 6.0), (2, 9.4), (8, 8.46), (32, 4.7))]
    found = ps.calibrate(x for log in logs for x in ps.read_measurements(log))
    network = found.cluster()["network"]
    assert network["bandwidth"] == "9.4 Gbit/s" and network["incast"] == [[2.0, 1.0], [8.0, 0.9], [32.0, 0.5]]
    assert any("a limit of its own" in note for note in found.notes)
    cluster = {"nodes": 40, "gpu": "titan-x-maxwell", **found.cluster()}
    scenario = ps.load_scenario({"model": "alexnet", "strategy": "parameter-server", "cluster": cluster})
    assert scenario.cluster.network is not None and scenario.cluster.network.incast[-1] == (32.0, 0.5)
    smooth = {key: value for key, value in network.items() if key != "incast"}
    calm = ps.load_scenario({"model": "alexnet", "strategy": "parameter-server", "cluster": {**cluster, "network": smooth}})
    assert ps.simulate(scenario).step_time > 1.5 * ps.simulate(calm).step_time


def test_streams_that_share_a_port_without_loss_are_no_incast(tmp_path: Path) -> None:
    logs = [iperf3(tmp_path, n, g) for n, g in ((1, 9.4), (8, 9.35))]
    found = ps.calibrate(x for log in logs for x in ps.read_measurements(log))
    assert "incast" not in found.cluster()["network"] and any("no incast" in note for note in found.notes)


def test_a_number_of_streams_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ps.InputError, match="num_streams=-3"):
        ps.read_measurements(iperf3(tmp_path, -3, 1.0))


def test_real_times_are_given_back_within_the_residual_that_the_file_states() -> None:
    found = ps.calibrate(alps())
    line = fit_line([float(s) for s, _ in ALPS], [us * 1e-6 for _, us in ALPS])
    assert any(f"{line.worst:.1%} worst" in p.source for p in found.parameters) and line.worst < 0.1
    for size, us in ALPS:
        layer = {"name": "only", "kind": "conv", "gradient_bytes": f"{size} B", "forward_time": "1 s", "backward_time": "1 s"}
        scenario = ps.load_scenario({"model": {"name": "one", "layers": [layer]}, "batch_size": 1, "strategy": "all-reduce",
                                     "cluster": {"nodes": 2, **found.cluster()}})  # fmt: skip
        assert abs((ps.simulate(scenario).step_time - 2.0) / (us * 1e-6) - 1.0) < line.worst + 1e-4


def test_a_slope_beyond_the_port_gives_way_to_the_best_that_was_measured() -> None:
    # relative errors make the line steeper at small sizes: 26.2 GB/s on a port of 25; the largest message reached 22.86
    found = ps.calibrate(alps(), line_rate=25e9)
    share = next(p.value for p in found.parameters if p.key == "network.efficiency")
    assert share == pytest.approx(2**27 / 5871.07e-6 / 25e9, rel=1e-9)
    assert any("more than the port has" in note for note in found.notes)
    with pytest.raises(ps.InputError, match="exceeds the line rate"):
        ps.calibrate(alps(), line_rate=12.5e9)


def test_the_ranks_of_an_osu_log_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(SAMPLES / "osu_allreduce.txt")
    assert cli.run(["calibrate", log]) == 0 and "--ranks" in capsys.readouterr().out
    assert cli.run(["calibrate", log, "--ranks", "4"]) == 0 and "ring of 4" in capsys.readouterr().out
    assert cli.run(["calibrate", log, "--ranks", "1"]) == 2 and "at least 2" in capsys.readouterr().err
