"""Measurements of the service against references, both in one run on one machine."""
