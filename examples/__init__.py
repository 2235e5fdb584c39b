"""Example programs of the runtime, and an example app of the service."""
