"""A whole site in virtual time, with faults in its environment: docs/testing.md."""
