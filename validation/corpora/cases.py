"""What becomes of a row: an entry that is predicted (a case), was given to predict others, or is listed with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import poseidon_sim as ps

from .records import Record

#: states of an entry: predicted; an input of predictions; a strategy that is not built; not enough is known; held elsewhere;
#: a figure that is not the speed of a training run
STATES = ("modelled", "given", "waiting", "unknown", "elsewhere", "other")


@dataclass(frozen=True)
class Case:
    """One prediction to make.

    Parameters
    ----------
    scenario : mapping for `load_scenario`.
    given : what the simulator is told of the measurements, in words.
    measured : seconds.
    use : 'fitted' when any figure of its whole set (source and network) was used to choose a number, else 'predicted'.
    group : cases of one group differ in strategy only; the ranking is taken within it.
    strategy : replaces the scenario's where a published system is none of the registered strategies.
    partition : bytes into which tensors are cut before anything is sent, or None.
    quantity : 'step' (step time) or 'exposed' (what it exceeds the compute time by).
    choice : what the group compares: how the model was split, say; the label if empty.
    """

    label: str
    scenario: dict[str, Any]
    given: str
    measured: float
    use: str = "predicted"
    group: tuple[object, ...] = ()
    strategy: ps.Strategy | None = None
    partition: float | None = None
    quantity: str = "step"
    choice: str = ""
    predict: Callable[[], float] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Entry:
    """What became of one row. `refused`: why the simulator made no prediction of a case (out of memory, say)."""

    record: Record
    family: str
    state: str
    reason: str = ""
    case: Case | None = None
    predicted: float | None = None
    refused: str = ""

    @property
    def error(self) -> float | None:
        """Relative error of the predicted time."""
        if self.predicted is None or self.case is None:
            return None
        return self.predicted / self.case.measured - 1.0


def predicted(entry: Entry, known: dict[str, float | str]) -> Entry:
    """Return the entry with its prediction, or with the reason why the simulator refused; the same scenario is simulated once."""
    case = entry.case
    if case is None:
        return entry
    key = repr((case.scenario, case.strategy, case.partition, case.quantity, entry.record.id if case.predict else ""))
    if key not in known:
        try:
            known[key] = case.predict() if case.predict else simulated(case)
        except (ps.InfeasibleError, ps.InputError) as error:
            known[key] = str(error)
    found = known[key]
    return replace(entry, refused=found) if isinstance(found, str) else replace(entry, predicted=found)


def simulated(case: Case) -> float:
    """Return the predicted seconds of a case."""
    run = run_of(case)
    return run.step_time if case.quantity == "step" else run.step_time - run.single_gpu_time


def run_of(case: Case) -> ps.Run:
    """Return the run of a case."""
    return ps.simulate(scenario_of(case))


def scenario_of(case: Case) -> ps.Scenario:
    """Return the scenario of a case, with its strategy and partition."""
    scenario = ps.load_scenario(case.scenario)
    if case.strategy is not None:
        scenario = replace(scenario, strategy=case.strategy)
    if case.partition is not None:
        scenario = replace(scenario, workload=partitioned(scenario.workload, case.partition))
    return scenario


def partitioned(workload: ps.Workload, size: float) -> ps.Workload:
    """Cut tensors of more than `size` bytes into layers of their own, all ready when the layer's backward pass ends.

    >>> fc = ps.Layer("fc", "linear", (1000,), forward_flops=1.0, backward_flops=2.0)
    >>> [(each.name, each.tensors) for each in partitioned(ps.Workload("net", (fc,)), 2000).layers]
    [('fc.0', (500,)), ('fc', (500,))]
    """
    layers: list[ps.Layer] = []
    for layer in workload.layers:
        parts: list[int] = []
        for elements in layer.tensors:
            count = max(1, -(-elements * workload.element_bytes // int(size)))
            parts += [elements // count] * (count - 1) + [elements - elements // count * (count - 1)]
        if len(parts) == len(layer.tensors):
            layers.append(layer)
            continue
        empty = {"forward_flops": 0.0, "backward_flops": 0.0, "forward_time": 0.0, "backward_time": 0.0, "factor_shape": None}
        layers += [replace(layer, name=f"{layer.name}.{i}", tensors=(part,), **empty) for i, part in enumerate(parts[:-1])]
        layers.append(replace(layer, tensors=(parts[-1],)))  # backward comes here first, so its time precedes all parts
    return workload.with_changes(layers=tuple(layers))
