"""The reference for sign-ins: the same password verified on the same cores, and nothing else."""

from __future__ import annotations

import os
import threading
import time

import argon2

from benchmarks.access.service import PASSWORD


def verify(count: int) -> float:
    """Verify `count` times with the default parameters, a thread a core; return hashes/s."""
    hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
    stored = hasher.hash(PASSWORD)
    cores = len(os.sched_getaffinity(0))

    def work() -> None:
        for _ in range(count // cores):
            hasher.verify(stored, PASSWORD)

    threads = [threading.Thread(target=work) for _ in range(cores)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count // cores * cores / (time.perf_counter() - begun)
