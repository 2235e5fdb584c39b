"""A real service under mixed load for minutes: what must stay flat, and a picture of it."""
