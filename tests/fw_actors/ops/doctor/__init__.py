"""Tests of fw_actors.ops.doctor."""
