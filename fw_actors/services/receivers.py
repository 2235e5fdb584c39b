"""Which receiver (scheme, host, port) each Webhook points to: places are given by receiver."""

from __future__ import annotations

import sqlalchemy as sa

from fw_actors.documents.registry import Registry
from fw_actors.errors import ValidationError
from fw_actors.http import parse_target
from fw_actors.store import Tx


def receivers_of(tx: Tx, registry: Registry) -> dict[str, str]:
    """Return the receiver of each Webhook by its name, as `https://host:port`; empty where its
    URL can't be read."""
    c = registry.tables["Webhook"].table.c
    return {str(name): _receiver(url) for name, url in tx.rows(sa.select(c.name, c.url))}


def _receiver(url: str | None) -> str:
    try:
        return str(parse_target(url or "", development=True).origin)  # judged when it was written
    except ValidationError:
        return ""
