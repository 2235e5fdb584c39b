"""Promises kept through kill -9: real processes, real sockets."""
