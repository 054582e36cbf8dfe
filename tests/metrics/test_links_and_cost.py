"""What links carry, what nodes send, what it costs."""

from __future__ import annotations

import pytest
from tiny_traces import FABRIC, Tiny, tiny_trace

import poseidon_sim as ps
from poseidon_sim.errors import InputError
from poseidon_sim.metrics import bytes_received, bytes_sent, cost, job_price_per_hour, link_uses, node_traffic
from poseidon_sim.metrics.links import LINK_WORDS, link_words


def test_utilisation_is_amount_over_capacity_and_time() -> None:
    # 2 s of GPU work, then 30 bytes through ports of 10 bytes/s: 5 s in all
    trace = tiny_trace([Tiny("forward", 2.0), Tiny("send", 30.0, after=[0])])
    uses = {use.kind: use for use in link_uses(trace, 5.0)}
    assert uses["gpu"].utilisation == pytest.approx(0.4)
    assert uses["nic_out"].utilisation == pytest.approx(0.6)
    assert (uses["nic_in"].amount, uses["nic_in"].capacity) == (30.0, 10.0)
    assert uses["nic_out"].name == "node port out, nodes 0.. (2 alike)"


def test_amounts_are_per_iteration() -> None:
    trace = tiny_trace([Tiny("send", 30.0), Tiny("send", 30.0, after=[0], iteration=1)], ends=[3.0, 6.0])
    assert node_traffic(trace)[0].sent == 30.0


def test_every_link_of_a_fabric_has_a_name_for_people() -> None:
    assert {kind for kind, _ in FABRIC.of} <= set(LINK_WORDS)
    assert link_words("strange_link") == "strange link"


def test_a_colocated_parameter_server_sends_what_its_formula_says() -> None:
    # VGG19 has 143.7 M parameters of 4 bytes; each of 8 nodes sends 2 x 7/8 of them
    model = ps.load_model("vgg19")
    cluster = ps.Cluster(nodes=8, gpu=ps.gpu("titan-x-maxwell"), network=ps.Network(1.25e9))
    trace = ps.simulate(model, cluster, "parameter-server", batch_size=32).trace
    expected = 2 * 7 / 8 * model.gradient_bytes
    assert bytes_sent(trace) == pytest.approx((expected, expected))
    assert bytes_received(trace) == pytest.approx((expected, expected))


def test_the_mean_is_over_all_nodes_and_the_busiest_is_found() -> None:
    # 4 workers and 1 server apart: workers send one gradient each, the server sends four
    model = ps.load_model("alexnet")
    cluster = ps.Cluster(nodes=4, gpu=ps.gpu("titan-x-maxwell"), network=ps.Network(1.25e9))
    trace = ps.simulate(model, cluster, ps.ParameterServer(servers=1), batch_size=32).trace
    mean, busiest = bytes_sent(trace)
    assert busiest == pytest.approx(4 * model.gradient_bytes)
    assert mean == pytest.approx((4 * 1 + 4) / 5 * model.gradient_bytes)


def test_one_node_sends_nothing() -> None:
    trace = ps.simulate(
        "alexnet", ps.Cluster(nodes=1, gpu=ps.gpu("titan-x-maxwell")), "poseidon", batch_size=32
    ).trace
    assert bytes_sent(trace) == (0.0, 0.0)


def test_a_step_costs_its_share_of_the_hour() -> None:
    # 18 per hour = 0.005 per second; 2 s steps of 500 samples: 0.01 a step, 20 a million samples
    bill = cost(18.0, step_time=2.0, throughput=250.0)
    assert (bill.per_step, bill.per_million_samples) == pytest.approx((0.01, 20.0))


def test_a_node_price_covers_its_gpus_and_charges_servers() -> None:
    cluster = ps.Cluster(nodes=4, gpus_per_node=8, network=ps.Network(1.25e9), price_per_node_hour=10.0)
    assert job_price_per_hour(cluster) == 40.0
    assert job_price_per_hour(cluster, extra_nodes=1) == 50.0
    assert job_price_per_hour(cluster, per_gpu_hour=1.5) == 48.0
    assert job_price_per_hour(ps.Cluster(nodes=1)) is None


def test_prices_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="not both"):
        job_price_per_hour(ps.Cluster(nodes=1), per_gpu_hour=1.0, per_node_hour=2.0)
    with pytest.raises(InputError, match="must not be negative"):
        cost(-1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="above 0"):
        cost(1.0, 1.0, 0.0)
