"""What is served under which path, one module a family."""
