"""Measured iterations to an accuracy: the file is whole, the model's errors on it stay where they were, and training is what it says."""

from __future__ import annotations

import csv
import importlib.util
import itertools
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from validation.convergence import campaign  # noqa: E402
from validation.convergence.measure import RATES, measure  # noqa: E402
from validation.convergence.nets import NETS, digits  # noqa: E402
from validation.convergence.training import Gradients, Way, batches, train  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("convergence_model", ROOT / "validation" / "convergence_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def after(way: Way, steps: int, rate: float = 0.5) -> torch.Tensor:
    """Return the parameters of two seeds after some iterations."""
    net = NETS["mlp"]
    start = torch.stack([net.initial(seed) for seed in (1, 2)])
    order = batches(len(digits().train_digits), way.batch, (1, 2))
    found = list(itertools.islice(train(way, Gradients(net, digits(), way.workers), start, torch.full((2,), rate), order), steps))
    assert found[-1] is not None
    return found[-1]


def test_every_way_of_the_campaign_was_measured_once_and_its_line_is_whole() -> None:
    rows = campaign.rows()
    wanted = [(net, w.kind, w.batch, w.workers, float(w.amount)) for net, ways in (("mlp", campaign.MLP), ("cnn", campaign.CNN)) for w in ways]
    assert [campaign.key(row) for row in rows] == wanted
    for row in rows:
        seeds = [int(each) for each in row["iterations_by_seed"].split(";")]
        assert len(seeds) == len(campaign.SEEDS[row["network"]]) and min(seeds) > 0
        assert float(row["iterations"]) == pytest.approx(math.exp(sum(map(math.log, seeds)) / len(seeds)), abs=0.06)
        assert float(row["target_accuracy"]) == campaign.TARGET and row["torch"] and row["sklearn"] and row["taken"]
        tried = [float(each) for each in row["rates_tried"].split(";")]
        assert tried == list(RATES) and tried[0] < float(row["learning_rate"]) < tried[-1], "the best rate lies inside the grid"
    assert sum(float(row["seconds"]) for row in rows) < 15 * 60


def test_an_interrupted_campaign_measures_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(campaign, "measure", lambda net, way, target, seeds: asked.append((net, way)))
    path = tmp_path / "convergence.csv"
    whole = campaign.MEASURED.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(whole[:-2]), encoding="utf-8")
    campaign.run(path)
    assert asked == [("cnn", way) for way in campaign.CNN[-2:]] and len(campaign.rows(path)) == len(whole) - 1


def test_the_models_errors_on_what_it_was_not_fitted_on_stay_where_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = script()
    assert module.main(tmp_path) == 0
    printed = capsys.readouterr().out
    assert "fitted" in printed and "predicted" in printed and (tmp_path / "convergence.png").stat().st_size > 10_000
    with open(tmp_path / "convergence.csv", newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(campaign.rows()) and {row["use"] for row in rows} == {"fitted", "predicted"}
    worst = {way: max(abs(float(r["error"])) for r in rows if r["way"] == way and r["use"] == "predicted") for way in module.SETTING}
    assert worst["sync"] < 0.25 and worst["stale"] < 0.30 and worst["local"] < 0.30 and worst["elastic"] < 0.33 and worst["sparse"] < 0.40


def test_eight_workers_in_step_train_as_one_process_does_on_the_whole_batch() -> None:
    alone, together = after(Way("sync", 64, 1), 20), after(Way("sync", 64, 8), 20)
    assert torch.allclose(alone, together, atol=1e-5)


def test_one_process_of_plain_pytorch_gives_the_same_parameters() -> None:
    net, data = NETS["mlp"], digits()
    order = batches(len(data.train_digits), 64, (1, 2))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(net.initial(1), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(20):
        chosen = next(order)[0]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data.train_images[chosen]), data.train_digits[chosen]).backward()
        optimizer.step()
    expected = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    assert torch.allclose(after(Way("sync", 64, 8), 20)[0], expected, atol=1e-5)


@pytest.mark.parametrize("exact", [Way("stale", 64, 8, 0), Way("local", 64, 8, 1), Way("sparse", 64, 8, 1.0)])
def test_an_inexact_way_whose_amount_is_nothing_is_synchronous(exact: Way) -> None:
    assert torch.allclose(after(exact, 12), after(Way("sync", 64, 8), 12), atol=1e-5)


def test_the_first_gradients_of_a_delay_are_those_of_the_start() -> None:
    # with delay 2 the first three updates all use the start's parameters: after three, start - rate * (sum of three gradients there)
    net, data = NETS["mlp"], digits()
    start = torch.stack([net.initial(seed) for seed in (1, 2)])
    gradients, order = Gradients(net, data, 1), batches(len(data.train_digits), 16, (1, 2))
    expected = start - 0.5 * sum(gradients(start.unsqueeze(1), next(order))[:, 0] for _ in range(3))
    assert torch.allclose(after(Way("stale", 16, 1, 2), 3), expected, atol=1e-6)


def test_a_density_of_one_per_cent_moves_one_per_cent_of_the_parameters() -> None:
    # one worker, first iteration: its largest 1 % of 2410 gradients, 24, are sent and move as many parameters
    net = NETS["mlp"]
    start = torch.stack([net.initial(seed) for seed in (1, 2)])
    moved = (after(Way("sparse", 64, 1, 0.01), 1) != start).sum(1)
    assert moved.tolist() == [round(0.01 * net.num_parameters)] * 2


def test_training_reaches_the_target_and_a_larger_batch_sooner() -> None:
    small = measure("mlp", Way("sync", 16, 1), 0.85, seeds=(1, 2, 3), rates=(0.25, 0.5))
    large = measure("mlp", Way("sync", 128, 1), 0.85, seeds=(1, 2, 3), rates=(0.5, 1.0))
    assert small is not None and large is not None and large.mean < small.mean
