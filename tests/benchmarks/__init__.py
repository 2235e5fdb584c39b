"""Tests of the benchmarks: that they run and count right, not what they measure."""
