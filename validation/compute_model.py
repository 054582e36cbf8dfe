"""Hold the compute model against published one-GPU figures; prints a Markdown table.

    python validation/compute_model.py

Sources: forward and backward splits, jcjohnson/cnn-benchmarks and soumith/convnet-benchmarks (Torch, cuDNN 5.0, AlexNet and
GoogLeNet R4); tensorflow.org benchmarks page 2017 (K80, P100); HKBU ddl-benchmarks (RTX 2080 Ti); authors' plot data (VGG19-22K).
"""

from __future__ import annotations

import poseidon_sim as ps

#: GPU, model, batch, published samples/s, whether the generation's efficiency was set on it
RATES = [
    ("k80", "resnet50", 64, 51.0, "fitted"), ("k80", "inception-v3", 64, 30.0, "predicted"), ("k80", "vgg16", 64, 36.0, "fitted"),
    ("p100-sxm2-16gb", "resnet50", 64, 219.0, "fitted"), ("p100-sxm2-16gb", "inception-v3", 64, 142.0, "predicted"),
    ("p100-sxm2-16gb", "vgg16", 64, 150.0, "predicted"), ("p100-sxm2-16gb", "resnet152", 64, 91.8, "predicted"),
    ("rtx-2080-ti", "resnet50", 64, 253.1, "fitted"), ("titan-x-maxwell", "vgg19-22k", 32, 34.6, "predicted"),
]  # fmt: skip
#: model, batch, published forward and backward in ms on a Titan X (Maxwell)
SPLITS = [("vgg19", 16, 93.5, 229.3), ("resnet152", 16, 125.0, 240.0), ("googlenet", 128, 130.0, 340.0)]


def rows() -> list[tuple[str, str, int, str, str, float, str]]:
    """Return GPU, model, batch, published, modelled, relative error, use."""
    found = []
    for gpu, model, batch, published, use in RATES:
        modelled = batch / float(ps.layer_times(ps.load_model(model), ps.gpu(gpu), batch).sum())
        found.append((gpu, model, batch, f"{published:.1f} /s", f"{modelled:.1f} /s", modelled / published - 1, use))
    for model, batch, forward, backward in SPLITS:
        times = ps.layer_times(ps.load_model(model), ps.gpu("titan-x-maxwell"), batch).sum(axis=0) * 1e3
        published = f"{forward:g} + {backward:g} ms, forward {forward / (forward + backward):.0%}"
        modelled_text = f"{times[0]:.0f} + {times[1]:.0f} ms, forward {times[0] / times.sum():.0%}"
        found.append(("titan-x-maxwell", model, batch, published, modelled_text, times.sum() / (forward + backward) - 1, "fitted"))
    return found


if __name__ == "__main__":
    for gpu, model, batch, published, modelled, error, use in rows():
        print(f"| {gpu} | {model} | {batch} | {published} | {modelled} | {error:+.0%} | {use} |")
