"""Tests of the service as a process; `fake_service` is a stand-in for it."""
