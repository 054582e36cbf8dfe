"""Pipelines, tensor and data parallelism and FSDP against closed forms of their papers and schedules played by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.laws import small_workload

FORWARD, BACKWARD = 2e-3, 5e-3
PORT, LATENCY, PEER = 1e9, 3e-5, 8e9


def chain(stages: int, boundary: float = 0.0, elements: int = 0) -> ps.Workload:
    """One layer a stage, all alike: fp32, so that `boundary` elements are 4 bytes each on the wire."""
    layers = tuple(
        ps.Layer(f"l{i}", "conv", (max(1, elements),), forward_time=FORWARD, backward_time=BACKWARD, output_elements=boundary)
        for i in range(stages)
    )
    return ps.Workload("chain", layers, batch_size=1)


def step(workload: ps.Workload, nodes: int, strategy: ps.Strategy, batch: int, micro: int = 1, gpus: int = 1, latency: float = LATENCY) -> float:
    """Return the step time, invariants checked and equal on both engines."""
    network = ps.Network(PORT, latency=latency) if nodes > 1 else None
    where = ps.Cluster(nodes=nodes, gpus_per_node=gpus, gpu=ps.Gpu("g", peer_bandwidth=PEER), node="nvswitch", network=network)
    options = {"batch_size": batch, "micro_batch_size": micro}
    run = ps.simulate(workload, where, strategy, check=True, engine="fast", **options)
    assert ps.simulate(workload, where, strategy, engine="reference", **options).step_time == pytest.approx(run.step_time, rel=1e-9)
    return run.step_time


# Narayanan et al., SC'21, section 2.2: p stages, m micro-batches and nothing to send take (m + p - 1)(t_f + t_b); the ideal is
# m (t_f + t_b), so the bubble is (p - 1) / m of it. GPipe's order has the same bubble.
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 4), (4, 12), (8, 8)])
def test_a_pipeline_without_messages_has_the_bubble_of_its_paper(schedule: str, p: int, m: int) -> None:
    found = step(chain(p), p, ps.Megatron(pipeline=p, schedule=schedule), batch=m // p, latency=0.0)
    assert found == pytest.approx((m + p - 1) * (FORWARD + BACKWARD), rel=1e-9)


# Singh and Bhatele, IPDPS'22: what is there first runs first, which is no worse than the ideal bubble allows and, with p micro-batches
# let in, a little worse than 1F1B, whose order knows what comes.
@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 4), (4, 12), (8, 32)])
def test_a_message_driven_pipeline_is_near_the_ideal_bubble_and_never_under_it(p: int, m: int) -> None:
    found = step(chain(p), p, ps.Megatron(pipeline=p, schedule="message-driven", blocking=False), batch=m // p, latency=0.0)
    ideal = (m + p - 1) * (FORWARD + BACKWARD)
    assert ideal * (1 - 1e-9) <= found <= 1.12 * ideal


# The same, section 2.2.2: v chunks per device make the bubble v times shorter: m v t + (p - 1) t for chunks that take t = t_f + t_b each.
@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 8, 3)])
def test_interleaving_divides_the_bubble_by_the_number_of_chunks(p: int, m: int, v: int) -> None:
    found = step(chain(p * v), p, ps.Megatron(pipeline=p, interleave=v), batch=m // p, latency=0.0)
    assert found == pytest.approx((m * v + p - 1) * (FORWARD + BACKWARD), rel=1e-9)


def played(times: list[tuple[float, float]], m: int, message: float, blocking: bool) -> float:
    """Play 1F1B by hand: warm up with p - 1 - d forwards, then one of each; every message is there `message` seconds later."""
    p = len(times)
    todo = []
    for d in range(p):
        warm = min(p - 1 - d, m)
        order = [("F", i) for i in range(warm)]
        for i in range(m - warm):
            order += [("F", warm + i), ("B", i)]
        todo.append(order + [("B", i) for i in range(m - warm, m)])
    free, arrived, end = [0.0] * p, {("F", 0, i): 0.0 for i in range(m)}, 0.0
    while any(todo):
        for d in range(p):
            while todo[d]:
                kind, i = todo[d][0]
                key = (kind, d, i)
                if kind == "B" and d == p - 1:
                    arrived[key] = 0.0  # its own forward stands before it in the order
                if key not in arrived:
                    break
                todo[d].pop(0)
                now = max(free[d], arrived[key]) + times[d][kind == "B"]
                free[d], end = now, max(end, now)
                other = d + 1 if kind == "F" else d - 1
                if 0 <= other < p:
                    arrived[(kind, other, i)] = now + message
                    if blocking:
                        free[d] = now + message
    return end


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=5), m=st.integers(1, 7),
    late=st.integers(0, 4000), blocking=st.booleans(),
)  # fmt: skip
def test_1f1b_of_unlike_stages_is_what_playing_it_by_hand_gives(times: list[tuple[int, int]], m: int, late: int, blocking: bool) -> None:
    p = len(times)
    seconds = [(f * 1e-3, b * 1e-3) for f, b in times]
    layers = tuple(
        ps.Layer(f"l{i}", "conv", (1,), forward_time=f, backward_time=b, output_elements=0.25) for i, (f, b) in enumerate(seconds)
    )
    where = ps.Cluster(nodes=p, network=ps.Network(PORT, latency=late * 1e-6))
    run = ps.simulate(ps.Workload("unlike", layers, batch_size=1), where, ps.Megatron(pipeline=p, blocking=blocking), batch_size=m / p, check=True)
    assert run.step_time == pytest.approx(played(seconds, m, late * 1e-6, blocking), rel=1e-6)


# Replicas: two pipelines of two stages on four nodes. After the last backward pass of a stage its gradient of 4 x 10^6 bytes goes around a
# ring of two: half the bytes twice, 2 latencies. The last to finish is the first stage.
def test_replicas_sum_their_gradients_in_a_ring_after_the_passes() -> None:
    found = step(chain(2, elements=10**6), 4, ps.Megatron(pipeline=2), batch=2)
    assert found == pytest.approx((4 + 1) * (FORWARD + BACKWARD) + 3 * 0 + 4e6 / PORT + 2 * LATENCY + 8 * 0 + sends(4), rel=2e-3)


def sends(num_micro: int) -> float:
    """Latency on the longest way through two stages: a message there, one back, and what blocking sends add; under 1 % of a step."""
    return (num_micro + 1) * LATENCY


def test_a_sharded_optimizer_moves_the_same_bytes_as_an_all_reduce_in_32_bits() -> None:
    one, other = (
        ps.simulate(small_workload(), ps.Cluster(nodes=4, network=ps.Network(PORT)), ps.Megatron(zero=z), batch_size=2).summary()
        for z in (0, 1)
    )
    assert one["bytes_sent_per_node"] == pytest.approx(other["bytes_sent_per_node"])


@pytest.mark.parametrize("t", [2, 4])
def test_tensor_parallelism_divides_a_blocks_products_and_sums_what_row_layers_write(t: int) -> None:
    """Shoeybi et al., section 3: two all-reduces forward, two backward a block, and one of the token table: 2 (t-1)/t of the bytes each."""
    blocks, hidden, length = 2, 64, 16
    shape = {"layers": blocks, "hidden": hidden, "heads": 4, "vocabulary": 128, "head": "none"}
    model = ps.load_model({"name": "gpt", "transformer": shape, "precision": "fp16"}, sequence_length=length)
    gpu = ps.Gpu("g", flops={"fp16": 1e9}, peer_bandwidth=1e6)  # slow links: all-reduces are seconds, compute is known apart
    where = ps.Cluster(nodes=1, gpus_per_node=4, gpu=gpu, node="nvswitch", peer_latency=1e-3)
    run = ps.simulate(model, where, ps.Megatron(tensor=t), batch_size=1)
    batch = 4 // (4 // t)
    calls = 4 * blocks + 1
    message = 2 * batch * length * hidden
    expected = calls * (2 * (t - 1) * 1e-3 + 2 * (t - 1) / t * message / 1e6)
    reduced = run.metrics.exposed_communication if t == 4 else None
    if reduced is not None:  # with t = 2 the two replicas sum gradients too
        assert reduced == pytest.approx(expected, rel=1e-6)
    else:
        assert run.metrics.exposed_communication > expected


def two_streams(gathers: list[float], forward: list[float], backward: list[float], reduces: list[float]) -> float:
    """Zhao et al., section 3.3: compute in order; gathers and reductions in order of readiness on one stream; at most two whole units."""
    units = len(forward)
    order = [*range(units), *reversed(range(units))]
    ended, waiting, stream, end = [0.0, 0.0], [], 0.0, 0.0
    for position, unit in enumerate(order):
        back = position >= units
        asked = ended[-2]
        while waiting and waiting[0][0] <= asked:  # reductions that were ready before this gather was asked for
            ready, seconds = waiting.pop(0)
            stream = max(stream, ready) + seconds
            end = max(end, stream)
        stream = max(stream, asked) + gathers[unit]
        now = max(ended[-1], stream) + (backward if back else forward)[unit]
        ended.append(now)
        if back:
            waiting.append((now, reduces[unit]))
    for ready, seconds in waiting:
        stream = max(stream, ready) + seconds
        end = max(end, stream)
    return max(end, ended[-1])


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(1, 50), st.floats(1.0, 9.7), st.floats(1.0, 9.3)), min_size=1, max_size=6), nodes=st.integers(2, 5))
def test_fsdp_is_two_streams_with_at_most_two_whole_units(rows: list[tuple[int, float, float]], nodes: int) -> None:
    layers = tuple(
        ps.Layer(f"l{i}", "conv", (s * 100_000,), forward_time=f * 1e-3, backward_time=b * 1e-3) for i, (s, f, b) in enumerate(rows)
    )
    half = [(nodes - 1) * (LATENCY + 4e5 * s / nodes / PORT) for s, _, _ in rows]
    where = ps.Cluster(nodes=nodes, network=ps.Network(PORT, latency=LATENCY))
    run = ps.simulate(ps.Workload("net", layers), where, ps.Fsdp(), batch_size=1, check=True)
    expected = two_streams(half, [f * 1e-3 for _, f, _ in rows], [b * 1e-3 for _, _, b in rows], half)
    assert run.step_time == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("shard", "halves"), [("full", 3), ("gradients", 2), ("optimizer", 2), ("none", 2)])
def test_zero_moves_three_halves_of_the_model_only_when_parameters_are_sharded(shard: str, halves: int) -> None:
    """Rajbhandari et al., section 7: stages 1 and 2 move 2 halves of an all-reduce as plain data parallelism does, stage 3 moves 3."""
    workload, nodes = small_workload(), 4
    run = ps.simulate(workload, ps.Cluster(nodes=nodes, network=ps.Network(PORT)), ps.Fsdp(shard=shard), batch_size=2)
    assert run.summary()["bytes_sent_per_node"] == pytest.approx(halves * (nodes - 1) / nodes * workload.gradient_bytes)


def test_sharding_divides_memory_and_a_refusal_is_lifted_by_it() -> None:
    where = ps.Cluster(nodes=2, gpus_per_node=8, gpu=ps.gpu("a100-sxm-40gb"), node="nvswitch", network=ps.Network(1e11))
    with pytest.raises(ps.InfeasibleError):
        ps.simulate("llama-7b", where, "all-reduce", batch_size=1)
    assert ps.simulate("llama-7b", where, ps.Fsdp(recompute="full"), batch_size=1).memory.fits
    assert ps.simulate("llama-7b", where, ps.Megatron(tensor=8, recompute="full"), batch_size=1).memory.fits


# Gradient accumulation: k micro-batches of which only the last is synchronised; the first k - 1 compute alone.
def test_micro_batches_but_the_last_compute_without_communication() -> None:
    where = ps.Cluster(nodes=4, network=ps.Network(1e8, latency=1e-4))
    one = ps.simulate(small_workload(), where, "all-reduce", batch_size=4)
    four = ps.simulate(small_workload(), where, "all-reduce", batch_size=16, micro_batch_size=4)
    assert four.step_time == pytest.approx(one.step_time + 3 * one.single_gpu_time, rel=1e-9)


@pytest.mark.parametrize(
    ("strategy", "options", "words"),
    [
        (ps.Megatron(pipeline=3), {"batch_size": 1}, "does not divide"),
        (ps.Megatron(pipeline=2, schedule="zigzag"), {"batch_size": 1}, "schedule"),
        (ps.Megatron(zero=3), {"batch_size": 1}, "fsdp"),
        (ps.Megatron(pipeline=4), {"batch_size": 1, "micro_batch_size": 3}, "micro_batch_size=3"),
        (ps.AllReduce(), {"batch_size": 4, "micro_batch_size": 3}, "does not divide"),
        (ps.AllReduce(), {"batch_size": 0.5}, "samples per GPU"),
        (ps.Fsdp(shard="some"), {"batch_size": 1}, "shard"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused_in_words(strategy: ps.Strategy, options: dict[str, float], words: str) -> None:
    where = ps.Cluster(nodes=4, network=ps.Network(1e8))
    with pytest.raises(ps.InputError, match=words):
        ps.simulate(chain(4), where, strategy, **options)


@pytest.mark.parametrize(("nodes", "words"), [(1, "strategy {name: fsdp"), (16, "strategy {name: fsdp, shard: optimizer} fits")])
def test_a_refusal_names_the_nearest_strategy_that_fits(nodes: int, words: str) -> None:
    where = ps.Cluster(nodes=nodes, gpus_per_node=8, gpu=ps.gpu("a100-sxm-40gb"), node="nvswitch", network=ps.Network(1e11))
    with pytest.raises(ps.InfeasibleError) as caught:
        ps.simulate("llama-7b", where, "all-reduce", batch_size=1)
    assert words in str(caught.value)


def test_a_refusal_that_nothing_helps_says_so() -> None:
    where = ps.Cluster(nodes=1, gpus_per_node=1, gpu=ps.gpu("t4"))
    with pytest.raises(ps.InfeasibleError, match="no strategy of the toolkit makes it fit"):
        ps.simulate("llama-7b", where, "all-reduce", batch_size=1)


def test_fsdp_holds_two_units_more_than_its_part_or_all_that_stays_gathered() -> None:
    where = ps.Cluster(nodes=8, gpu=ps.gpu("a100-sxm-80gb"), network=ps.Network(1e11))
    model = ps.load_model("gpt2-medium", precision="bf16")
    held = {
        text: ps.simulate(model, where, ps.Fsdp(**options), batch_size=1).memory.parameters / (2 * model.parameters)
        for text, options in (("block", {}), ("small", {"unit": "1 MB"}), ("all", {"unit": "all"}), ("kept", {"reshard": False}))
    }
    blocks: dict[str, int] = {}
    for layer in model.layers:
        blocks[layer.block or layer.name] = blocks.get(layer.block or layer.name, 0) + layer.parameters
    assert held["block"] == pytest.approx(1 / 8 + 2 * max(blocks.values()) / model.parameters)
    assert held["small"] <= held["block"] < held["all"] == held["kept"] == 1.0
