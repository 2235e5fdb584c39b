"""Tests of what is served under which path."""
