"""Tests of fw_actors, folder by folder."""
