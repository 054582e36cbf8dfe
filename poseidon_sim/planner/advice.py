"""Which strategy for which cluster: rank candidates, name the winner, the margin, the bottleneck and the switch points."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from poseidon_sim.cluster.catalog import list_links
from poseidon_sim.errors import InfeasibleError, InputError, unknown_name
from poseidon_sim.metrics.trust import TRUST_WORDS, said_of
from poseidon_sim.scenario import Scenario, load_scenario
from poseidon_sim.simulation import Run, simulate

#: a difference in step time below this share is called a tie
TIE = 0.005
OBJECTIVES = ("throughput", "cost", "time")
#: exact (lossless) strategies that are compared unless the user names others
CANDIDATES = ("parameter-server", "sufficient-factor-broadcast", "poseidon", "adam", "all-reduce")


@dataclass(frozen=True, eq=False)
class Choice:
    """One candidate cluster: its runs, best first, and what could not run."""

    nodes: int
    network: str
    runs: tuple[Run, ...]
    refused: tuple[str, ...]

    @property
    def winner(self) -> Run:
        return self.runs[0]

    @property
    def margin(self) -> float:
        """How much longer the runner-up takes, as a share (0 when there is none)."""
        return self.runs[1].decisive_time / self.runs[0].decisive_time - 1.0 if len(self.runs) > 1 else 0.0

    @property
    def tied(self) -> tuple[str, ...]:
        """Names of the strategies within `TIE` of the winner, the winner first."""
        return tuple(r.strategy.name for r in self.runs if r.decisive_time <= self.winner.decisive_time * (1 + TIE))

    @property
    def verdict(self) -> str:
        """Who wins and by how much, or who ties."""
        tied = self.tied
        if len(tied) == 1:
            return f"{tied[0]} wins" + (f" by {self.margin:.1%}" if len(self.runs) > 1 else "")
        rest = self.runs[len(tied) :]
        ahead = f", {rest[0].decisive_time / self.winner.decisive_time - 1:.1%} ahead of {rest[0].strategy.name}" if rest else ""
        return f"{', '.join(tied[:-1])} and {tied[-1]} tie{ahead}"

    def to_dict(self) -> dict[str, object]:
        """Return the ranking as plain values."""
        return {
            "nodes": self.nodes,
            "network": self.network,
            "winner": self.winner.strategy.name,
            "tied": list(self.tied),
            "margin": self.margin,
            "bottleneck": self.winner.bottleneck,
            "ranking": [run.summary() for run in self.runs],
            "refused": list(self.refused),
        }


@dataclass(frozen=True, eq=False)
class Advice:
    """Rankings over all candidate clusters, best cluster first by the objective."""

    objective: str
    choices: tuple[Choice, ...]

    @property
    def switches(self) -> tuple[str, ...]:
        """Sentences that say where the winner changes along nodes (on one network) and along networks."""
        found = []
        for axis, other in (("nodes", "network"), ("network", "nodes")):
            for fixed in dict.fromkeys(getattr(c, other) for c in self._in_order):
                row = [c for c in self._in_order if getattr(c, other) == fixed]
                for before, after in pairwise(row):
                    a, b = before.winner.strategy.name, after.winner.strategy.name
                    if a not in after.tied or b not in before.tied:
                        found.append(f"{other} {fixed}: {a} wins at {axis} {getattr(before, axis)}, {b} at {getattr(after, axis)}")
        return tuple(found)

    @property
    def _in_order(self) -> list[Choice]:
        return sorted(self.choices, key=lambda c: c.nodes)

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain values."""
        return {
            "objective": self.objective,
            "best": self.choices[0].to_dict(),
            "choices": [choice.to_dict() for choice in self.choices],
            "winner_changes": list(self.switches),
        }

    def __str__(self) -> str:
        within = ", strategies by time to accuracy" if self.choices[0].winner.to_accuracy else ""
        lines = [f"Ranked by {self.objective}{within}; predicted, exact (lossless) strategies and the scenario's own unless you named others."]
        for choice in self.choices:
            nodes = f"{choice.nodes} node{'s' * (choice.nodes > 1)}"
            lines.append(f"\n{nodes}, {choice.network}: {choice.verdict}; limited by {choice.winner.bottleneck}")
            for place, run in enumerate(choice.runs, 1):
                lines.append(f"  {place}. {run.strategy.name:<28} {run.step_time * 1e3:10.2f} ms/step {run.throughput:10.1f} samples/s"
                             f"  efficiency {run.scaling_efficiency:6.1%}  90 % of cases {run.trust.most_words}{_price(run)}")  # fmt: skip
            lines += [f"  not possible: {text}" for text in choice.refused]
        lines += ["", *(self.switches or ("The winner is the same on all of these clusters.",)), TRUST_WORDS]
        warned = said_of((run.strategy.name, run.warnings) for choice in self.choices for run in choice.runs)
        lines += [f"warning ({names}): {text}" for text, names in warned.items()]
        return "\n".join(lines)


def _price(run: Run) -> str:
    found = run.to_accuracy
    price = f" for {found.cost:,.2f} {found.currency}".rstrip() if found and found.cost is not None else ""
    words = [f"{found.hours:.4g} h to accuracy{price}"] if found else []
    return "".join(f"  {each}" for each in (*words, run.price_words) if each)


def candidates(scenario: Scenario, strategies: Sequence[object] | None = None) -> list[object]:
    """Return the strategies to rank: the exact ones and the scenario's own unless others are named, none twice.

    The name of the scenario's own strategy stands for it with all its settings.

    >>> own = {"model": "vgg19", "cluster": {"nodes": 2, "network": "10 Gbit/s", "gpu": "k80"}, "strategy": {"name": "adam", "overlap": False}}
    >>> candidates(load_scenario(own), ["poseidon", "adam"])
    ['poseidon', {'name': 'adam', 'overlap': False}]
    >>> candidates(load_scenario(own)) == [*CANDIDATES[:3], own["strategy"], CANDIDATES[4]]
    True
    """
    own = scenario.raw["strategy"]
    mine = own if isinstance(own, str) else own["name"]
    chosen = [own if each == mine else each for each in strategies or [*CANDIDATES, own]]
    return [each for i, each in enumerate(chosen) if each not in chosen[:i]]


def ranking(scenario: Scenario, strategies: Sequence[object] | None = None) -> Choice:
    """Rank strategies on one scenario; what does not fit in memory is named, and an error only where nothing fits.

    `strategies` : names or mappings; the exact ones and the scenario's own when not given.
    """
    return _choice(scenario, scenario.cluster.nodes, scenario.network_name, {}, candidates(scenario, strategies))


def compare(scenario: Scenario, strategies: Sequence[object] | None = None) -> list[Run]:
    """Return the runs of a `ranking`: the first to the target (where the scenario has one, else with the shortest step) first."""
    return list(ranking(scenario, strategies).runs)


def advise(
    scenario: Scenario,
    nodes: Sequence[int] | None = None,
    networks: Sequence[object] | None = None,
    strategies: Sequence[object] | None = None,
    objective: str = "throughput",
) -> Advice:
    """Rank strategies for each candidate cluster and rank the clusters.

    Parameters
    ----------
    nodes, networks : candidate sizes and networks (rates such as '25 Gbit/s', catalog names or mappings); the
        scenario's own when not given.
    strategies : names or mappings; the exact ones and the scenario's own when not given.
    objective : 'throughput' (samples/s), 'time' (to accuracy where the scenario has a convergence, else per sample of the
        job) or 'cost' (of the same; needs a price in the scenario).
    """
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, OBJECTIVES)
    choices = []
    for count in nodes or [scenario.cluster.nodes]:
        for network in networks or [None]:
            changes: dict[str, object] = {"nodes": count}
            name = scenario.network_name
            if network is not None:
                name = str(network)
                rate = isinstance(network, str) and network[:1].isdigit() and network not in list_links()
                changes["cluster.network.bandwidth" if rate else "cluster.network"] = network
            choices.append(_choice(scenario, count, name, changes, candidates(scenario, strategies)))
    if objective == "cost" and any(run.cost_per_million_samples is None for c in choices for run in c.runs):
        raise InputError("objective=cost needs a price; give price_per_gpu_hour or price_per_node_hour in the scenario")
    return Advice(objective, tuple(sorted(choices, key=lambda c: _key(c.winner, objective))))


def _key(run: Run, objective: str) -> float:
    if objective == "cost":
        return float((run.to_accuracy and run.to_accuracy.cost) or run.cost_per_million_samples or 0.0)
    if objective == "time" and run.to_accuracy:
        return run.to_accuracy.seconds
    return -run.throughput


def _choice(
    scenario: Scenario, nodes: int, network: str, changes: dict[str, object], strategies: Sequence[object]
) -> Choice:
    runs, refused = [], []
    for strategy in strategies:
        variant = load_scenario(copy.deepcopy(scenario.raw), strategy=strategy, **changes)
        try:
            runs.append(simulate(variant))
        except InfeasibleError as error:
            refused.append((variant.strategy.name, (str(error),)))
    words = tuple(f"{names}: {text}" for text, names in said_of(refused).items())
    if not runs:
        raise InfeasibleError(words[0])
    runs.sort(key=lambda run: run.decisive_time)
    return Choice(nodes, network, tuple(runs), words)
