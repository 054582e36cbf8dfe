"""Spell a short description out: blocks, repetitions, `then` and per-kind defaults become one flat list.

A description may say

* ``then: activation`` or ``then: [norm, activation]``: layers that follow at once, named ``conv1.norm``;
* ``blocks: {name: [entries]}`` and an entry ``{name: layer1.0, block: bottleneck, width: 64}``: the entries
  of the block with ``$width`` replaced, named ``layer1.0.conv1``; ``$input`` is what enters the block;
* ``repeat: 3`` on such an entry: three copies in a row, named ``layer1.1`` to ``layer1.3``;
* ``defaults: {conv: {kernel: 3}}``: keys every layer of that kind has unless it says otherwise;
* ``input: name`` or ``inputs: [a, b]``: where a layer reads from; without it, from the layer before. A name
  stands for the output of the whole entry, its `then` or its block included; the name ``input`` for what the
  model itself reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from poseidon_sim.errors import InputError, UnknownNameError, unknown_name
from poseidon_sim.workload.entry import Entry, Shape

MODEL_INPUT = "input"
_BLOCK_KEYS = ("name", "block", "repeat", "input")
_MAX_DEPTH = 8
_MAX_LAYERS = 100_000


@dataclass(frozen=True)
class Step:
    """One layer to infer: its own keys, where it reads from (names of layers, or a shape outright), and its outermost block."""

    name: str
    entry: Entry
    inputs: tuple[str | Shape, ...]
    block: str = ""


@dataclass
class _Expansion:
    """What has been spelled out so far: the flat steps, the output of every name, and the latest output."""

    blocks: Mapping[str, object]
    defaults: Mapping[str, Mapping[str, object]]
    steps: list[Step] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    outputs: dict[str, str] = field(default_factory=lambda: {MODEL_INPUT: MODEL_INPUT})
    previous: str = MODEL_INPUT
    block: str = ""


def expand(
    entries: object,
    blocks: Mapping[str, object] | None = None,
    defaults: Mapping[str, Mapping[str, object]] | None = None,
) -> list[Step]:
    """Return the flat list of layers of a description.

    Examples
    --------
    >>> steps = expand([{"name": "conv1", "kind": "conv", "then": ["norm", "activation"]}])
    >>> [(step.name, *step.inputs) for step in steps]
    [('conv1', 'input'), ('conv1.norm', 'conv1'), ('conv1.activation', 'conv1.norm')]
    """
    expansion = _Expansion(blocks or {}, defaults or {})
    try:
        _expand_list(expansion, _as_list(entries, "layers"), prefix="", scope={}, depth=0)
    except RecursionError as error:  # YAML aliases can make a list that holds itself
        raise InputError("the description of the layers contains itself") from error
    return expansion.steps


def _as_list(entries: object, what: str) -> Sequence[object]:
    if not isinstance(entries, list | tuple) or not entries:
        example = "[{name: fc1, kind: linear, shape: [784, 10]}]"
        raise InputError(f"{what} must be a list with at least one layer, for example {example}")
    return entries


def _expand_list(
    expansion: _Expansion, entries: Sequence[object], prefix: str, scope: Mapping[str, object], depth: int
) -> None:
    """Spell out the entries of the model or of one use of a block."""
    used: set[str] = {"input"}
    local: set[str] = set()
    for position, written in enumerate(entries, start=1):
        label = f"layer {position}" + (f" of block {prefix.rstrip('.')!r}" if prefix else "")
        if not isinstance(written, Mapping) or not all(isinstance(key, str) for key in written):
            raise InputError(f"{label} is {written!r}; write {{name: ..., kind: ...}}")
        values = _substituted(written, scope, used, label) if scope else written
        short = Entry(values, label).text("name")
        name = prefix + short
        local.add(short)
        entry = Entry(values, f"layer {name!r}")
        if "block" in entry:
            if "input" in entry:
                expansion.previous = _resolved(expansion, entry, entry.text("input"), prefix, local)
            _expand_block(expansion, entry, name, depth)
        else:
            _expand_layer(expansion, entry, name, prefix, local)
    unused = sorted(set(scope) - used)
    if unused:
        raise InputError(
            f"layer {prefix.rstrip('.')!r}: its block has no use for {', '.join(unused)}; drop it"
        )


def _substituted(
    written: Mapping[str, object], scope: Mapping[str, object], used: set[str], label: str
) -> dict[str, object]:
    """Replace every "$name" among the values of an entry, also inside lists and nested entries."""

    def replaced(value: object) -> object:
        if isinstance(value, str) and value.startswith("$"):
            if value[1:] not in scope:
                raise InputError(
                    f"{label} uses {value}, which is not given; write {value[1:]}: ... with the block"
                )
            used.add(value[1:])
            return scope[value[1:]]
        if isinstance(value, list):
            return [replaced(each) for each in value]
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        return value

    return {key: replaced(value) for key, value in written.items()}


def _expand_block(expansion: _Expansion, entry: Entry, name: str, depth: int) -> None:
    """Spell out one use of a block, as often as it is repeated."""
    block = entry.text("block")
    if block not in expansion.blocks:
        raise _in(entry, unknown_name("block", block, expansion.blocks))
    if depth >= _MAX_DEPTH:
        raise entry.error(f"blocks are nested more than {_MAX_DEPTH} deep; does {block!r} contain itself?")
    body = _as_list(expansion.blocks[block], f"block {block!r}")
    scope = {key: value for key, value in entry.values.items() if key not in _BLOCK_KEYS}
    repeat = entry.count("repeat", 1)
    for index in range(1, repeat + 1):
        copy = f"{name}.{index}" if "repeat" in entry else name
        scope["input"] = expansion.previous
        if depth == 0:
            expansion.block = copy
        _expand_list(expansion, body, copy + ".", scope, depth + 1)
        if depth == 0:
            expansion.block = ""
        _close(expansion, entry, copy)
    if "repeat" in entry:
        _close(expansion, entry, name)


def _expand_layer(expansion: _Expansion, entry: Entry, name: str, prefix: str, local: set[str]) -> None:
    """Add one layer and what follows it by `then`."""
    entry = _with_defaults(expansion, entry)
    _add(expansion, entry, name, _inputs(expansion, entry, prefix, local))
    then = entry.values.get("then")
    following = then if isinstance(then, list | tuple) else [] if then is None else [then]
    for written in following:
        values = {"kind": written} if isinstance(written, str) else written
        if not isinstance(values, Mapping) or "then" in values or "name" in values:
            raise entry.error(f"then={written!r} must be a kind, or {{kind: ..., ...}} without a name")
        follower = _with_defaults(expansion, Entry(values, f"{entry.label}, then"))
        _add(expansion, follower, f"{name}.{follower.text('kind')}", (expansion.previous,))
    _close(expansion, entry, name)


def _add(expansion: _Expansion, entry: Entry, name: str, inputs: tuple[str | Shape, ...]) -> None:
    if len(expansion.steps) >= _MAX_LAYERS:
        raise entry.error(f"a model may have at most {_MAX_LAYERS} layers")
    if name in expansion.names:
        raise entry.error(f"the name {name!r} is used twice; layer names must differ")
    expansion.steps.append(Step(name, entry, inputs, expansion.block))
    expansion.names.add(name)
    expansion.previous = name


def _with_defaults(expansion: _Expansion, entry: Entry) -> Entry:
    """Return the entry with the defaults of its kind underneath."""
    kind = entry.values.get("kind")
    defaults = expansion.defaults.get(kind) if isinstance(kind, str) else None
    return Entry({**defaults, **entry.values}, entry.label) if defaults else entry


def _close(expansion: _Expansion, entry: Entry, name: str) -> None:
    """Remember the output a name stands for, and refuse a name that is taken."""
    if name in expansion.outputs:
        rule = "is reserved for the model's input" if name == MODEL_INPUT else "is used twice"
        raise entry.error(f"the name {name!r} {rule}; layer names must differ")
    expansion.outputs[name] = expansion.previous


def _inputs(expansion: _Expansion, entry: Entry, prefix: str, local: set[str]) -> tuple[str | Shape, ...]:
    """Return where a layer reads from, as full names."""
    if "input" in entry and "inputs" in entry:
        raise entry.error("give input or inputs, not both")
    if "input" in entry:
        if isinstance(entry.values["input"], list | tuple):
            return (entry.shape("input"),)
        return (_resolved(expansion, entry, entry.text("input"), prefix, local),)
    if "inputs" in entry:
        names = entry.values["inputs"]
        if (
            not isinstance(names, list | tuple)
            or not names
            or not all(isinstance(each, str) for each in names)
        ):
            raise entry.error(f"inputs={names!r} must be a list of layer names, for example [conv1, conv2]")
        return tuple(_resolved(expansion, entry, each, prefix, local) for each in names)
    return (expansion.previous,)


def _resolved(expansion: _Expansion, entry: Entry, name: str, prefix: str, local: set[str]) -> str:
    """Turn a name as written into the layer whose output it stands for: the block's own names come first."""
    full = prefix + name if name in local else name
    if full in expansion.outputs:
        return expansion.outputs[full]
    if name in expansion.names:  # $input is already the full name of a layer
        return name
    raise _in(entry, unknown_name("input", name, expansion.outputs))


def _in(entry: Entry, error: UnknownNameError) -> UnknownNameError:
    """Say in which layer a name was unknown."""
    return UnknownNameError(f"{entry.label}: {error}")
