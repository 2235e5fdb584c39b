"""Tests of `fw_actors.store`."""
