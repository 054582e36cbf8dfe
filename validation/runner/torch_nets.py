"""Small real nets, the samples they train on, and a job made from one."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from .job import Job, RunLayer

CLASSES = 10


def build(net: str, seed: int = 0) -> nn.Sequential:
    """Build one of the nets with parameters that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if net == "mlp":  # sizes that no number of shards divides evenly
            return nn.Sequential(
                nn.Linear(31, 57), nn.ReLU(), nn.Linear(57, 43, bias=False), nn.ReLU(), nn.Linear(43, CLASSES)
            )
        if net == "cnn":
            return nn.Sequential(
                nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, bias=False), nn.ReLU(),
                nn.Flatten(), nn.Linear(72, 50), nn.ReLU(), nn.Linear(50, CLASSES),
            )  # fmt: skip
        if net == "wide-mlp":
            return nn.Sequential(
                nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES)
            )
    raise ValueError(f"net={net!r} is unknown")


INPUT_SHAPES = {"mlp": (31,), "cnn": (1, 12, 12), "wide-mlp": (784,)}


def modules(net: nn.Module) -> list[nn.Module]:
    """The modules that have parameters of their own, in forward order."""
    return [m for m in net.modules() if list(m.parameters(recurse=False))]


def samples(job: Job, rank: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and classes of one worker's batch; a fixed random line between classes makes them learnable."""
    draw = torch.Generator().manual_seed(1_000_003 * job.seed + 1009 * iteration + rank)
    inputs = torch.randn(job.batch_size, *INPUT_SHAPES[job.net], generator=draw)
    teacher = torch.randn(inputs[0].numel(), CLASSES, generator=torch.Generator().manual_seed(job.seed))
    return inputs, (inputs.flatten(1) @ teacher).argmax(dim=1)


def layers_of(net: nn.Module) -> tuple[RunLayer, ...]:
    """The net's layers as the runner knows them."""
    out = []
    for index, module in enumerate(modules(net)):
        tensors = tuple(p.numel() for p in module.parameters(recurse=False))
        shape = (module.out_features, module.in_features) if isinstance(module, nn.Linear) else None
        out.append(RunLayer(f"{type(module).__name__.lower()}{index + 1}", tensors, shape))
    return tuple(out)


def job_of(net: str, strategy: str, workers: int, **settings: object) -> Job:
    """Return a job that trains a real net."""
    job = Job((), strategy, workers, net=net, **settings)  # type: ignore[arg-type]
    return dataclasses.replace(job, layers=layers_of(build(net)))


def train_alone(job: Job) -> tuple[list[list[torch.Tensor]], list[float]]:
    """Train one process on the joint batch of all workers, with PyTorch's own optimizer.

    Returns the parameters by layer, and the loss of every iteration.
    """
    net, losses = build(job.net, job.seed), []
    optimizer = torch.optim.SGD(net.parameters(), job.learning_rate)
    for iteration in range(job.warm_up + job.iterations):
        batches = [samples(job, rank, iteration) for rank in range(job.workers)]
        inputs, classes = (torch.cat(parts) for parts in zip(*batches, strict=True))
        loss = nn.functional.cross_entropy(net(inputs), classes)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return [[p.detach() for p in m.parameters(recurse=False)] for m in modules(net)], losses
