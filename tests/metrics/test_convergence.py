"""Time to accuracy: laws of the model, both ways in (Python, scenario), and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim import cli
from poseidon_sim.metrics.convergence import BASES
from poseidon_sim.report.tables import compare_text, run_text

POSITIVE = st.floats(1e-3, 1e6)
CURVES = st.dictionaries(st.integers(1, 10**6), st.floats(1.0, 1e7), min_size=1, max_size=6).map(
    lambda points: tuple(zip(sorted(points), sorted(points.values(), reverse=True), strict=True))
)
MODELS = st.one_of(
    st.builds(ps.Convergence, min_steps=POSITIVE, min_samples=POSITIVE, staleness_penalty=st.floats(0, 3)),
    st.builds(ps.Convergence, curve=CURVES, staleness_penalty=st.floats(0, 3)),
)
SCENARIO = {
    "model": {"name": "vgg19", "single_gpu_throughput": 32},
    "cluster": {"nodes": 4, "gpu": "titan-x-maxwell", "network": "10 Gbit/s"},
    "strategy": "poseidon",
    "batch_size": 32,
    "price_per_gpu_hour": "2 USD/h",
    "convergence": {"min_steps": 1000, "critical_batch": 128, "staleness_penalty": 0.5, "source": "made up"},
}


@settings(max_examples=60, deadline=None)
@given(MODELS, st.floats(0.5, 1e7), st.floats(1.0, 100.0), st.floats(0, 8))
def test_a_larger_batch_never_needs_more_iterations(model: ps.Convergence, batch: float, times: float, staleness: float) -> None:
    fewer = model.iterations(batch * times, staleness=staleness)
    assert fewer <= model.iterations(batch, staleness=staleness) * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.builds(ps.Convergence, min_steps=POSITIVE, min_samples=POSITIVE), st.floats(0.5, 1e7), st.floats(1.0, 100.0))
def test_a_smaller_batch_never_needs_more_samples(model: ps.Convergence, batch: float, times: float) -> None:
    assert batch * model.iterations(batch) <= batch * times * model.iterations(batch * times) * (1 + 1e-12)


def test_at_the_critical_batch_twice_the_fewest_iterations_and_samples_are_needed() -> None:
    # McCandlish et al. 2018, eq. 5.1: (steps / fewest - 1) * (samples / fewest - 1) = 1 at every batch
    law = ps.Convergence(min_steps=700, min_samples=700 * 96)
    assert law.critical_batch == 96 and law.iterations(96) == 2 * 700 and 96 * law.iterations(96) == 2 * law.min_samples
    for batch in (1, 8, 96, 1000, 10**6):
        steps = law.iterations(batch)
        assert (steps / 700 - 1) * (steps * batch / (700 * 96) - 1) == pytest.approx(1)


def test_penalties_are_what_their_names_say() -> None:
    law = ps.Convergence(
        min_steps=1000, min_samples=64_000, staleness_penalty=1.5, local_steps_exponent=0.2, sparsity_exponent=0.1, factor=1.25,
    )  # fmt: skip
    exact = 1.25 * (1000 + 64_000 / 64)
    assert law.iterations(64) == exact
    assert law.iterations(64, staleness=2) == 1.25 * (1000 * (1 + 1.5 * 2) + 1000)  # late gradients act on min_steps alone
    assert law.iterations(64, local_steps=8) == pytest.approx(exact * 8**0.2)
    assert law.iterations(64, density=0.01) == pytest.approx(exact * 100**0.1)


def test_a_curve_goes_through_its_points_and_keeps_samples_below_and_iterations_above() -> None:
    model = ps.Convergence(curve=((64, 4000), (256, 1000), (1024, 800)), basis="measured")
    assert [model.iterations(batch) for batch in (64, 256, 1024)] == pytest.approx([4000, 1000, 800])
    assert model.iterations(128) == pytest.approx(2000)  # halfway on logarithms
    assert model.iterations(32) == 8000 and model.iterations(10**5) == 800
    assert "kept" in model.doubts(32)[0] and "kept" in model.doubts(2048)[0] and not model.doubts(128)


@settings(max_examples=20, deadline=None)
@given(st.floats(10, 1e5), st.floats(1, 1e4))
def test_fitting_finds_the_law_that_made_the_points(steps: float, critical: float) -> None:
    points = [(critical * share, steps * (1 + 1 / share)) for share in (0.1, 0.5, 2, 10)]
    law = ps.fit_convergence(points, target="95 %")
    assert law.min_steps == pytest.approx(steps, rel=1e-4) and law.critical_batch == pytest.approx(critical, rel=1e-4)
    assert law.basis == "fitted" and law.target == "95 %"


def test_time_to_accuracy_is_iterations_times_step_and_costs_the_price_of_that_time() -> None:
    run = ps.simulate(ps.load_scenario(SCENARIO))
    found = run.to_accuracy
    assert found is not None and run.global_batch == pytest.approx(128)
    assert found.iterations == pytest.approx(2000) and found.samples == pytest.approx(2000 * 128)
    assert found.seconds == pytest.approx(2000 * run.step_time) and found.hours == pytest.approx(found.seconds / 3600)
    assert found.cost == pytest.approx(4 * 2.0 * found.hours)
    assert found.basis == "assumed" and f"to accuracy  {found}" in run_text(run) and "(iterations assumed: made up)" in run_text(run)
    assert "assumed" in str(run) and run.to_dict()["time_to_accuracy_s"] == found.seconds


def test_iterations_and_epochs_that_a_paper_states_are_given_and_taken_as_they_are() -> None:
    run = ps.simulate(ps.load_scenario({**SCENARIO, "strategy": {"name": "parameter-server", "staleness": 3}}))
    by_iterations = ps.time_to_accuracy(run, iterations=450_000, source="its table 2")
    assert by_iterations.seconds == pytest.approx(450_000 * run.step_time) and by_iterations.words == "iterations given: its table 2"
    by_epochs = ps.time_to_accuracy(run, epochs=90, dataset_size=1_281_167)
    assert by_epochs.iterations == pytest.approx(90 * 1_281_167 / 128) and by_epochs.basis == "given"
    assert by_epochs.samples == pytest.approx(90 * 1_281_167)
    for wrong in ({}, {"epochs": 90}, {"iterations": 1, "epochs": 2, "dataset_size": 3}, {"convergence": ps.Convergence(1.0), "iterations": 1}):
        with pytest.raises(ps.InputError, match="exactly one of the three"):
            ps.time_to_accuracy(run, **wrong)  # type: ignore[arg-type]


def test_the_strategy_says_how_it_trains_and_a_penalty_that_is_missing_is_a_warning() -> None:
    def iterations(strategy: object, **more: object) -> float:
        run = ps.simulate(ps.load_scenario({**SCENARIO, "strategy": strategy}, **{f"convergence.{k}": v for k, v in more.items()}))
        assert run.to_accuracy is not None
        return run.to_accuracy.iterations

    stale = {"name": "parameter-server", "staleness": 2}
    assert iterations(stale) == pytest.approx(1000 * (1 + 0.5 * 2) + 1000)
    assert iterations(stale, staleness=1) == pytest.approx(1000 * 1.5 + 1000)
    assert iterations({"name": "local-sgd", "local_steps": 4}, local_steps_exponent=0.5) == pytest.approx(2 * 2000)
    run = ps.simulate(ps.load_scenario({**SCENARIO, "strategy": {"name": "local-sgd", "local_steps": 4}}))
    assert any("convergence.local_steps_exponent is not given" in text for text in run.warnings)
    with pytest.raises(ps.InputError, match=r"convergence\.staleness is missing"):
        iterations({"name": "parameter-server", "staleness": math.inf})
    assert iterations({"name": "parameter-server", "staleness": math.inf}, staleness=1) == pytest.approx(2500)


def test_comparing_ranks_by_time_to_accuracy_when_iterations_are_known() -> None:
    cheap_steps = {**SCENARIO, "cluster": {**SCENARIO["cluster"], "network": "1 Gbit/s"}}  # type: ignore[dict-item]
    names = ["all-reduce", {"name": "local-sgd", "local_steps": 4}]
    by_step = ps.compare(ps.load_scenario({k: v for k, v in cheap_steps.items() if k != "convergence"}), names)
    assert by_step[0].strategy.name == "local-sgd" and "longer per step" in compare_text(by_step)
    runs = ps.compare(ps.load_scenario(cheap_steps, **{"convergence.local_steps_exponent": 2.0}), names)
    assert [run.strategy.name for run in runs] == ["all-reduce", "local-sgd"]
    text = compare_text(runs)
    assert "to accuracy  " in text and "longer to accuracy" in text and "iterations assumed: made up" in text


def test_the_command_line_prints_time_to_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(SCENARIO))
    assert cli.run(["simulate", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["time_to_accuracy_s"] == pytest.approx(found["iterations_to_accuracy"] * found["step_time_s"])
    assert found["accuracy_basis"] == "assumed" and found["cost_to_accuracy"] > 0
    assert cli.run(["compare", str(path), "--strategies", "poseidon,all-reduce"]) == 0
    assert "to accuracy" in capsys.readouterr().out
    assert cli.run(["sweep", str(path), "batch_size=8,32", "-o", str(tmp_path / "sweep")]) == 0
    assert "time_to_accuracy_s" in (tmp_path / "sweep" / "results.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("given_text", "basis"),
    [
        ({"min_steps": 10, "critical_batch": 64}, "assumed"), ({"min_steps": 10, "critical_batch": 64, "basis": "fitted"}, "fitted"),
        ({"iterations": 10}, "given"), ({"epochs": 10, "dataset_size": 5000}, "given"), ({"curve": [[32, 100], [64, 60]]}, "measured"),
    ],
)  # fmt: skip
def test_every_way_to_say_iterations_carries_its_mark(given_text: dict[str, object], basis: str) -> None:
    found = ps.load_scenario({**SCENARIO, "convergence": given_text}).convergence
    assert found is not None and found.basis == basis and basis in BASES


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "says no iterations; give min_steps and critical_batch"),
        ({"min_steps": 10}, "convergence.critical_batch is missing"),
        ({"epochs": 10}, "convergence.dataset_size is missing"),
        ({"iterations": 10, "epochs": 3, "dataset_size": 5}, "iterations, epochs, dataset_size are given"),
        ({"iterations": -1}, "convergence.iterations=-1: must be above 0"),
        ({"iterations": "many"}, "must be a number"),
        ({"iterations": float("nan")}, "convergence.iterations=nan"),
        ({"iteration": 10}, "did you mean 'iterations'"),
        ({"iterations": 10, "basis": "guessed"}, "must be assumed, given, measured or fitted"),
        ({"iterations": 10, "staleness_penalty": -1}, "convergence.staleness_penalty=-1"),
        ({"curve": [[64, 60], [32, 100]]}, "global batches must rise"),
        ({"curve": [[64, 0]]}, "both must be above 0"),
        ({"curve": []}, "needs a curve"),
        (7, "must be a mapping of keys"),
    ],
)
def test_what_makes_no_sense_is_refused_in_the_users_words(wrong: object, says: str) -> None:
    with pytest.raises(ps.InputError) as caught:
        ps.load_scenario({**SCENARIO, "convergence": wrong})
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_curve_is_read_from_a_table_whose_other_columns_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("seed,global_batch,iterations\n1,256,1000\n2,64,4000\n")
    assert ps.read_curve(path) == ((64.0, 4000.0), (256.0, 1000.0))
    found = ps.load_scenario({**SCENARIO, "convergence": {"curve": str(path)}}).convergence
    assert found is not None and found.iterations(64) == 4000
    for text in ("", "a,b\n1,2\n", "global_batch,iterations\n", "global_batch,iterations\n8,many\n", "global_batch,iterations\n8\n"):
        path.write_text(text)
        with pytest.raises(ps.UnreadableFileError, match=r"curve\.csv"):
            ps.read_curve(path)
    with pytest.raises(ps.UnreadableFileError, match="cannot be read"):
        ps.read_curve(tmp_path / "none.csv")
    path.write_text("global_batch,iterations\n8,10\n8,12\n")
    with pytest.raises(ps.InputError, match="each given once"):
        ps.read_curve(path)


@pytest.mark.parametrize("wrong", [
    {}, {"min_steps": -1.0}, {"min_steps": math.nan}, {"min_steps": 1.0, "curve": ((1.0, 1.0),)}, {"min_steps": 1.0, "factor": 0.0},
    {"min_steps": 1.0, "basis": "hoped"}, {"min_steps": math.inf},
])  # fmt: skip
def test_a_convergence_that_makes_no_sense_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(ps.InputError, match="convergence"):
        ps.Convergence(**wrong)  # type: ignore[arg-type]


def test_nonsense_about_a_run_is_refused() -> None:
    law = ps.Convergence(min_steps=10)
    for how in ({"staleness": -1.0}, {"local_steps": 0.5}, {"density": 0.0}, {"density": 2.0}):
        with pytest.raises(ps.InputError, match="must be at least 0"):
            law.iterations(8, **how)
    with pytest.raises(ps.InputError, match="global_batch"):
        replace(law, min_samples=5.0).iterations(0)
    for points in ([], [(8, 10)], [(8, 10), (8, 11)], [(8, 0), (16, 5)]):
        with pytest.raises(ps.InputError, match="two or more global batches"):
            ps.fit_convergence(points)
