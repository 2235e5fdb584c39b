"""The dependencies that the children of the service share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fw_actors.actors import delivery
from fw_actors.actors.metrics import Counter, DeliveryMeter
from fw_actors.http import Sender
from fw_actors.mail import Transport
from fw_actors.ops.site import Site
from fw_actors.runtime import Log, Runtime
from fw_actors.store import Store
from supervisors.service.siblings import Siblings

GIVE_BACK_SECONDS: Final = delivery.GIVE_BACK_SECONDS
"""The time for releasing leases after the time to drain is over."""


@dataclass(frozen=True)
class Parts:
    """The shared dependencies, created once before the first child.

    `url` is the start of links: the public URL, or the bound address. `slow_reads` is a store on
    the same database for slow reads of an app's functions. `transport` replaces the configured mail
    transport. `siblings` are the other processes of the service, if it has several. `paused` are
    the paused receivers, which the Dispatcher keeps up to date, so that its restart changes none.
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
    siblings: Siblings | None = None
    paused: set[str] = field(default_factory=set)
