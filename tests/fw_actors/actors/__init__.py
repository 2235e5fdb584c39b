"""Tests of the actors, under MockClock."""
