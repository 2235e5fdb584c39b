"""What the children of the service are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fw_actors.actors.counters import Counter, DeliveryMeter
from fw_actors.http import Sender
from fw_actors.mail import Transport
from fw_actors.ops.site import Site
from fw_actors.runtime import Log, Runtime
from fw_actors.store import Store

GIVE_BACK_SECONDS: Final = 2.0
"""How long giving back may take once the time to drain is over."""


@dataclass(frozen=True)
class Parts:
    """Shared by all; made once, before the first child.

    `url` is what links begin with: the public URL, or the bound address. `slow_reads` is a store
    on the same database for an app's functions that may take their time in a read. `transport`
    carries mail in place of what the configuration asks for.
    """

    site: Site
    url: str
    runtime: Runtime
    sender: Sender
    slow_reads: Store
    log: Log
    signed_in: Counter
    delivered: DeliveryMeter
    recorded: Counter
    transport: Transport | None = None
