"""From benchmark logs to a cluster: readers of common tools, and fits that say where each number comes from."""

from poseidon_sim.calibration.fit import Calibration, Parameter, calibrate
from poseidon_sim.calibration.readers import Measurement, read_measurements

__all__ = ["Calibration", "Measurement", "Parameter", "calibrate", "read_measurements"]
