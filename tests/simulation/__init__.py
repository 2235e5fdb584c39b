"""A whole site in virtual time, with everything around it that can fail: docs/testing.md."""
