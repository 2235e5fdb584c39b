"""Tests of the gate to argon2."""
