"""Tests of fw_actors.access."""
