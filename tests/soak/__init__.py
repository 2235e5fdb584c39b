"""A real service under mixed load for minutes: the series that must stay flat, and their chart."""
