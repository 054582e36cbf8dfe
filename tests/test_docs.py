"""README and docs say only what runs: Python blocks are executed, scenarios loaded, commands run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

import poseidon_sim as ps
from poseidon_sim import cli
from poseidon_sim.scenario.schema import json_schema

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "DESIGN.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.S)):
            found.append((f"{page.name} {number}", text))
    return found


@pytest.mark.parametrize(("where", "text"), blocks("python"), ids=[w for w, _ in blocks("python")])
def test_python_in_the_docs_runs(where: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(text, where, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("where", "text"), blocks("yaml"), ids=[w for w, _ in blocks("yaml")])
def test_scenarios_in_the_docs_simulate(where: str, text: str) -> None:
    assert ps.simulate(ps.load_scenario(yaml.safe_load(text))).step_time > 0


COMMANDS = [line for _, text in blocks("") for line in text.splitlines() if line.startswith("poseidon-sim ")]


def test_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert len(COMMANDS) >= 6
    for line in COMMANDS:
        arguments = shlex.split(line)[1:]
        arguments = [a.replace("out/", f"{tmp_path}/") if a.startswith("out/") else a for a in arguments]
        assert cli.run(arguments) == 0, (line, capsys.readouterr().err)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_published_schema_is_what_the_loader_accepts() -> None:
    path = ROOT / "poseidon_sim" / "scenario" / "scenario.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(json_schema()))


def test_every_key_of_a_scenario_stands_in_its_page() -> None:
    page = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    schema = json_schema()
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part["properties"]}
    assert not [key for key in keys if f"`{key}`" not in page]


def test_every_term_of_the_json_report_stands_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").replace(" ", "_")
    for key in ("step_time", "throughput", "speedup", "scaling_efficiency", "compute_time", "communication_time",
                "exposed_communication", "wait_time", "overlap", "latency", "bandwidth", "staleness", "straggler", "bucket"):  # fmt: skip
        assert key in glossary, key
