"""How a model is cut into stages: blocks that are alike evenly, unlike ones by their work, embeddings as blocks where only that divides."""

from __future__ import annotations

import pytest

import poseidon_sim as ps
from poseidon_sim.errors import InputError
from poseidon_sim.plan.stages import cut


def gpt(layers: int) -> ps.Workload:
    shape = {"layers": layers, "hidden": 64, "heads": 4, "vocabulary": 100, "positions": 16, "head": "tied"}
    return ps.load_model({"name": "gpt", "transformer": shape}, sequence_length=16)


def blocks_of(workload: ps.Workload, stages: int) -> list[int]:
    """Transformer blocks per stage."""
    return [len({workload.layers[i].block for i in stage} - {""}) for stage in cut(workload, stages)]


def test_blocks_that_divide_are_dealt_out_evenly_with_the_embedding_in_front_and_the_output_behind() -> None:
    assert blocks_of(gpt(8), 4) == [2, 2, 2, 2]


def test_embedding_and_output_count_as_a_block_each_where_only_that_divides() -> None:
    """6 + 2 over 4 stages: two each; 6 + 2 over 8 stages: the first and the last hold no block, as with 126 layers on 128 stages."""
    assert blocks_of(gpt(6), 4) == [1, 2, 2, 1]
    assert blocks_of(gpt(6), 8) == [0, 1, 1, 1, 1, 1, 1, 0]


def test_blocks_that_divide_in_no_way_give_the_first_stages_one_more() -> None:
    assert blocks_of(gpt(7), 4) == [2, 2, 2, 1]


def test_every_layer_stands_in_one_stage() -> None:
    for workload, stages in ((gpt(6), 4), (gpt(7), 3), (ps.load_model("resnet101"), 8)):
        assert [i for stage in cut(workload, stages) for i in stage] == list(range(len(workload.layers)))


def test_unlike_blocks_are_cut_by_their_work() -> None:
    """The heaviest of 8 stages of ResNet-101 has little more than an eighth of its FLOP; dealt out by number it has a fifth."""
    workload = ps.load_model("resnet101")
    work = [layer.forward_flops + layer.backward_flops for layer in workload.layers]
    heaviest = max(sum(work[i] for i in stage) for stage in cut(workload, 8))
    assert heaviest / sum(work) < 0.15


def test_more_stages_than_blocks_are_refused() -> None:
    with pytest.raises(InputError, match="too few for 12 stages"):
        cut(gpt(6), 12)
