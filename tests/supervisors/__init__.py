"""Tests of supervision; time is virtual in all of them."""
