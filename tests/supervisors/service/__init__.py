"""Tests of the service as a process; `fake_service` is one that holds nothing."""
