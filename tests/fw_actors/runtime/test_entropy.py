"""Sources of randomness."""

from __future__ import annotations

import os

from fw_actors.runtime import SeededEntropy, SystemEntropy


def test_seeded_entropy_repeats_its_sequence() -> None:
    one, two = SeededEntropy(7), SeededEntropy(7)
    assert (one.bytes(8), one.uniform(0, 1)) == (two.bytes(8), two.uniform(0, 1))
    assert SeededEntropy(8).bytes(8) != SeededEntropy(7).bytes(8)


def test_system_entropy_keeps_to_its_bounds() -> None:
    entropy = SystemEntropy()
    assert len(entropy.bytes(32)) == 32
    assert 2.0 <= entropy.uniform(2.0, 3.0) <= 3.0


def test_system_entropy_gives_what_the_operating_system_gives() -> None:
    assert SystemEntropy().bytes is os.urandom


def test_system_entropy_never_gives_the_same_twice() -> None:
    entropy = SystemEntropy()
    assert len({entropy.bytes(16) for _ in range(1000)}) == 1000
    assert len({entropy.uniform(0, 1) for _ in range(1000)}) == 1000
