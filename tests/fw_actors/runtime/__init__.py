"""Tests of the actor runtime; time is virtual in all of them."""
