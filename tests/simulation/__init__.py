"""A whole site in one virtual time, with everything around it that can fail. See docs/testing.md."""
