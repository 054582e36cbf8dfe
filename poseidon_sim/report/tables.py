"""Plain-text and Markdown tables of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from poseidon_sim.metrics import bytes_received, bytes_sent, link_uses, node_traffic
from poseidon_sim.metrics.trust import TRUST_WORDS, said_of

if TYPE_CHECKING:
    from poseidon_sim.simulation import Run

#: a difference in step time below this share is called a tie
TIE = 0.005
#: the busiest links and the largest blames that a report lists
MOST = 5
BAR = 24


def run_text(run: Run) -> str:
    """Return the report of one run: headline, where the time goes, the critical path, traffic, warnings."""
    lines = [
        _title(run),
        "",
        *_headline(run),
        "",
        *_time_lines(run),
        "",
        *_path_lines(run),
        "",
        *_traffic_lines(run),
    ]
    lines += [f"  to accuracy  {run.to_accuracy}"] if run.to_accuracy else []
    lines += [f"  limited by   {run.bottleneck}", f"  trust        {run.trust}"]
    lines += [f"  warning      {text}" for text in (*run.warnings, *run.trust.warnings)]
    return "\n".join(lines)


def run_markdown(run: Run) -> str:
    """Return the report of one run as Markdown, for issues and pull requests."""
    m = run.metrics
    rows = [
        ("step time", f"{_ms(m.step_time)} ms"),
        ("throughput", f"{m.throughput:.1f} samples/s"),
        (
            "speedup",
            f"{run.speedup:.2f} on {run.job.cluster.num_gpus} GPUs (efficiency {run.scaling_efficiency:.1%})",
        ),
        *((name, f"{_ms(seconds)} ms ({share:.1%})") for name, seconds, share in _parts(run)),
        ("sent per node and step", f"{bytes_sent(run.trace)[0] / 1e6:.1f} MB"),
        ("limited by", run.bottleneck),
        *([("to accuracy", str(run.to_accuracy))] if run.to_accuracy else []),
        ("trust", str(run.trust)),
    ]
    text = f"**{_title(run)}**\n\n{markdown_table(('figure', 'value'), rows)}"
    return text + "".join(f"\n\n> warning: {each}" for each in (*run.warnings, *run.trust.warnings))


def compare_text(runs: Sequence[Run], refused: Sequence[str] = ()) -> str:
    """Return the ranking of several runs of one job, best first, with what each loses to the first, and what could not run."""
    head, rows = _ranking(runs)
    lines = [_title(runs[0], with_strategy=False), "", *text_table(head, rows), "", verdict(runs), TRUST_WORDS]
    if runs[0].to_accuracy:
        lines.append(f"to accuracy: {runs[0].to_accuracy.words}")
    lines += [f"not possible: {text}" for text in refused]
    warned = said_of((run.strategy.name, run.warnings) for run in runs)
    return "\n".join([*lines, *(f"warning ({names}): {text}" for text, names in warned.items())])


def compare_markdown(runs: Sequence[Run]) -> str:
    """Return the ranking as a Markdown table with the verdict below it."""
    head, rows = _ranking(runs)
    return f"**{_title(runs[0], with_strategy=False)}**\n\n{markdown_table(head, rows)}\n\n{verdict(runs)}"


def verdict(runs: Sequence[Run]) -> str:
    """Say who wins and by how much, or who ties."""
    ties = [r.strategy.name for r in runs if r.decisive_time <= runs[0].decisive_time * (1 + TIE)]
    behind = [r for r in runs if r.decisive_time > runs[0].decisive_time * (1 + TIE)]
    head = (
        f"{ties[0]} wins"
        if len(ties) == 1
        else f"{', '.join(ties[:-1])} and {ties[-1]} tie (within {TIE:.1%})"
    )
    if not behind:
        return head + "."
    longer = behind[0].decisive_time / runs[0].decisive_time - 1
    until = "to accuracy" if runs[0].to_accuracy else "per step"
    return f"{head}; {behind[0].strategy.name} takes {longer:.1%} longer {until}."


def text_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0, 1, -1)
) -> list[str]:
    """Return lines with aligned columns; columns in `left` are aligned left, the others right.

    >>> text_table(("", "name", "time", "note"), [("1.", "a", "10", "x"), ("2.", "bb", "9", "y")])
    ['    name  time  note', '1.  a       10  x', '2.  bb       9  y']
    """
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lefts = {i % len(head) for i in left}
    lines = []
    for row in cells:
        padded = [
            c.ljust(w) if i in lefts else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    >>> print(markdown_table(("a", "b"), [("1", "2")]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def bar(share: float, width: int = BAR) -> str:
    """Return a bar of `share` (0 to 1) of `width` characters; half a thousandth and more shows.

    >>> bar(0.5, 8), bar(0.001, 8), bar(0.0001, 8)
    ('####', '#', '')
    """
    if share < 0.0005:
        return ""
    return "#" * max(1, min(width, round(share * width)))


def _title(run: Run, with_strategy: bool = True) -> str:
    cluster = run.job.cluster
    gpu = f" {cluster.gpu.name}" if cluster.gpu is not None else " GPU"
    strategy = f", {run.strategy.name}" if with_strategy else ""
    where = f"{cluster.nodes} node{'s' if cluster.nodes > 1 else ''} x {cluster.gpus_per_node}{gpu}"
    workload = run.job.workload
    return f"{workload.name} on {where}{strategy}, batch {run.job.batch_size} per GPU, {workload.precision} (predicted)"


def _headline(run: Run) -> list[str]:
    m, gpus = run.metrics, run.job.cluster.num_gpus
    return [
        f"  step time    {_ms(m.step_time)} ms",
        f"  throughput   {m.throughput:.1f} samples/s",
        f"  speedup      {run.speedup:.2f} on {gpus} GPU{'s' if gpus > 1 else ''} (efficiency "
        f"{run.scaling_efficiency:.1%}; against one GPU without communication)",
    ]


def _parts(run: Run) -> list[tuple[str, float, float]]:
    m = run.metrics
    named = [
        ("compute", m.compute_time), ("exposed communication", m.exposed_communication),
        ("waiting", m.wait_time),
    ]  # fmt: skip
    total = sum(seconds for _, seconds in named) or 1.0
    return [(name, seconds, seconds / total) for name, seconds in named]


def _time_lines(run: Run) -> list[str]:
    m = run.metrics
    rows = [(f"    {name}", f"{_ms(s)} ms", f"{share:.1%}", bar(share)) for name, s, share in _parts(run)]
    hidden = "no communication"
    if m.communication_time > 0:
        hidden = f"{m.overlap:.1%} of {_ms(m.communication_time)} ms communication is hidden behind compute"
    return [
        "  a GPU's step, mean over workers",
        *text_table(("", "", "", ""), rows, left=(0, 3))[1:],
        f"    overlap: {hidden}",
        *([f"    slowest GPU: {run.slowest_words}"] if run.slowest_words else []),
    ]


def _path_lines(run: Run) -> list[str]:
    total = sum(run.blame.values()) or 1.0
    shown = [(name, seconds) for name, seconds in run.blame.items() if seconds / total >= 0.0005][:MOST]
    rows = [(f"    {name}", f"{_ms(s)} ms", f"{s / total:.1%}", bar(s / total)) for name, s in shown]
    return ["  the critical path", *text_table(("", "", "", ""), rows, left=(0, 3))[1:]]


def _traffic_lines(run: Run) -> list[str]:
    sent, most = bytes_sent(run.trace)
    received, most_received = bytes_received(run.trace)
    lines = [
        f"  traffic      each node sends {sent / 1e6:.1f} MB and receives {received / 1e6:.1f} MB a step"
    ]
    if most > sent * 1.01 or most_received > received * 1.01:
        lines[0] += " (mean); most:"
        busiest = sorted(node_traffic(run.trace), key=lambda t: -(t.sent + t.received))[:3]
        lines += [
            f"               {t.where}: {t.sent / 1e6:.1f} MB out, {t.received / 1e6:.1f} MB in"
            for t in busiest
        ]
    uses = [use for use in link_uses(run.trace, run.step_time) if use.kind != "gpu" and use.amount > 0]
    if uses:
        lines.append(f"  busiest link {uses[0].name}, {uses[0].utilisation:.0%} used over the step")
    memory = run.memory
    capacity = "" if memory.capacity is None else f" of {memory.capacity / 1e9:.1f} GB"
    lines.append(f"  memory       {memory.total / 1e9:.1f} GB{capacity} per GPU (estimate)")
    if run.folding:
        lines.append(f"  folding      {run.folding}")
    if run.cost_per_million_samples is not None:
        lines.append(f"  cost         {run.price_words}")
    return lines


def _ranking(runs: Sequence[Run]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    head = (
        "", "strategy", "step", *(("to accuracy",) if runs[0].to_accuracy else ()), "to the first", "samples/s", "speedup",
        "efficiency", "exposed", "MB/node", "90 % of cases", "limited by",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for place, run in enumerate(runs, 1):
        loss = run.decisive_time / runs[0].decisive_time - 1.0
        rows.append((
            f"{place}." if loss > TIE or place == 1 else "=", run.strategy.name, f"{_ms(run.step_time)} ms",
            *((f"{run.to_accuracy.hours:,.4g} h",) if run.to_accuracy else ()),
            "" if place == 1 else f"{loss:+.1%}", f"{run.throughput:.1f}", f"{run.speedup:.2f}",
            f"{run.scaling_efficiency:.1%}", f"{_ms(run.metrics.exposed_communication)} ms",
            f"{bytes_sent(run.trace)[0] / 1e6:.1f}", run.trust.most_words, run.bottleneck,
        ))  # fmt: skip
    return head, rows


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
