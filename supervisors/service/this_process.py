"""What a serving process asks of the interpreter and the system for itself, before it runs."""

from __future__ import annotations

import resource
import sys

from fw_actors.store import THREAD_SWITCH_SECONDS


def prepare() -> None:
    """Let the store's thread have its turn in time, and take all the descriptors one may have.

    Thousands of clients and receivers may be connected at once; the usual soft limit of 1,024
    descriptors is for programs that use select().
    """
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
