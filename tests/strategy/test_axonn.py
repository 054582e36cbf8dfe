"""AxoNN against its own pipeline played by hand and the recursion of three streams that update a chunk of parameters each."""

from __future__ import annotations

import heapq

import pytest

import poseidon_sim as ps

PORT, LATENCY, PCIE, MEMORY = 1e9, 3e-5, 5e9, 1e11


def model(times: list[tuple[float, float]], parameters: list[int], block: bool = False) -> ps.Workload:
    """Layers with measured times and one without work, so that the optimizer's step is modelled; fp32, Adam (8 bytes of state)."""
    layers = [
        ps.Layer(f"l{i}", "conv", (n,), forward_time=f, backward_time=b, output_elements=0.25, block=f"b.{i}" if block else "")
        for i, ((f, b), n) in enumerate(zip(times, parameters, strict=True))
    ]
    layers.append(ps.Layer("end", "activation", block=layers[-1].block))
    return ps.Workload("chain", tuple(layers), batch_size=1, optimizer_bytes=8)


def where(nodes: int) -> ps.Cluster:
    gpu = ps.Gpu("g", flops={"fp32": 1e12}, memory_bandwidth=MEMORY, memory_efficiency=1.0)
    return ps.Cluster(nodes=nodes, gpu=gpu, pcie=PCIE, network=ps.Network(PORT, latency=LATENCY))


def step(workload: ps.Workload, cluster: ps.Cluster, strategy: ps.Strategy, micro_batches: int) -> float:
    pipeline = getattr(strategy, "pipeline", 1)
    options = {"batch_size": micro_batches / pipeline, "micro_batch_size": 1}
    run = ps.simulate(workload, cluster, strategy, check=True, engine="fast", **options)
    assert ps.simulate(workload, cluster, strategy, engine="reference", **options).step_time == pytest.approx(run.step_time, rel=1e-9)
    return run.step_time


def played(times: list[tuple[float, float]], m: int, message: float) -> list[float]:
    """Section 3 of the paper: a stage runs whichever message is there; the first lets p micro-batches in, then one for each that came
    back. Return when each stage has run its last backward pass."""
    p = len(times)
    waiting: list[list[tuple[float, int, int, str]]] = [[] for _ in times]
    order, let_in = 0, min(p, m)
    for i in range(let_in):
        waiting[0].append((0.0, i, i, "F"))
    free, end = [0.0] * p, [0.0] * p
    while any(waiting):
        # the next pass to begin: on every stage the message that came first, of those the earliest
        start, d = min((max(free[d], min(w)[0]), d) for d, w in enumerate(waiting) if w)
        heapq.heapify(waiting[d])
        _, _, micro, kind = heapq.heappop(waiting[d])
        order += 1
        free[d] = now = start + times[d][kind == "B"]
        end[d] = now if kind == "B" else end[d]
        if kind == "F" and d < p - 1:
            waiting[d + 1].append((now + message, order, micro, "F"))
        elif kind == "F":
            waiting[d].append((now, order, micro, "B"))
        elif d > 0:
            waiting[d - 1].append((now + message, order, micro, "B"))
        elif let_in < m:
            waiting[0].append((now, order, let_in, "F"))
            let_in += 1
    return end


def updated(begin: float, parameters: int, replicas: int, bucket: int, chunk: int) -> float:
    """Section 4: the sums of chunks follow one another; a bucket's state comes in (12 bytes), Adam runs (28), the state goes out (12)."""
    summed = came = adam = gone = begin
    for first in range(0, parameters, bucket * chunk):
        mine = min(bucket * chunk, parameters - first)
        rounds = 2 * (replicas - 1).bit_length()
        summed += (2 * (replicas - 1) / replicas * 4 * mine / PORT + rounds * LATENCY) if replicas > 1 else 0.0
        for at in range(0, mine, bucket):
            n = min(bucket, mine - at)
            came = max(came, summed) + 12 * n / PCIE
            adam = max(adam, came) + 28 * n / MEMORY
            gone = max(gone, adam) + 12 * n / PCIE
    return gone


# One GPU, 10^7 parameters in buckets of 10^6: 10 times 12 MB in at 5 GB/s (2.4 ms) beside 12 MB out, so about 11 x 2.4 ms after the passes.
# Sums and copies share the lanes to the host; here the copies of a chunk end before the next sum even so.
@pytest.mark.parametrize(("replicas", "bucket", "chunk"), [(1, 10**6, 4), (1, 3 * 10**6, 1), (2, 10**6, 5), (4, 7 * 10**5, 3)])
def test_the_update_is_three_streams_that_take_bucket_after_bucket(replicas: int, bucket: int, chunk: int) -> None:
    found = step(model([(2e-3, 5e-3)], [10**7]), where(replicas), ps.Axonn(bucket_parameters=bucket, chunk=chunk), 3)
    assert found == pytest.approx(updated(3 * 7e-3, 10**7, replicas, bucket, chunk), rel=1e-9)


UNLIKE = [(2.03e-3, 5.11e-3), (1.71e-3, 4.57e-3), (2.41e-3, 5.93e-3), (1.13e-3, 3.37e-3)]


@pytest.mark.parametrize(("p", "m", "replicas"), [(2, 1, 1), (2, 5, 2), (4, 4, 1), (4, 11, 3)])
def test_a_step_is_the_pipeline_played_by_hand_and_then_the_slowest_stages_update(p: int, m: int, replicas: int) -> None:
    parameters = [10**6 * (3 + d) for d in range(p)]
    found = step(model(UNLIKE[:p], parameters), where(p * replicas), ps.Axonn(pipeline=p, bucket_parameters=10**6), m)
    ends = played(UNLIKE[:p], m, LATENCY + 1 / PORT)
    assert found == pytest.approx(max(updated(end, n, replicas, 10**6, 4) for end, n in zip(ends, parameters, strict=True)), rel=1e-6)


def test_alike_stages_are_never_under_the_ideal_bubble_and_lose_where_one_message_waits_behind_another() -> None:
    """p stages that take t each and m micro-batches: (m + p - 1) t at least. With p micro-batches in the pipeline every wait is lost."""
    p, m, t = 4, 32, 7e-3
    found = step(model([(2e-3, 5e-3)] * p, [4] * p), where(p), ps.Axonn(pipeline=p), m)
    assert (m + p - 1) * t <= found <= 1.25 * (m + p - 1) * t


def test_blocks_run_forward_again_before_backward_unless_nothing_is_recomputed() -> None:
    """Four micro-batches of two blocks: four forward passes of 4 ms more."""
    chain = model([(2e-3, 5e-3)] * 2, [4] * 2, block=True)
    again, kept = (step(chain, where(1), ps.Axonn(checkpoint=c), 4) for c in (4, 0))
    assert again - kept == pytest.approx(4 * 4e-3, rel=1e-6)


def test_a_pipeline_inside_a_node_leaves_the_port_to_the_sums() -> None:
    """2 nodes of 4 GPUs, pipelines of 4: every node is a pipeline; each of 4 stages sums 4 MB over two nodes, 4 MB from each node."""
    chain = model([(2e-3, 5e-3)] * 4, [10**6] * 4)
    cluster = ps.Cluster(nodes=2, gpus_per_node=4, gpu=where(1).gpu, pcie=PCIE, network=ps.Network(PORT))
    run = ps.simulate(chain, cluster, ps.Axonn(pipeline=4), batch_size=2, micro_batch_size=1, check=True)
    assert run.summary()["bytes_sent_per_node"] == pytest.approx(4 * 4e6)
    on_gpu = ps.simulate(chain, cluster, ps.Axonn(pipeline=4, offload=False), batch_size=2, micro_batch_size=1)
    assert on_gpu.step_time < run.step_time  # no state to move


def test_offloading_leaves_two_buckets_of_state_on_the_gpu() -> None:
    chain = model([(2e-3, 5e-3)] * 4, [10**8] * 4)
    job = {"batch_size": 1, "micro_batch_size": 1}
    with_state, without = (ps.simulate(chain, where(4), ps.Axonn(pipeline=4, offload=o), **job).memory for o in (False, True))
    assert with_state.optimizer == pytest.approx(8e8)
    assert without.optimizer == pytest.approx(8 * 2 * 16e6)
    assert with_state.parameters == without.parameters


@pytest.mark.parametrize(
    ("strategy", "words"),
    [(ps.Axonn(pipeline=3), "does not divide"), (ps.Axonn(chunk=0), "chunk=0"), (ps.Axonn(bucket_parameters=0), "bucket_parameters=0")],
)
def test_settings_that_make_no_sense_are_refused_in_words(strategy: ps.Strategy, words: str) -> None:
    with pytest.raises(ps.InputError, match=words):
        ps.simulate(model([(1e-3, 1e-3)], [4]), where(4), strategy, batch_size=1)
