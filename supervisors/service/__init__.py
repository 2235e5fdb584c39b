"""The service as a process: how it starts, says that it is ready, and stops."""
