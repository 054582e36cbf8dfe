"""Theano-MPI: one-GPU rows are given, AlexNet chose four numbers, VGG-16 and eight GPUs with ASA are predicted."""

from __future__ import annotations

import pytest

from .script import Table, complete, errors, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("theano_mpi")


def test_every_published_row_has_a_figure_or_a_reason(table: Table) -> None:
    assert complete(table, "B-TMPI") and len(table) == 110


def test_only_rows_of_alexnet_chose_a_number(table: Table) -> None:
    fitted = {name for name, row in table.items() if row.use == "fitted"}
    assert fitted and all(name.startswith(script("theano_mpi").FITTED) for name in fitted)
    assert all(abs(table[f"B-TMPI-nccl32-AlexNet-128b-{gpus}-comm"].error) < 0.005 for gpus in (2, 4, 8))
    assert abs(table["B-TMPI-asa32-AlexNet-4-comm"].error) < 0.005


def test_exchanges_of_vgg16_are_predicted_from_those_of_alexnet(table: Table) -> None:
    found = [abs(table[f"B-TMPI-nccl32-VGG16-32b-{gpus}-comm"].error) for gpus in (2, 4, 8)]
    assert max(found) < 0.03


def test_asa_on_eight_gpus_is_predicted_from_four(table: Table) -> None:
    assert abs(table["B-TMPI-asa32-AlexNet-8-comm"].error) < 0.05 and abs(table["B-TMPI-asa32-AlexNet-8-total"].error) < 0.03


def test_half_of_the_predicted_rows_are_within_three_per_cent(table: Table) -> None:
    found = errors(table, "B-TMPI")
    assert len(found) == 64 and found[32] < 0.03


# 5,120 images of AlexNet on two GPUs are 20 iterations: 0.78 s are 39 ms, and 243.86 MB cross each link once: 6.25 GB/s.
def test_bus_bandwidth_is_of_the_bytes_that_a_ring_moves() -> None:
    assert script("theano_mpi").bus_bandwidth("AlexNet", 2, 0.78 / 20) == pytest.approx(6.25, rel=2e-3)
