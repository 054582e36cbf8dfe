"""The transformer as a handful of numbers: GPT-2, BERT and LLaMA are values of them.

Architecture keys: `layers`, `hidden`, `heads`, `vocabulary`, and optionally `key_value_heads` (grouped-query
attention), `feed_forward` (default 4 x hidden), `gated` (a gate beside the first feed-forward layer),
`positions` (rows of a learned table; without it positions cost no parameters, as rotary ones), `token_types`,
`norm` (layer or rms), `norm_first` (before each part, or after), `bias`, `fused_qkv` (one layer for q, k, v),
`experts` (of which a router sends every position to `active_experts`, default 2; each is `expert_feed_forward`
wide, default `feed_forward`), `shared` (experts of that width that every position goes through), and `head`:
`head`: own (an output layer), tied (shares the token table), pooler, pretraining (BERT's two) or none,
`causal` (later positions are hidden; default: with an own or tied head) and `fused_attention` (one kernel that never
writes its scores, or several; default: as the GPU does).
"""

from __future__ import annotations

from collections.abc import Mapping

from poseidon_sim.workload.entry import Entry

Written = dict[str, object]
_KEYS = frozenset(
    {"layers", "hidden", "heads", "vocabulary", "key_value_heads", "feed_forward", "gated", "positions"}
    | {"token_types", "norm", "norm_first", "bias", "fused_qkv", "head", "causal", "fused_attention"}
    | {"experts", "active_experts", "expert_feed_forward", "shared"}
)
_HEADS = ("own", "tied", "pooler", "pretraining", "none")


def transformer_description(
    architecture: Mapping[str, object], sequence_length: int | None = None
) -> tuple[list[Written], dict[str, object]]:
    """Return (layers, blocks) of a transformer, in the words of a model file.

    Examples
    --------
    >>> layers, blocks = transformer_description({"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 100})
    >>> [layer["name"] for layer in layers]
    ['token_embedding', 'layer', 'final_norm', 'output']
    """
    entry = Entry(architecture, "transformer")
    entry.check_keys(_KEYS)
    norm = _norm(entry)
    layers = _embeddings(entry, sequence_length)
    layers.append({"name": "layer", "block": "layer", "repeat": entry.count("layers")})
    if entry.flag("norm_first", True):
        layers.append({"name": "final_norm", **norm})
    else:
        layers.insert(-1, {"name": "embedding_norm", **norm})
    layers += _head(entry)
    return layers, {"layer": _block(entry)}


def _norm(entry: Entry) -> Written:
    return {"kind": "norm", "type": entry.choice("norm", ("layer", "rms"), "layer")}


def _linear(entry: Entry, name: str, outputs: int, **more: object) -> Written:
    return {"name": name, "kind": "linear", "outputs": outputs, "bias": entry.flag("bias", True), **more}


def _embeddings(entry: Entry, sequence_length: int | None) -> list[Written]:
    """Token, position and token-type tables, summed."""
    hidden = entry.count("hidden")
    tables = {"token_embedding": entry.count("vocabulary")}
    if "positions" in entry:
        positions = entry.count("positions")
        if sequence_length is not None and sequence_length > positions:
            raise entry.error(f"sequence_length={sequence_length} is longer than its positions={positions}")
        tables["position_embedding"] = positions
    if "token_types" in entry:
        tables["type_embedding"] = entry.count("token_types")
    layers: list[Written] = [
        {"name": name, "kind": "embedding", "vocabulary": rows, "outputs": hidden, "input": "input"}
        for name, rows in tables.items()
    ]
    if len(tables) > 1:
        layers.append({"name": "embedding", "kind": "add", "inputs": list(tables)})
    return layers


def _block(entry: Entry) -> list[Written]:
    """One layer: attention and feed-forward, each with its residual sum and norm."""
    norm, first = _norm(entry), entry.flag("norm_first", True)
    attention = _attention(entry, "attention_norm" if first else "$input")
    source, between = ("feed_forward_norm", "attention_sum") if first else ("attention_norm", "attention_norm")
    if "experts" in entry:
        feed_forward, ends = _experts(entry, source)
    else:
        feed_forward, ends = _feed_forward(entry, source, entry.count("feed_forward", 4 * entry.count("hidden"))), ["down"]
    sums: list[Written] = [
        {"name": "attention_sum", "kind": "add", "inputs": ["$input", "attention_output"]},
        {"name": "feed_forward_sum", "kind": "add", "inputs": [between, *ends]},
    ]
    norms: list[Written] = [{"name": "attention_norm", **norm}, {"name": "feed_forward_norm", **norm}]
    if first:
        return [norms[0], *attention, sums[0], norms[1], *feed_forward, sums[1]]
    return [*attention, sums[0], norms[0], *feed_forward, sums[1], norms[1]]


def _attention(entry: Entry, source: str) -> list[Written]:
    hidden, heads = entry.count("hidden"), entry.count("heads")
    groups = entry.count("key_value_heads", heads)
    if hidden % heads or heads % groups:
        raise entry.error(
            f"hidden={hidden} must be a multiple of heads={heads}, heads of key_value_heads={groups}"
        )
    shared = hidden // heads * groups
    scores: Written = {"name": "attention", "kind": "attention", "heads": heads, "key_value_heads": groups}
    scores["causal"] = entry.flag("causal", entry.choice("head", _HEADS, "own") in ("own", "tied"))
    if "fused_attention" in entry:
        scores["fused"] = entry.flag("fused_attention", True)
    if entry.flag("fused_qkv", False):
        projections = [_linear(entry, "query_key_value", hidden + 2 * shared, input=source)]
    else:
        widths = {"query": hidden, "key": shared, "value": shared}
        projections = [_linear(entry, name, width, input=source) for name, width in widths.items()]
        scores["inputs"] = list(widths)
    return [*projections, scores, _linear(entry, "attention_output", hidden)]


def _feed_forward(entry: Entry, source: str, inner: int, prefix: str = "", **more: object) -> list[Written]:
    up_name, down_name, gate_name = (prefix + name for name in ("up", "down", "gate"))
    down = _linear(entry, down_name, entry.count("hidden"), **more)
    if not entry.flag("gated", False):
        return [_linear(entry, up_name, inner, input=source, then="activation", **more), down]
    gate = _linear(entry, gate_name, inner, input=source, then="activation", **more)
    up = _linear(entry, up_name, inner, input=source, **more)
    return [gate, up, {"name": prefix + "gated", "kind": "multiply", "inputs": [gate_name, up_name]}, down]


def _experts(entry: Entry, source: str) -> tuple[list[Written], list[str]]:
    """A router, its experts between dispatch and collect, and shared experts beside them; and the layers to add up."""
    experts, active = entry.count("experts"), entry.count("active_experts", 2)
    if active > experts:
        raise entry.error(f"active_experts={active} must be at most experts={experts}")
    inner = entry.count("expert_feed_forward", entry.count("feed_forward", 4 * entry.count("hidden")))
    layers: list[Written] = [
        {"name": "router", "kind": "linear", "outputs": experts, "input": source},
        {"name": "dispatch", "kind": "dispatch", "active": active, "input": source},
        *_feed_forward(entry, "dispatch", inner, experts=experts),
        {"name": "collect", "kind": "collect", "active": active},
    ]
    if "shared" not in entry:
        return layers, ["collect"]
    return [*layers, *_feed_forward(entry, source, entry.count("shared") * inner, "shared_")], ["collect", "shared_down"]


def _head(entry: Entry) -> list[Written]:
    """What stands on top of the last layer."""
    head, hidden = entry.choice("head", _HEADS, "own"), entry.count("hidden")
    output: Written = {"name": "output", "kind": "linear", "outputs": entry.count("vocabulary")}
    if head == "none":
        return []
    if head == "own":
        return [output]
    if head == "tied":
        return [{**output, "tied": "token_embedding"}]
    pooler: list[Written] = [
        {"name": "first_token", "kind": "select", "input": "layer"},
        _linear(entry, "pooler", hidden, then="activation"),
    ]
    if head == "pooler":
        return pooler
    return [
        *pooler,
        _linear(entry, "next_sentence", 2),
        _linear(entry, "transform", hidden, input="layer", then=["activation", _norm(entry)]),
        {**output, "tied": "token_embedding", "bias": True},
    ]
