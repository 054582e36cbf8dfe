"""An emulated network: namespaces, veth pairs, bridges and token buckets, made and removed again."""

from .emulated import Network, emulated_network, missing_requirements
from .spec import NetworkSpec, Port, uniform

__all__ = ["Network", "NetworkSpec", "Port", "emulated_network", "missing_requirements", "uniform"]
