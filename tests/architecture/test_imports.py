"""The import law of DESIGN.md: stages only look back, the engine has never heard of a GPU."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "poseidon_sim"

BASE = {"units", "errors"}
LAW: dict[str, set[str]] = {
    "units": {"errors"},
    "errors": set(),
    "engine": {"errors"},
    "workload": BASE,
    "cluster": BASE,
    "plan": {"cluster", "workload", "engine.program", *BASE},
    "collective": {"plan", "cluster", *BASE},
    "strategy": {"collective", "plan", "workload", "cluster", *BASE},
    "trace": {"plan", "cluster", "engine.program", *BASE},
    "calibration": {"workload", *BASE},
    "metrics": {"trace", "plan", "cluster", "workload", "engine.program", *BASE},
    "report": {"metrics", "trace", "plan", "cluster", "engine.program", *BASE},
    "analytic": {"workload", "cluster", *BASE},
    "scenario": {"workload", "cluster", "strategy", "collective", "metrics.convergence", "provenance", *BASE},
    "provenance": set(),
    "cautions": {"strategy", "plan"},
    "simulation": {
        "cautions", "scenario", "metrics", "trace", "strategy", "collective", "plan", "engine", "workload", "cluster", "provenance", *BASE,
    },
    "laws": {"simulation", "strategy", "plan", "analytic", "workload", "cluster", *BASE},
    "planner": {"simulation", "metrics", "scenario", "workload", "cluster", "strategy", "provenance", *BASE},
}  # fmt: skip


def imports_of(path: Path) -> set[str]:
    """Names of our own modules that a file imports when it runs, without the package's name (type-checking aside)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("poseidon_sim."):
            found.add(node.module.removeprefix("poseidon_sim."))
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("poseidon_sim.") for a in node.names if a.name.startswith("poseidon_sim.")}
    return found


def files_of(part: str) -> list[Path]:
    single = PACKAGE / f"{part}.py"
    return [single] if single.exists() else sorted((PACKAGE / part).rglob("*.py"))


@pytest.mark.parametrize("part", LAW)
def test_a_part_imports_only_what_the_law_allows(part: str) -> None:
    allowed = LAW[part] | {part}
    for path in files_of(part):
        for module in imports_of(path):
            permitted = any(module == name or module.startswith(name + ".") for name in allowed)
            assert permitted, f"{path.relative_to(ROOT)} imports {module}; {part} may import {sorted(allowed)}"


def test_every_part_of_the_package_stands_in_the_law() -> None:
    faces = {"cli", "commands", "__init__", "__main__"}
    parts = {p.stem if p.is_file() else p.name for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert parts - faces <= set(LAW)


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, poseidon_sim; print([m for m in ('pandas','matplotlib','numba','torch','pydantic','simpy') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_cold_simulation_loads_no_pandas_matplotlib_numba_or_torch() -> None:
    code = (
        "import sys, poseidon_sim as ps\n"
        "ps.simulate('vgg19', ps.Cluster(nodes=8, gpu=ps.gpu('titan-x-maxwell'), network=ps.Network(5e9)), 'poseidon')\n"
        "print([m for m in ('pandas','matplotlib','numba','torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def outside() -> list[Path]:
    return [p for d in ("experiments", "validation", "benchmarks") for p in (ROOT / d).rglob("*.py")]


def test_experiments_and_validation_use_public_names_only() -> None:
    for path in outside():
        inner = {m for m in imports_of(path) if m.split(".")[0] in LAW and not m.startswith(("report", "engine", "metrics", "errors"))}
        assert not inner, f"{path.relative_to(ROOT)} reaches into {sorted(inner)}; use `import poseidon_sim as ps`"


def test_files_stay_short_enough_to_read() -> None:
    for path in PACKAGE.rglob("*.py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        limit = 150 if path.parent.name == "strategy" else 450
        assert lines <= limit, f"{path.relative_to(ROOT)} has {lines} lines"


def test_no_machine_path_or_tool_of_a_workplace_is_named_in_the_project() -> None:
    forbidden = ("/work" + "/", "../" + "shared", "/root" + "/")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = tracked.stdout.split() if tracked.returncode == 0 else []
    for name in names:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".yaml", ".toml", ".csv", ".json", ".sh", ""} and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not any(word in text for word in forbidden), f"{name} names a path of a machine"
