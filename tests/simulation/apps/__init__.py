"""Apps of the simulated site."""
