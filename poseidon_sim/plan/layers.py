"""The layers as strategies see them, and how long their passes take on every class of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster import Gpu, NodeClass
from poseidon_sim.errors import InputError
from poseidon_sim.plan.compute import layer_times
from poseidon_sim.workload.layer import Layer, Workload


@dataclass(frozen=True)
class PlanLayer:
    """A layer with parameters as strategies see it; parameter-free layers after it run with it.

    Bytes are what travels: gradients in the precision on the wire. Its times are asked of the plan.
    """

    index: int
    name: str
    layer: Layer
    gradient_bytes: float
    tensor_bytes: tuple[float, ...]

    @property
    def has_factors(self) -> bool:
        """Whether the gradient is a sum of outer products (sufficient factors exist)."""
        return self.layer.factor_shape is not None


@lru_cache(maxsize=64)
def plan_layers(workload: Workload) -> tuple[PlanLayer, ...]:
    """Return the layers with parameters in forward order."""
    rows = [workload.layers[i] for i in layer_owners(workload)]
    return tuple(
        PlanLayer(index, x.name, x, x.gradient_bytes(workload.element_bytes), x.tensor_bytes(workload.element_bytes))
        for index, x in enumerate(rows)
    )


def pass_times(workload: Workload, workers: Sequence[NodeClass], batch_size: int) -> npt.NDArray[np.float64]:
    """Return (1 + 2 L, W) seconds: the whole forward pass, then forward and backward of each layer with parameters.

    Times of layers without parameters are counted to the layer before them; those before the first, to the first.
    """
    columns = [
        _class_times(workload, c.gpu, c.batch_size or batch_size) * c.slowdown for c in workers
    ]
    return np.stack(columns, axis=1)


def times_at(workload: Workload, workers: Sequence[NodeClass], samples: Sequence[int], usual: int) -> npt.NDArray[np.float64]:
    """Return `pass_times` at so many samples per GPU of each worker class, 0 for none; times measured at `usual` grow evenly."""
    columns = [_times_of(workload, c.gpu, b, usual) * c.slowdown for c, b in zip(workers, samples, strict=True)]
    return np.stack(columns, axis=1)


def batch_seconds(workload: Workload, gpu: Gpu | None, samples: int, usual: int) -> float:
    """Return the seconds of forward and backward of `samples` on a GPU."""
    return float(_times_of(workload, gpu, samples, usual)[1:].sum())


def _times_of(workload: Workload, gpu: Gpu | None, samples: int, usual: int) -> npt.NDArray[np.float64]:
    measured = workload.single_gpu_batch_size is None and workload.has_all_times
    return _class_times(workload, gpu, samples or usual) * (samples / usual if measured or not samples else 1.0)


@lru_cache(maxsize=256)
def _class_times(workload: Workload, gpu: object, batch_size: int) -> npt.NDArray[np.float64]:
    """Return (1 + 2 L,) seconds on a GPU without slowdown."""
    times = layer_times(workload, gpu, batch_size)  # type: ignore[arg-type]
    first = np.array(layer_owners(workload))
    first[0] = 0
    per_layer = np.add.reduceat(times, first, axis=0)  # (L, 2)
    return np.concatenate([[times[:, 0].sum()], per_layer.ravel()])


@lru_cache(maxsize=64)
def layer_owners(workload: Workload) -> tuple[int, ...]:
    """Return the indices of the layers with parameters."""
    owners = tuple(i for i, each in enumerate(workload.layers) if each.gradient_bytes(workload.element_bytes) > 0)
    if not owners:
        raise InputError(f"model {workload.name!r} has no layer with parameters, so there is nothing to synchronise")
    return owners
