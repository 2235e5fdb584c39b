"""Attacks from outside that must fail: real processes, a real proxy, the logs afterwards."""
