"""Runs a test of supervision in many orders of trio's tasks, each time with a new runtime."""

from __future__ import annotations

import os
from typing import Final

from fw_actors.runtime.testing import seeds

ORDERS: Final = int(os.environ.get("TASK_ORDERS", "30"))

in_many_orders = seeds(ORDERS)
"""One test for pytest, which takes longer to set one up than most of these run."""
