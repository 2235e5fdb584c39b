"""The cost of watching the service through its console."""
