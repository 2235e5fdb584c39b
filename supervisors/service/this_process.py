"""What a serving process asks of the interpreter and the system for itself, before it runs."""

from __future__ import annotations

import gc
import resource
import sys
from typing import Final

from fw_actors.store import THREAD_SWITCH_SECONDS

YOUNG_OBJECTS: Final = 20_000


def prepare() -> None:
    """Let the store's thread have its turn in time, look for garbage less often, and take all
    the descriptors one may have.

    What is in flight makes more than the 700 young objects after which Python looks through them
    again, and little of it is in rings: those looks took a twentieth of a delivery. The hundred
    thousand objects of the code itself stay for good and are not looked through any more.

    Thousands of clients and receivers may be connected at once; the usual soft limit of 1,024
    descriptors is for programs that use select().
    """
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    gc.set_threshold(YOUNG_OBJECTS)
    gc.freeze()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
