"""Tests of the actor runtime, all in virtual time."""
