"""FPDeep against its closed form: the slower of an equal share of the work and the fullest link of the chain, whatever the batch."""

from __future__ import annotations

import pytest

import poseidon_sim as ps


def network(layers: int, elements: float) -> ps.Workload:
    each = [
        ps.Layer(f"l{i}", "conv", (10,), forward_time=1e-3, backward_time=2e-3, input_elements=elements, output_elements=elements)
        for i in range(layers)
    ]
    return ps.Workload("chain", tuple(each), batch_size=1)


def step(workload: ps.Workload, nodes: int, rate: float, batch: float = 1.0) -> float:
    where = ps.Cluster(nodes=nodes, network=ps.Network(rate) if nodes > 1 else None)
    return ps.simulate(workload, where, ps.FpDeep(), batch_size=batch, check=True).step_time


# throughput = min(N rate / operations, link / bytes over a cut): 6 layers of 3 ms a sample take 18 / N ms on N devices while links keep up.
@pytest.mark.parametrize("nodes", [1, 2, 3, 6, 12])
def test_devices_share_the_work_evenly_while_links_keep_up(nodes: int) -> None:
    assert step(network(6, 10.0), nodes, 1e9, batch=4) == pytest.approx(4 * nodes * 6 * 3e-3 / nodes, rel=1e-9)


def test_the_fullest_link_is_the_limit_when_it_is_slower_than_the_work() -> None:
    """4 samples x 10^5 elements x 4 bytes over a port of 10^8 bytes/s: an inner device sends that much each way, 32 ms for both of its links."""
    found = step(network(6, 1e5), 6, 1e8, batch=4 / 6)
    assert found == pytest.approx(2 * 4 * 1e5 * 4 / 1e8, rel=1e-9)


def test_time_per_sample_does_not_depend_on_the_batch() -> None:
    model, where = ps.load_model("alexnet"), ps.Cluster(nodes=4, gpu=ps.gpu("k80"), network=ps.Network(15.6e9))
    steps = {batch: ps.simulate(model, where, ps.FpDeep(), batch_size=batch).step_time / batch for batch in (64, 128)}
    assert steps[64] == pytest.approx(steps[128], rel=0.1)  # what is left is the kernels' own fill
