"""Measures the costs of an event on PostgreSQL, and simulates many nodes on one database."""
