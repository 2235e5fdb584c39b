"""Tests; the folders mirror the code's."""
