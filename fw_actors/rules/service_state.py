"""What is known from outside of a site's service on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class ServiceState:
    """Whether the service runs on this machine, and how it treats its receivers.

    Args:
        running: workers, and services on other machines, are not seen.
        health: by receiver (`https://host:port`): healthy, slow or paused; only receivers that
            the service has sent to, and empty where it could not be asked.
    """

    running: bool
    health: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
