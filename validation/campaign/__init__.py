"""Real cases on the emulated network, and the same cases through the simulator."""
