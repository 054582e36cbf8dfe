"""Memory per GPU: a two-layer network by hand, and networks whose fit is known."""

from __future__ import annotations

import pytest

import poseidon_sim as ps
from poseidon_sim.metrics import largest_batch, memory_per_gpu
from poseidon_sim.plan.memory import FRAMEWORK_BYTES
from poseidon_sim.workload.activations import kept_elements


def test_a_tiny_network_adds_up_by_hand() -> None:
    # conv keeps 100 outputs; its ReLU is in place; linear (10 + 2 parameters) keeps 2, and the loss 2 more
    layers = (
        ps.Layer("conv", "conv", (30,), output_elements=100),
        ps.Layer("relu", "activation", output_elements=100),
        ps.Layer("fc", "linear", (10, 2), output_elements=2),
    )
    memory = memory_per_gpu(ps.Workload("tiny", layers, optimizer_bytes=8.0), None, 5)
    assert memory.parameters == memory.gradients == 4 * 42
    assert memory.optimizer == 8 * 42
    assert memory.activations == 5 * 4 * (100 + 2 + 2)
    assert memory.total == 42 * 16 + 5 * 4 * 104 + FRAMEWORK_BYTES
    assert memory.fits and memory.shortfall == 0.0


def test_an_unknown_capacity_fits_and_a_known_one_gives_the_shortfall() -> None:
    model = ps.load_model("vgg19")
    small = ps.Gpu("small", memory=2e9)
    memory = memory_per_gpu(model, small, 32)
    assert not memory.fits
    assert memory.shortfall == pytest.approx(memory.total - 2e9)


@pytest.mark.parametrize(
    ("model", "batch_size", "gpu", "fits"),
    [
        ("vgg19", 32, "titan-x-maxwell", True),  # ran on 12 GB in the Poseidon paper
        ("vgg19-22k", 32, "titan-x-maxwell", True),
        ("googlenet", 128, "titan-x-maxwell", True),
        ("inception-v3", 32, "titan-x-maxwell", True),
        ("resnet152", 32, "titan-x-maxwell", True),
        ("vgg19", 512, "titan-x-maxwell", False),
        ("bert-large", 8, "rtx-2080-ti", True),  # ran on 11 GB in the ddl-benchmarks of HKBU
    ],
)
def test_what_fits_and_what_does_not_is_known_from_real_runs(
    model: str, batch_size: int, gpu: str, fits: bool
) -> None:
    assert memory_per_gpu(ps.load_model(model), ps.gpu(gpu), batch_size).fits is fits


@pytest.mark.parametrize("model", ["vgg19", "resnet50", "bert-large", "googlenet"])
def test_the_largest_batch_fits_and_one_more_does_not(model: str) -> None:
    workload, gpu = ps.load_model(model), ps.gpu("titan-x-maxwell")
    most = largest_batch(memory_per_gpu(workload, gpu, 1), 1)
    assert memory_per_gpu(workload, gpu, most).fits
    assert not memory_per_gpu(workload, gpu, most + 1).fits


def test_a_network_larger_than_the_gpu_has_no_batch_that_fits() -> None:
    assert largest_batch(memory_per_gpu(ps.load_model("vgg19"), ps.Gpu("tiny", memory=1e9), 1), 1) == 0


def test_a_transformer_layer_keeps_what_the_published_count_says() -> None:
    # Korthikanti et al. 2022: 34 bytes per token and hidden unit at 2 bytes an element, of which 2 are
    # dropout masks  that we do not count: 16 elements; BERT-Large at 128 tokens and 1024 wide
    layers = ps.load_model("bert-large").with_changes(precision="fp16", element_bytes=2).layers
    one = tuple(layer for layer in layers if layer.name.startswith("layer.3."))
    kept = kept_elements(ps.Workload("one", one, element_bytes=2)) - one[-1].output_elements
    assert kept == pytest.approx(16 * 128 * 1024)
