"""Find and run the scripts of experiments/ and validation/ by name; the package never imports them by path of its own."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from poseidon_sim.errors import InputError, unknown_name


def folder_of(kind: str) -> Path:
    """Return the folder of scripts: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    for place in (package.parent / kind, package / f"_{kind}"):
        if place.is_dir():
            return place
    raise InputError(f"this installation carries no {kind}/; install from a checkout or a complete wheel")


def list_scripts(kind: str) -> dict[str, Path]:
    """Return runnable scripts by name: those that define main(out_dir)."""
    found = {}
    for path in sorted(folder_of(kind).glob("*.py")):
        if "\ndef main(out_dir" in path.read_text(encoding="utf-8"):
            found[path.stem.replace("_", "-")] = path
    return found


def run_scripts(kind: str, name: str, out: Path, as_json: bool = False) -> int:
    """Run one script, or all of them one after the other; return the worst exit code."""
    scripts = list_scripts(kind)
    if not scripts:
        raise InputError(f"nothing to run: {kind}/ holds no script with a main(out_dir) yet")
    if name != "all" and name not in scripts:
        raise unknown_name(kind.rstrip("s"), name, [*scripts, "all"])
    worst = 0
    sys.path.insert(0, str(folder_of(kind)))  # scripts import their neighbours
    try:
        for title, path in scripts.items():
            if name in ("all", title):
                main = _load(path).main
                options = {"as_json": True} if as_json and "as_json" in inspect.signature(main).parameters else {}
                worst = max(worst, int(main(out / title, **options) or 0))
    finally:
        sys.path.remove(str(folder_of(kind)))
    return worst


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"poseidon_sim_script_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
