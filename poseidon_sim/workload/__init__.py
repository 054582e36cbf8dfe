"""What must be computed: layers, their shapes and the networks that come with the package."""

from poseidon_sim.workload.layer import Layer, Workload
from poseidon_sim.workload.load import list_models, load_model

__all__ = ["Layer", "Workload", "list_models", "load_model"]
