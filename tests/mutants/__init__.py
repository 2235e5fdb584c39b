"""Deliberate faults, each of which a test has to find: docs/testing.md."""
