"""Hold the simulator against real runs on an emulated network: every case of validation/measured/emulated.csv.

    poseidon-sim validate emulated
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main(out_dir: Path, as_json: bool = False) -> int:
    """Print measured, predicted and error of every case, and a summary by strategy; 1 when the median passes 1 %."""
    sys.path.insert(0, str(HERE.parent))
    try:
        compare: Any = importlib.import_module(f"{HERE.name}.campaign.compare")
    finally:
        sys.path.remove(str(HERE.parent))
    calibration = compare.read_calibration(HERE / "measured" / "emulated_network.csv")
    found = compare.compare(HERE / "measured" / "emulated.csv", calibration)
    trusted = [each for each in found if each.trusted]
    errors: dict[str, list[float]] = {}
    for each in trusted:
        for name in (each.case.strategy, "all"):
            errors.setdefault(name, []).append(abs(each.error))
    median = statistics.median(errors["all"])
    if as_json:
        print(json.dumps({"cases": len(found), "trusted": len(trusted), "median_absolute_error": median,
                          "by_strategy": {k: statistics.median(v) for k, v in errors.items()}}, indent=2))  # fmt: skip
        return int(median > 0.01)
    for each in sorted(found, key=lambda e: -abs(e.error)):
        mark = "" if each.trusted else "  (noisy: not counted)"
        print(f"{each.case.name:<58} measured {each.measured * 1e3:9.2f} ms  predicted {each.predicted * 1e3:9.2f} ms  {each.error:+7.2%}{mark}")
    print(f"\n{'strategy':<30} {'cases':>5} {'median':>8} {'p95':>8} {'worst':>8}   (absolute error; nothing fitted on the cases)")
    for name, values in sorted(errors.items()):
        ordered = sorted(values)
        p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
        print(f"{name:<30} {len(values):>5} {statistics.median(values):>8.2%} {p95:>8.2%} {ordered[-1]:>8.2%}")
    return int(median > 0.01)


if __name__ == "__main__":
    raise SystemExit(main(Path("out/emulated")))
