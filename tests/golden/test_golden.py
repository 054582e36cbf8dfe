"""Golden transcripts: what the command line printed when these were looked at and found right.

To renew one after a wanted change: POSEIDON_SIM_RENEW=1 python -m pytest tests/golden, then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from poseidon_sim import cli

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

TRANSCRIPTS = {
    "simulate": ["simulate", "experiments/mlp3.yaml"],
    "simulate-factors": ["simulate", "experiments/mlp3.yaml", "strategy=sufficient-factor-broadcast", "nodes=8"],
    "compare": ["compare", "experiments/mlp3.yaml", "nodes=8", "--strategies", "parameter-server,poseidon,all-reduce"],
    "advise": ["advise", "experiments/mlp3.yaml", "--nodes", "2,8", "--networks", "1Gbit/s,10Gbit/s"],
    "collectives": ["list", "collectives"],
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_the_command_line_prints_its_golden_transcript(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.run(TRANSCRIPTS[name]) == 0
    printed = "$ poseidon-sim " + " ".join(TRANSCRIPTS[name]) + "\n" + capsys.readouterr().out
    path = HERE / f"{name}.txt"
    if os.environ.get("POSEIDON_SIM_RENEW"):
        path.write_text(printed, encoding="utf-8")
    assert printed == path.read_text(encoding="utf-8")
