"""Example apps."""
