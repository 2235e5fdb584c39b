"""The word that something was committed that may be due; those who look at queues take it."""

from __future__ import annotations

from fw_actors.runtime import Message


class Nudge(Message, frozen=True):
    """Look soon. Lost nudges are no harm: whoever takes them looks once a second anyway."""
