"""The command line: a thin face on the public names. Answers on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from poseidon_sim.errors import InputError, PoseidonSimError, nearest, unknown_name

INTERRUPTED = 130
#: how often a sweep says how far it is when nobody watches a terminal
QUIET_SECONDS = 10.0
#: typer's own, wherever its version keeps it: click's, or a copy inside typer
UsageError: type[Any] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "UsageError")

app = typer.Typer(
    help="Predict how distributed deep-learning training scales, before buying the cluster.",
    no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip

Changes = Annotated[Optional[list[str]], typer.Argument(metavar="[KEY=VALUE]...", help="changes, e.g. nodes=16 cluster.network.bandwidth=40Gbit/s")]  # noqa: UP045
ScenarioPath = Annotated[str, typer.Argument(metavar="SCENARIO", help="scenario file (YAML or TOML), or - for standard input")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, allow_nan=False, default=str))


def _load(scenario: str, changes: list[str] | None) -> Any:
    from poseidon_sim.scenario import load_scenario, parse_changes

    return load_scenario(scenario, **parse_changes(changes or []))


@app.command()
def simulate(
    scenario: ScenarioPath,
    changes: Changes = None,
    as_json: Json = False,
    timeline: Annotated[Optional[Path], typer.Option(metavar="FILE", help="write a timeline for the Perfetto UI (.json or .json.gz)")] = None,  # noqa: UP045
    engine: Annotated[str, typer.Option(help="auto, reference or fast")] = "auto",
    detail: Annotated[str, typer.Option(help="folded, nodes or rounds")] = "folded",
    check: Annotated[bool, typer.Option("--check", help="assert the engine's invariants")] = False,
) -> None:
    """Predict one scenario: step time, throughput, where the time goes and what limits it."""
    from poseidon_sim.simulation import simulate as run_simulation

    run = run_simulation(_load(scenario, changes), engine=engine, detail=detail, check=check)
    if timeline is not None:
        run.save_timeline(_writable(timeline))
        _say(f"timeline written to {timeline}; open it at ui.perfetto.dev")
    if as_json:
        for text in run.warnings:
            _say(f"warning: {text}")
        _print_json(run.to_dict())
    else:
        from poseidon_sim.report.tables import run_text

        print(run_text(run))


@app.command()
def compare(
    scenario: ScenarioPath,
    changes: Changes = None,
    strategies: Annotated[str, typer.Option(help="names, separated by commas")] = "",
    as_json: Json = False,
) -> None:
    """Rank strategies on one scenario."""
    from poseidon_sim.planner import ranking
    from poseidon_sim.report.tables import compare_text
    from poseidon_sim.strategy.registry import strategy_class

    names = [name.strip() for name in strategies.split(",") if name.strip()]
    for name in names:
        strategy_class(name)
    found = ranking(_load(scenario, changes), names)
    if as_json:
        ranked = [run.to_dict() for run in found.runs]
        _print_json({"ranking": ranked, "winner": found.winner.strategy.name, "refused": list(found.refused)})
    else:
        print(compare_text(found.runs, found.refused))


@app.command()
def sweep(
    scenario: ScenarioPath,
    grid: Annotated[list[str], typer.Argument(metavar="KEY=V1,V2,...", help="values of each axis, e.g. nodes=1,2,4 strategy=poseidon,all-reduce")],
    out: Annotated[Path, typer.Option("-o", "--out", help="folder for results.csv; an unfinished sweep there is resumed")],
    jobs: Annotated[int, typer.Option(help="worker processes")] = 1,
    backend: Annotated[str, typer.Option(help="processes (this machine), or dask or ray (a cluster, through joblib)")] = "processes",
) -> None:
    """Simulate every combination of a grid; finished rows survive an interruption."""
    from poseidon_sim.planner import sweep as run_sweep
    from poseidon_sim.scenario import load_scenario, parse_grid

    axes = parse_grid(grid)
    base = load_scenario(scenario)
    _writable(out / "results.csv")
    with _progress() as progress:
        path = run_sweep(base.raw, axes, out, jobs=jobs, progress=progress, backend=backend)
    errors = _errors(path)
    if errors:
        _say(f"{len(errors)} rows could not be simulated (column error); the first: {errors[0]}")
    print(path)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show how far a sweep is, at what rate, and the time left: a bar on a terminal, else a line every few seconds."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("scenarios, {task.fields[rate]}"), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            row = bar.add_task("sweep", total=None, rate="")
            began, first = time.monotonic(), -1

            def show(done: int, total: int) -> None:
                nonlocal first
                first = done if first < 0 else first
                rate = (done - first) / max(1e-9, time.monotonic() - began)
                bar.update(row, completed=done, total=total, rate=f"{rate:.0f}/s" if done > first else "")

            yield show
        return
    began = said = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= QUIET_SECONDS or (done == total and said > began):
            said = now
            _say(f"{done} of {total} scenarios after {now - began:.0f} s")

    yield tell


def _errors(path: Path) -> list[str]:
    import csv

    with open(path, newline="", encoding="utf-8") as lines:
        return [row["error"] for row in csv.DictReader(lines) if row["error"]]


@app.command(name="monte-carlo")
def monte_carlo(
    scenario: ScenarioPath,
    changes: Changes = None,
    draws: Annotated[int, typer.Option(help="how many seeds, from cluster.seed on")] = 100,
    jobs: Annotated[int, typer.Option(help="worker processes")] = 1,
    as_json: Json = False,
) -> None:
    """Simulate many draws of cluster.jitter and say how step times spread."""
    from poseidon_sim.planner import monte_carlo as run_draws

    spread = run_draws(_load(scenario, changes), draws, jobs)
    if as_json:
        _print_json(spread.to_dict())
    else:
        print(spread)


@app.command()
def calibrate(
    logs: Annotated[list[str], typer.Argument(metavar="FILE...", help="logs of nccl-tests, OSU, ib_write_bw, iperf3 -J")],
    line_rate: Annotated[str, typer.Option(help="the port's rate, e.g. 25Gbit/s: bandwidth and efficiency are then told apart")] = "",
    ranks: Annotated[Optional[int], typer.Option(help="processes, one a node, of collectives whose logs do not tell (OSU)")] = None,  # noqa: UP045
    out: Annotated[Optional[Path], typer.Option("-o", "--out", help="YAML file to write instead of printing it")] = None,  # noqa: UP045
    as_json: Json = False,
) -> None:
    """Turn benchmark logs into cluster parameters, each with its source and residual."""
    from poseidon_sim.calibration import calibrate as fit
    from poseidon_sim.calibration import read_measurements
    from poseidon_sim.units import parse_rate

    rows = [row for log in logs for row in read_measurements(log)]
    found = fit(rows, parse_rate(line_rate, "--line-rate") if line_rate else None, ranks)
    if as_json:
        _print_json(found.to_dict())
    elif out is not None:
        _writable(out)
        out.write_text(f"{found}\n", encoding="utf-8")
        print(out)
    else:
        print(found)


@app.command()
def profile(
    target: Annotated[str, typer.Argument(metavar="MODULE:CALLABLE", help="returns a torch model, or (model, example inputs); file.py:name works too")],
    batch_size: Annotated[int, typer.Option(help="samples per iteration; the times hold for this batch")],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1")] = "auto",
    input_shape: Annotated[str, typer.Option("--input", help="shape of one sample, e.g. 3,224,224, if no example inputs are returned")] = "",
    repeats: Annotated[int, typer.Option(help="iterations of which medians are taken")] = 20,
    out: Annotated[Optional[Path], typer.Option("-o", "--out", help="model file to write instead of printing it")] = None,  # noqa: UP045
    as_json: Json = False,
) -> None:
    """Measure a torch model layer by layer and write it as a model file."""
    from poseidon_sim.calibration.profile import profile_model

    sizes = input_shape.replace(" ", "").split(",") if input_shape else []
    if any(not size.isdecimal() or int(size) < 1 for size in sizes):
        raise InputError(f"--input {input_shape}: must be whole numbers with commas, for example 3,224,224")
    if out is not None:
        _writable(out)
    shape = tuple(int(size) for size in sizes) or None
    found = profile_model(target, batch_size, device=device, input_shape=shape, repeats=repeats)
    for note in found.notes:
        _say(note)
    if out is not None:
        out.write_text(f"{found}\n", encoding="utf-8")
    if as_json:
        _print_json(found.to_dict())
    else:
        print(found if out is None else out)


@app.command()
def plot(
    source: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="a sweep's folder, its results.csv, or a scenario (timeline)")],
    kind: Annotated[str, typer.Option(help="scaling, breakdown, timeline, winner or traffic")] = "scaling",
    out: Annotated[Optional[Path], typer.Option("-o", "--out", help="picture to write (.png); an .svg and a .csv go beside it")] = None,  # noqa: UP045
) -> None:
    """Draw a figure from a sweep or a scenario."""
    from poseidon_sim.report.plots import KINDS, plot_file

    if kind not in KINDS:
        raise unknown_name("kind of figure", kind, KINDS)
    if out is not None:
        _writable(out)
    print(plot_file(source, kind, out))


@app.command()
def advise(
    scenario: ScenarioPath,
    changes: Changes = None,
    nodes: Annotated[str, typer.Option(help="candidate sizes, e.g. 4,8,16")] = "",
    networks: Annotated[str, typer.Option(help="candidate networks, e.g. 10Gbit/s,40Gbit/s")] = "",
    strategies: Annotated[str, typer.Option(help="candidate strategies; the exact ones if not given")] = "",
    objective: Annotated[str, typer.Option(help="throughput, cost or time")] = "throughput",
    as_json: Json = False,
) -> None:
    """Say which strategy to pick on which cluster, by what margin, and where the answer changes."""
    from poseidon_sim.planner import advise as give_advice
    from poseidon_sim.scenario import parse_grid

    def values(option: str, name: str) -> list[Any] | None:
        return parse_grid([f"{name}={option}"])[name] if option else None

    sizes = values(nodes, "nodes")
    for size in sizes or []:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError(f"--nodes {nodes}: {size!r} is not a number of nodes; write whole numbers, for example 4,8,16")
    advice = give_advice(_load(scenario, changes), sizes, values(networks, "networks"), values(strategies, "strategies"), objective)
    if as_json:
        _print_json(advice.to_dict())
    else:
        print(advice)


@app.command(name="list")
def list_names(
    what: Annotated[str, typer.Argument(help="models, gpus, links, strategies or collectives")],
    as_json: Json = False,
) -> None:
    """List what the toolkit knows by name."""
    from poseidon_sim.report.catalog import CATALOGS, catalog

    if what not in CATALOGS:
        raise unknown_name("list", what, CATALOGS)
    rows = catalog(what)
    if as_json:
        _print_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}}  {row['summary']}")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="an experiment, or all")] = "all",
    out: Annotated[Path, typer.Option("-o", "--out", help="folder for tables and pictures")] = Path("out"),
) -> None:
    """Run a paper's experiment: published, predicted, error, and whether a row was used to fit."""
    from poseidon_sim.report.scripts import run_scripts

    raise typer.Exit(run_scripts("experiments", name, out))


@app.command()
def validate(
    name: Annotated[str, typer.Argument(help="a comparison, or all")] = "all",
    as_json: Json = False,
) -> None:
    """Hold predictions against measurements that ship with the toolkit."""
    from poseidon_sim.report.scripts import run_scripts

    raise typer.Exit(run_scripts("validation", name, Path("out"), as_json=as_json))


def _writable(path: Path) -> Path:
    """Refuse an output path that cannot be written before any work is done."""
    folder = path.parent if path.suffix else path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot write there ({error.strerror}); give another place") from None
    if not os.access(folder, os.W_OK) or path.is_dir():
        raise InputError(f"{path}: cannot write there; give another place")
    return path


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    if version:
        from poseidon_sim import __version__

        print(f"poseidon-sim {__version__}")
        raise typer.Exit()


def main() -> None:
    """Entry point: run a command and turn every outcome into the stated exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code: 0 fine, 1 check failed, 2 bad input, 3 unreadable, 4 infeasible, 130 interrupted."""

    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = lambda message, *_: _say(f"warning: {message}")
            result = app([a for a in arguments if a != "--debug"], standalone_mode=False)
        sys.stdout.flush()
        if result == INTERRUPTED:  # typer turns Ctrl-C into this code
            raise KeyboardInterrupt
        return int(result or 0)
    except PoseidonSimError as error:
        if debug:
            raise
        _say(f"error: {error}")
        return error.exit_code
    except UsageError as error:
        _say(f"error: {_usage(error)}")
        return 2
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted; finished rows of a sweep are kept, the same command goes on from there")
        return INTERRUPTED
    except MemoryError:
        if debug:
            raise
        _say("error: this takes more memory than the machine has; fewer nodes that differ, or detail=folded, take less")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug:
            raise
        _say(f"error: {error.filename or 'a file'}: {error.strerror}; give another place")
        return 3


def _usage(error: Any) -> str:
    """Add the nearest command to click's message about an unknown one."""
    message = str(error.format_message())
    known = [command.name or (command.callback.__name__ if command.callback else "") for command in app.registered_commands]
    if "No such command" in message:
        given = message.split("'")[1]
        close = nearest(given, known)
        return f"unknown command {given!r}" + (f"; did you mean {close!r}?" if close else ".") + f" Known: {', '.join(sorted(known))}"
    return message


if __name__ == "__main__":
    main()
