"""Tests of fw_actors.webhooks."""
