"""Tests of fw_actors.services.doctor."""
