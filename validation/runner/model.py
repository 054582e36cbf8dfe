"""Parameters and gradients of a job, true ones for tests and dummies of the same size for timing.

Gradients stand in two flat buffers used in turn by iteration, so that a message still on its way is never
overwritten.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .job import Job, RunLayer

Array = npt.NDArray[np.float32]


class Model:
    """The arrays of one process.

    `flat[parity]` holds all gradients in forward order; `gradients[parity][layer]` are views of it.
    `parameters` is one array per layer.
    """

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank = job, rank
        sizes = [layer.elements for layer in job.layers]
        self.first = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.flat = [self.zeros(int(self.first[-1])) for _ in range(2)]
        self.gradients = [
            [flat[a:b] for a, b in zip(self.first, self.first[1:], strict=False)] for flat in self.flat
        ]
        self.parameters = initial_parameters(job)
        rows = job.batch_size
        self.factors: list[list[Array | None]] = [
            [self.zeros(rows * sum(x.factor_shape)) if x.factor_shape else None for x in job.layers]
            for _ in range(2)
        ]
        self.step = np.float32(job.learning_rate / job.workers)

    def zeros(self, elements: int) -> Array:
        """Memory that messages are sent from and received into."""
        return np.zeros(elements, np.float32)

    def backward(self, layer: int, iteration: int) -> None:
        """Fill the gradient (and the factors, if it has any) of one layer; dummies stay as they are."""
        if not self.job.numeric:
            return
        spec, parity = self.job.layers[layer], iteration % 2
        parameters = self.parameters[layer]
        if spec.factor_shape is None:
            self.gradients[parity][layer][:] = plain_gradient(
                self.job, layer, self.rank, iteration, parameters
            )
            return
        found = sample_factors(self.job, layer, self.rank, iteration, parameters)
        own = self.factors[parity][layer]
        assert own is not None
        own[:] = found
        self.gradients[parity][layer][:] = rebuild(spec, found, self.job.batch_size)

    def apply(
        self, layer: int, total: Array, lo: int = 0, hi: int | None = None, spare: bool = False
    ) -> None:
        """Take one SGD step on elements lo..hi of a layer with the sum of all workers' gradients.

        `spare` : the sum is needed no more and may be overwritten (no memory is asked for then).
        """
        parameters = self.parameters[layer][lo:hi]
        parameters -= np.multiply(total, self.step, out=total if spare else None)


def initial_parameters(job: Job) -> list[Array]:
    """One array per layer, the same in every process."""
    if not job.numeric:
        return [np.zeros(layer.elements, np.float32) for layer in job.layers]
    draw = np.random.default_rng(job.seed)
    return [draw.standard_normal(layer.elements, dtype=np.float32) for layer in job.layers]


def _draw(job: Job, layer: int, rank: int, iteration: int) -> np.random.Generator:
    return np.random.default_rng([job.seed, layer, rank, iteration])


def plain_gradient(job: Job, layer: int, rank: int, iteration: int, parameters: Array) -> Array:
    """A gradient that depends on the samples of this worker and on the parameters."""
    noise = _draw(job, layer, rank, iteration).standard_normal(parameters.size, dtype=np.float32)
    return noise + np.float32(job.coupling) * parameters


def sample_factors(job: Job, layer: int, rank: int, iteration: int, parameters: Array) -> Array:
    """Sufficient factors of this worker's samples: (K, M) errors, then (K, N) inputs, flat."""
    spec = job.layers[layer]
    assert spec.factor_shape is not None
    m, n = spec.factor_shape
    draw = _draw(job, layer, rank, iteration)
    inputs = draw.standard_normal((job.batch_size, n), dtype=np.float32)
    errors = draw.standard_normal((job.batch_size, m), dtype=np.float32)
    weight = parameters[: m * n].reshape(m, n)
    errors += np.float32(job.coupling / n) * (inputs @ weight.T)
    return np.concatenate([errors.ravel(), inputs.ravel()])


def rebuild(spec: RunLayer, factors: Array, rows: int) -> Array:
    """Multiply factors out to the flat gradient of the weight and, if the layer has one, the bias."""
    assert spec.factor_shape is not None
    m, n = spec.factor_shape
    errors, inputs = factors[: rows * m].reshape(rows, m), factors[rows * m :].reshape(rows, n)
    parts = [(errors.T @ inputs).ravel()]
    if spec.elements > m * n:
        parts.append(errors.sum(axis=0))
    return np.concatenate(parts)


def single_process(job: Job) -> list[Array]:
    """The parameters that one process would reach on the joint batch of all workers."""
    parameters = initial_parameters(job)
    for iteration in range(job.warm_up + job.iterations):
        for layer, spec in enumerate(job.layers):
            total = np.zeros(spec.elements, np.float64)
            for rank in range(job.workers):
                if spec.factor_shape is None:
                    total += plain_gradient(job, layer, rank, iteration, parameters[layer])
                else:
                    found = sample_factors(job, layer, rank, iteration, parameters[layer])
                    total += rebuild(spec, found, job.batch_size)
            parameters[layer] -= (job.learning_rate / job.workers * total).astype(np.float32)
    return parameters
