"""The service as a process: start, readiness, stop."""
