"""Every system of the literature list: what is modelled, what is simplified, every published row beside ours; one page.

    poseidon-sim reproduce report      # prints the table; the page goes to out/report/REPORT.md
    python experiments/report.py       # the same into experiments/REPORT.md, as it is kept with the sources

A row of the published file that no script speaks of is an error.
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from published import FLAGS, HERE, Row, flag_of, summary, targets

import poseidon_sim as ps

#: above these a system is named as missing its aim (rows that are not recalled or second-hand)
AIM_MEDIAN, AIM_WORST = 0.05, 0.10


@dataclass(frozen=True)
class System:
    """One system: the scripts that hold its rows, and the strategies that model it."""

    title: str
    scripts: tuple[str, ...]
    strategies: tuple[str, ...]


SYSTEMS = (
    System("Poseidon (Zhang et al., ATC'17), with Caffe, Adam and 1-bit", ("poseidon",), ("poseidon", "sufficient-factor-broadcast", "parameter-server", "adam", "one-bit")),
    System("AxoNN (Singh and Bhatele, IPDPS'22)", ("axonn",), ("axonn",)),
    System("FPDeep (Geng et al.)", ("fpdeep",), ("fpdeep",)),
    System("Limits of parallelising CNNs (Pourghassemi et al., SPAA'20)", (), ("multi-stream",)),
    System("DDP, FSDP and parameter servers (Ovi, 2025)", ("ovi",), ("ddp", "fsdp", "parameter-server")),
    System("PowerAI DDL (Cho et al., 2017)", ("ddl",), ("ddl",)),
    System("GradientFlow (Sun et al., 2019)", ("gradientflow",), ("gradientflow",)),
    System("Poseidon for PDEs (Herde et al., 2024), a workload", ("poseidon_pde",), ("ddp",)),
    System("Poplar (Zhang et al., AAAI'25)", ("poplar",), ("poplar",)),
    System("Shi, Chu et al.: frameworks, MG-WFBP, gTop-k, contention, ASC-WFBP", ("shi",), ("mg-wfbp", "asc-wfbp", "top-k", "all-reduce")),
    System("Decentralized Diffusion Models (McAllister et al., 2025)", ("decentralized_diffusion",), ("decentralized-diffusion",)),
    System("ChainerMN (Akiba et al., 2017)", ("chainermn",), ("chainermn",)),
    System("Theano-MPI (Ma et al., 2016)", ("theano_mpi",), ("theano-mpi",)),
    System("EASGD on GPUs and KNL (You et al., SC'17)", ("easgd",), ("easgd", "sync-easgd")),
    System("FusionLLM (Tang et al., 2024)", ("fusionllm",), ("fusionllm",)),
    System("FireCaffe (Iandola et al., CVPR'16)", ("fire_caffe",), ("fire-caffe",)),
    System("Recurrent networks at Princeton (Svyatkovskiy et al., 2017)", ("frnn",), ("frnn",)),
    System("ParDNN (Qararyah et al., 2021)", ("par_dnn",), ("par-dnn",)),
    System("TPA-SCD (Parnell et al., 2017)", ("tpa_scd",), ("tpa-scd",)),
)  # fmt: skip


def rows_of(system: System) -> list[Row]:
    """Return all rows that the scripts of a system hold, in one shape."""
    found = []
    for script in system.scripts:
        for row in importlib.import_module(script).rows():
            if isinstance(row, Row):
                found.append(row)
                continue
            use = "counted" if row.use == "exact" else row.use
            found.append(Row(row.id, row.what, row.published, row.predicted, use, flag_of(row.confidence), row.reason))
    return found


def simplified(strategy: str) -> str:
    """Return the line 'Simplified: ...' that opens a strategy's file."""
    text = " ".join((sys.modules[ps.strategy_class(strategy).__module__].__doc__ or "").split())
    match = re.search(r"Simplified: (.*)", text)
    return match[1] if match else "nothing"


def uncovered(tables: dict[str, list[Row]]) -> list[str]:
    """Return the ids of published rows that stand in no table."""
    known = {row.id for table in tables.values() for row in table}
    return [line["id"] for line in targets("") if line["id"] not in known]


def page(tables: dict[str, list[Row]]) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Every system, its own numbers beside ours", "",
        "Made by `python experiments/report.py`; do not edit. Errors are predicted / published - 1. `fitted`: a number was chosen by the",
        "row; `predicted`: none was; `given`: an input; `counted`: bytes or rounds, no time. Medians and worst errors leave out rows that",
        f"are recalled or second-hand. The aim is a median of {AIM_MEDIAN:.0%} and a worst of {AIM_WORST:.0%} per system; what misses it is",
        "named, with the mechanism we suspect.", "",
        "| system | strategies | rows | predicted | median | worst | fitted | not modelled | aim |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    lines += [_line(system, tables[system.title]) for system in SYSTEMS]
    for system in SYSTEMS:
        lines += ["", f"## {system.title}", ""]
        for name in system.strategies:
            lines.append(f"* `{name}`: {ps.strategy_class(name).summary}. Simplified: {simplified(name)}")
        lines += ["", *summary(tables[system.title]), ""]
        if tables[system.title]:
            lines += ["| id | what | published | ours | error | use | flag | remark |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
        for row in tables[system.title]:
            ours, error = "" if row.predicted is None else f"{row.predicted:.4g}", "" if row.error is None else f"{row.error:+.1%}"
            lines.append(f"| {row.id} | {row.what} | {row.published:.4g} | {ours} | {error} | {row.use} | {row.flag} | {row.reason} |")
    return "\n".join(lines) + "\n"


def _errors(table: list[Row], use: str) -> list[float]:
    return sorted(abs(r.error) for r in table if r.use == use and r.error is not None and r.flag in FLAGS[:3])


def _line(system: System, table: list[Row]) -> str:
    errors = _errors(table, "predicted")
    middle, worst = (errors[len(errors) // 2], errors[-1]) if errors else (None, None)
    aim = "" if middle is None or worst is None else "met" if middle <= AIM_MEDIAN and worst <= AIM_WORST else "missed"
    shown = [f"{len(errors)}", *("" if x is None else f"{x:.1%}" for x in (middle, worst))]
    rest = (len(_errors(table, "fitted")), sum(r.use == "not modelled" for r in table))
    names = ", ".join(f"`{name}`" for name in system.strategies)
    return f"| {system.title} | {names} | {len(table)} | {' | '.join(shown)} | {rest[0]} | {rest[1]} | {aim} |"


def main(out_dir: Path, path: Path | None = None) -> int:
    """Print the table per system, write the page; 1 when a published row stands nowhere."""
    tables = {system.title: rows_of(system) for system in SYSTEMS}
    text = page(tables)
    target = path or out_dir / "REPORT.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    print("\n".join(line for line in text.splitlines()[9 : 12 + len(SYSTEMS)]))
    missing = uncovered(tables)
    for name in missing:
        print(f"MISSING: {name} stands in no script")
    print(f"report: {target}")
    return int(bool(missing))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    raise SystemExit(main(Path("out/report"), HERE / "REPORT.md"))
