"""Mixtures of experts and tied tensors: parameter counts of a published model, bytes of all-to-alls and of copies by closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

import poseidon_sim as ps

PORT, LATENCY = 1e9, 3e-5
MIXTRAL = {
    "layers": 32, "hidden": 4096, "heads": 32, "key_value_heads": 8, "vocabulary": 32000, "feed_forward": 14336, "gated": True,
    "norm": "rms", "bias": False, "experts": 8, "active_experts": 2,
}  # fmt: skip
LAYERS, HIDDEN, LENGTH, ACTIVE, EXPERTS = 2, 32, 8, 2, 4


def small(**more: object) -> ps.Workload:
    """Two blocks of four experts, two of them active; every layer is measured to take a millisecond forward and two backward."""
    shape = {"layers": LAYERS, "hidden": HIDDEN, "heads": 4, "vocabulary": 64, "experts": EXPERTS, "active_experts": ACTIVE, **more}
    model = ps.load_model({"name": "small", "transformer": shape}, sequence_length=LENGTH)
    return model.with_changes(layers=tuple(replace(layer, forward_time=1e-3, backward_time=2e-3) for layer in model.layers))


def test_mixtral_has_its_published_number_of_parameters_whole_and_active() -> None:
    """Jiang et al., arXiv 2401.04088: 46.7 billion in all, 12.9 billion of them used by a token."""
    model = ps.load_model({"name": "mixtral-8x7b", "transformer": MIXTRAL, "precision": "bf16"}, sequence_length=64)
    assert model.parameters == pytest.approx(46.7e9, rel=1e-3)
    assert sum(x.parameters * (2 / 8 if x.experts > 1 else 1) for x in model.layers) == pytest.approx(12.9e9, rel=2e-3)


def test_experts_compute_what_the_active_ones_would_as_one_wide_layer() -> None:
    plain = ps.load_model({"name": "wide", "transformer": {**MIXTRAL, "experts": 2}}, sequence_length=64)
    many = ps.load_model({"name": "many", "transformer": MIXTRAL}, sequence_length=64)
    up = many.layer("layer.1.up")
    assert up.forward_flops == plain.layer("layer.1.up").forward_flops == 2 * 64 * 2 * 4096 * 14336
    assert up.parameters == 4 * plain.layer("layer.1.up").parameters and up.factor_shape is None


def test_shared_experts_stand_beside_the_routed_ones() -> None:
    without, shared = (ps.load_model({"name": "x", "transformer": {**MIXTRAL, **more}}, sequence_length=16) for more in ({}, {"shared": 1}))
    assert shared.parameters - without.parameters == 32 * 3 * 4096 * 14336


# Lepikhin et al., GShard, arXiv 2006.16668: an all-to-all to the experts and one from them, forward and again backward. Of what a GPU deals
# out, k positions of h elements for each of its s positions, (e - 1)/e goes to other GPUs; between nodes (e - g)/e with g of them in a node.
@pytest.mark.parametrize(("nodes", "gpus", "e"), [(4, 1, 4), (4, 1, 2), (2, 2, 4), (2, 2, 2), (2, 4, 4)])
def test_all_to_alls_and_rings_move_the_bytes_of_their_closed_forms(nodes: int, gpus: int, e: int) -> None:
    model, batch, total = small(), 3, nodes * gpus
    where = ps.Cluster(nodes=nodes, gpus_per_node=gpus, network=ps.Network(PORT))
    run = ps.simulate(model, where, ps.Megatron(experts=e), batch_size=batch, micro_batch_size=1, check=True)
    inside, held = min(e, gpus), sum(4 * x.parameters for x in model.layers if x.experts > 1)
    dealt = batch * LAYERS * 4 * ACTIVE * LENGTH * HIDDEN * 4 * (e - inside) / e * gpus
    dense = 2 * (total - 1) / total * (4 * model.parameters - held)
    same = total // e  # replicas of an expert; rings of them leave a node once, one ring for each expert there
    expert = 2 * (same - 1) / same * held / e * min(e, gpus) if same > max(1, gpus // e) else 0.0
    assert run.summary()["bytes_sent_per_node"] == pytest.approx(dealt + dense + expert)


def test_a_pass_takes_its_all_to_alls_longer() -> None:
    """One micro-batch on two nodes: 4 all-to-alls a block of k s h x 4 bytes, half of which leaves, and the rings after them."""
    model = small()
    where = ps.Cluster(nodes=2, network=ps.Network(1e6, latency=LATENCY))
    run = ps.simulate(model, where, ps.Megatron(experts=2), batch_size=1, check=True)
    dealt = LAYERS * 4 * (ACTIVE * LENGTH * HIDDEN * 4 / 2 / 1e6 + LATENCY)
    dense = sum(4 * x.parameters for x in model.layers if x.experts == 1)
    assert run.step_time == pytest.approx(3e-3 * len(model.layers) + dealt + dense / 1e6 + 2 * LATENCY, rel=1e-9)


def test_recomputed_blocks_deal_out_again() -> None:
    where = ps.Cluster(nodes=2, network=ps.Network(PORT))
    one, more = (ps.simulate(small(), where, ps.Megatron(experts=2, recompute=r), batch_size=1).summary()["bytes_sent_per_node"] for r in ("none", "full"))
    assert more - one == pytest.approx(LAYERS * 2 * ACTIVE * LENGTH * HIDDEN * 4 / 2)


def test_experts_are_divided_in_memory() -> None:
    model, where = small(), ps.Cluster(nodes=4, network=ps.Network(PORT))
    whole, part = (ps.simulate(model, where, ps.Megatron(experts=e), batch_size=1).memory for e in (1, 4))
    held = sum(4 * x.parameters for x in model.layers if x.experts > 1)
    assert whole.parameters - part.parameters == pytest.approx(0.75 * held)


@pytest.mark.parametrize("strategy", [ps.Megatron(experts=2), ps.Megatron(pipeline=2, experts=2, zero=1, overlap=True)], ids=repr)
def test_expert_parallelism_obeys_the_laws(strategy: ps.Strategy) -> None:
    ps.check_strategy(strategy, nodes=(4, 8), workload=small(head="tied"))


@pytest.mark.parametrize(("strategy", "words"), [(ps.Megatron(experts=3), "experts=3"), (ps.Megatron(experts=8), "does not divide the 4 experts")])
def test_experts_that_cannot_be_dealt_out_are_refused_in_words(strategy: ps.Strategy, words: str) -> None:
    with pytest.raises(ps.InputError, match=words):
        ps.simulate(small(), ps.Cluster(nodes=8, network=ps.Network(PORT)), strategy, batch_size=1)


def test_a_router_without_enough_experts_is_refused() -> None:
    with pytest.raises(ps.InputError, match="active_experts=5"):
        small(active_experts=5)


def tied(elements: int) -> ps.Workload:
    """A table, a layer, and an output layer that is the table."""
    times = {"forward_time": 1e-3, "backward_time": 2e-3}
    return ps.Workload("tied", (
        ps.Layer("table", "embedding", (elements,), output_elements=0.25, **times), ps.Layer("middle", "conv", (1,), output_elements=0.25, **times),
        ps.Layer("output", "linear", (), tied="table", **times),
    ))  # fmt: skip


# Narayanan et al., SC'21, section 2: the first and the last stage hold the token table and add up their gradients of it, once an iteration.
@pytest.mark.parametrize("strategy", [ps.Megatron(pipeline=2), ps.Axonn(pipeline=2, offload=False)])
def test_two_stages_that_share_a_table_send_each_other_its_gradient_once(strategy: ps.Strategy) -> None:
    """Both hold 10^6 parameters: 4 MB each way; the last of two micro-batches on the first stage ends the passes."""
    where = ps.Cluster(nodes=2, network=ps.Network(PORT, latency=LATENCY))
    run, other = (ps.simulate(w, where, strategy, batch_size=1, micro_batch_size=1, check=True) for w in (tied(10**6), replaced(tied(10**6))))
    assert run.step_time - other.step_time == pytest.approx(4e6 / PORT + LATENCY, rel=1e-6)
    assert run.summary()["bytes_sent_per_node"] - other.summary()["bytes_sent_per_node"] == pytest.approx(4e6)
    assert ps.simulate(tied(10**6), where, ps.Megatron(), batch_size=1).summary()["bytes_sent_per_node"] == pytest.approx(4e6 + 4)


def replaced(workload: ps.Workload) -> ps.Workload:
    return workload.with_changes(layers=tuple(replace(layer, tied="") for layer in workload.layers))


def test_a_model_file_says_what_is_tied() -> None:
    model = ps.load_model({"name": "x", "transformer": {"layers": 2, "hidden": 16, "heads": 2, "vocabulary": 50, "head": "tied"}}, sequence_length=8)
    assert model.layer("output").tied == "token_embedding" and model.layer("output").parameters == 0
