"""The command line as a person meets it: answers on stdout, messages on stderr, exit codes of the contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from poseidon_sim import cli

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = str(ROOT / "experiments" / "vgg19-22k.yaml")
CONTRACT = {
    "step_time_s", "throughput_samples_per_s", "speedup", "scaling_efficiency", "compute_time_s", "communication_time_s",
    "exposed_communication_s", "overlap", "bytes_sent_per_node", "bottleneck", "warnings", "provenance",
}  # fmt: skip


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli.run(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_simulate_json_is_one_document_with_the_keys_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("simulate", SCENARIO, "nodes=8", "--json", "--check", capsys=capsys)
    document = json.loads(out)
    assert code == 0 and document.keys() >= CONTRACT
    assert document["nodes"] == 8 and document["provenance"]["inputs"]["cluster"]["nodes"] == 8


def test_compare_names_the_winner_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("compare", SCENARIO, "--strategies", "parameter-server,poseidon", "--json", capsys=capsys)
    document = json.loads(out)
    assert code == 0 and document["winner"] == "poseidon" == document["ranking"][0]["strategy"]


def test_advise_finds_where_the_winner_changes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["advise", SCENARIO, "--nodes", "4,16", "--networks", "10Gbit/s,100Gbit/s", "--json"]
    code, out, _ = run(*arguments, capsys=capsys)
    document = json.loads(out)
    assert code == 0 and len(document["choices"]) == 4 and document["winner_changes"]


def test_advise_by_cost_ranks_by_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "priced.yaml"
    path.write_text(Path(SCENARIO).read_text() + "price_per_gpu_hour: 0.9 USD/h\n")
    code, out, _ = run("advise", str(path), "--nodes", "1,32", "--objective", "cost", "--json", capsys=capsys)
    prices = [choice["ranking"][0]["cost_per_million_samples"] for choice in json.loads(out)["choices"]]
    assert code == 0 and prices == sorted(prices)


@pytest.mark.parametrize("what", ["models", "gpus", "links", "strategies", "collectives"])
def test_list_prints_names_and_json(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", what, capsys=capsys)[0] == 0
    code, out, _ = run("list", what, "--json", capsys=capsys)
    assert code == 0 and all("name" in row for row in json.loads(out))


def test_a_timeline_is_written_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    assert run("simulate", SCENARIO, "--timeline", str(path), capsys=capsys)[0] == 0
    assert json.loads(path.read_text())["traceEvents"]


def test_a_sweep_is_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["nodes=2,4", "strategy=poseidon,all-reduce", "cluster.network.bandwidth=5,10Gbit/s"]
    assert run("sweep", SCENARIO, *grid, "-o", str(tmp_path), capsys=capsys)[0] == 0
    for kind in ("scaling", "winner", "breakdown", "traffic"):
        code, out, err = run("plot", str(tmp_path), "--kind", kind, "-o", str(tmp_path / f"{kind}.png"), capsys=capsys)
        assert code == 0, err
        assert Path(out.strip()).stat().st_size > 5000


# given on the command line, exit code, words that the message must hold: what was given, and the next move
MISTAKES = [
    (["simulate", "missing.yaml"], 3, ["missing.yaml", "cannot be read"]),
    (["simulate", SCENARIO, "strategy=posiedon"], 2, ["posiedon", "poseidon"]),
    (["simulate", SCENARIO, "cluster.network.bandwith=1Gbit/s"], 2, ["bandwith", "bandwidth"]),
    (["simulate", SCENARIO, "cluster.network.bandwidth=40 GB"], 2, ["is a size, not a rate", "40 Gbit/s"]),
    (["simulate", SCENARIO, "cluster.network.bandwidth=40"], 2, ["no unit", "40 Gbit/s"]),
    (["simulate", SCENARIO, "cluster.network.bandwidth=0 Gbit/s"], 2, ["bandwidth", "0 Gbit/s"]),
    (["simulate", SCENARIO, "nodes=0"], 2, ["nodes", "at least 1"]),
    (["simulate", SCENARIO, "nodes=2.5"], 2, ["whole number"]),
    (["simulate", SCENARIO, "nodes"], 2, ["key=value"]),
    (["simulate", SCENARIO, "batch_size=-4"], 2, ["batch_size", "-4"]),
    (["simulate", SCENARIO, "batch_size=9000"], 4, ["GB short", "largest batch"]),
    (["simulate", SCENARIO, "model=vgg91"], 2, ["vgg91", "vgg19"]),
    (["simulate", SCENARIO, "cluster.gpu=titan-y"], 2, ["titan-y", "titan-x"]),
    (["simulate", SCENARIO, "strategy=parameter-server", "strategy.servers=99"], 2, ["servers=99", "nodes=16"]),
    (["simulate", SCENARIO, "strategy.overlap=maybe"], 2, ["overlap", "true or false"]),
    (["simulate", SCENARIO, "strategy=all-reduce", "strategy.fusion=25"], 2, ["fusion"]),
    (["simulate", SCENARIO, "strategy=all-reduce", "strategy.algorithm=rong"], 2, ["rong", "ring"]),
    (["simulate", SCENARIO, "scaling=strong", "batch_size=30"], 2, ["16 GPUs", "use 16 or 32"]),
    (["simulate", SCENARIO, "--engine", "warp"], 2, ["warp", "reference"]),
    (["simulate", SCENARIO, "--detail", "atoms"], 2, ["atoms", "folded"]),
    (["simulate", SCENARIO, "node=8"], 2, ["node", "'nodes'"]),
    (["simulate", SCENARIO, "precision=fp16"], 2, ["model.precision"]),
    (["sweep", SCENARIO, "nodse=2,4", "-o", "out/never"], 2, ["nodse", "'nodes'"]),
    (["simulate", SCENARIO, "nodes=4", "nodes=8"], 2, ["given twice", "4 and 8"]),
    (["simulate", SCENARIO, "cluster.network.bandwidth=10gbps"], 2, ["with cluster.network.bandwidth=10gbps", '"10 Gbps" or']),
    (["simulate", SCENARIO, "cluster.groups=[{nodes: 1, slowdown: 50 %}]"], 2, ["slowdown", "must be a number"]),
    (["simulate", SCENARIO, "strategy=horovod", "strategy.cycle_time=5"], 2, ["with strategy.cycle_time=5: ", "no unit"]),
    (["sweep", SCENARIO, "nodes=2", "cluster.nodes=4", "-o", "out/never"], 2, ["given twice"]),
    (["simulate", SCENARIO, "nodes=2", "cluster.nodes=4"], 2, ["given twice"]),
    (["sweep", SCENARIO, "nodes=2,,4", "-o", "out/never"], 2, ["empty value", "nodes=2,4,8"]),
    (["sweep", SCENARIO, "nodes=2,2", "-o", "out/never"], 2, ["nodes=2", "twice"]),
    (["sweep", SCENARIO, "nodes=2,4", "-o", "out/never", "--backend", "dusk"], 2, ["dusk", "dask"]),
    (["calibrate", SCENARIO], 3, ["not the output of a tool", "nccl-tests"]),
    (["calibrate", str(ROOT / "tests/calibration/samples/osu_latency.txt"), "--line-rate", "1 Gbit/s"], 2, ["exceeds the line rate"]),
    (["monte-carlo", SCENARIO], 2, ["cluster.jitter", "0.05"]),
    (["simulate"], 2, ["SCENARIO"]),
    (["simulat", SCENARIO], 2, ["simulat", "simulate"]),
    (["list", "modles"], 2, ["modles", "models"]),
    (["advise", SCENARIO, "--nodes", "four"], 2, ["four", "4,8,16"]),
    (["advise", SCENARIO, "--objective", "joy"], 2, ["joy", "throughput"]),
    (["advise", SCENARIO, "--objective", "cost"], 2, ["price_per_gpu_hour"]),
    (["compare", SCENARIO, "--strategies", "poseidon,ada"], 2, ["ada", "adam"]),
    (["reproduce", "posidon"], 2, ["posidon", "poseidon"]),
    (["plot", "no-such-folder"], 3, ["no-such-folder"]),
    (["plot", SCENARIO, "--kind", "pie"], 2, ["pie", "scaling"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "words"), MISTAKES, ids=lambda v: " ".join(map(str, v[-2:])) if isinstance(v, list) else str(v))
def test_a_mistake_gets_one_clear_message(
    arguments: list[str], code: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = run(*arguments, capsys=capsys)
    assert (found, out) == (code, "")
    assert err.startswith("error: ") and "Traceback" not in err
    assert all(word in err for word in words), err


def test_yaml_traps_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(SCENARIO).read_text()
    traps = {
        "strategy: no": (2, "quotes"), "model: vgg19\nmodel: alexnet": (3, "twice"), "cluster: [1": (3, "line"), "": (2, "empty"),
        "- a\n- b": (2, "a list"), text.replace("batch_size: 32", "batch_size: 1e9"): (2, "batch_size"),
    }  # fmt: skip
    for content, (code, word) in traps.items():
        path = tmp_path / "trap.yaml"
        path.write_text(text.replace("strategy: poseidon", content) if content == "strategy: no" else content)
        found, _, err = run("simulate", str(path), capsys=capsys)
        assert found == code and word in err, (content, err)


def test_calibrate_writes_what_a_scenario_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = ROOT / "tests" / "calibration" / "samples"
    logs = [str(samples / name) for name in ("osu_latency.txt", "ib_write_bw.txt")]
    code, out, _ = run("calibrate", *logs, "--line-rate", "100Gbit/s", "-o", str(tmp_path / "c.yaml"), capsys=capsys)
    assert code == 0 and out.strip() == str(tmp_path / "c.yaml")
    text = (tmp_path / "c.yaml").read_text()
    assert "bandwidth: 100 Gbit/s" in text and "latency: 1.0" in text and "osu_latency.txt" in text
    code, out, _ = run("calibrate", *logs, "--json", capsys=capsys)
    assert code == 0 and json.loads(out)["cluster"]["network"]["latency"].endswith("us")


def test_the_installed_command_answers_without_loading_pandas_or_matplotlib() -> None:
    code = (
        "import sys; from poseidon_sim import cli; c = cli.run(['simulate', sys.argv[1], '--json']);"
        "print([m for m in ('pandas', 'matplotlib', 'numba', 'torch') if m in sys.modules], file=sys.stderr); sys.exit(c)"
    )
    done = subprocess.run([sys.executable, "-c", code, SCENARIO], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.strip().endswith("[]")
