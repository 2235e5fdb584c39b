"""Looks over an actor's shoulder for a minute: which messages come, never what is in them."""

from __future__ import annotations

from collections import deque
from typing import Final

import trio

from fw_actors.actors.console_view import Trace, TracedMessage
from fw_actors.errors import OverloadedError
from fw_actors.runtime import ActorRef, Clock, Message

SECONDS: Final = 60.0
KEPT_SECONDS: Final = 300.0
MOST: Final = 4
MESSAGES: Final = 100
FIELDS_SHOWN: Final = 8


class Traces:
    """At most four at once, each with the last 100 messages; one ends after a minute by itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, _Running] = {}

    def begin(self, ref: ActorRef) -> None:
        """Trace an actor from now on. Raises: OverloadedError when four are traced already."""
        self._forget()
        live = [each for each in self._running.values() if each.is_live]
        if len(live) >= MOST and ref.name not in self._running:
            raise OverloadedError("Four actors are traced already. Wait for one to end.")
        running = _Running(ref, self._clock)
        self._running[ref.name] = running
        ref.trace(running.see)

    def shown(self) -> list[Trace]:
        """Return what was seen; a trace that is over stays for five minutes."""
        self._forget()
        return [each.shown() for each in self._running.values()]

    def _forget(self) -> None:
        now = trio.current_time()
        for name, each in list(self._running.items()):
            each.end_when_over()
            if now > each.ends + KEPT_SECONDS:
                del self._running[name]


class _Running:
    """One trace."""

    def __init__(self, ref: ActorRef, clock: Clock) -> None:
        self._ref, self._clock = ref, clock
        self.ends = trio.current_time() + SECONDS
        self._until = clock.now() + int(SECONDS * 1000)
        self._seen = 0
        self._messages: deque[tuple[int, type[Message]]] = deque(maxlen=MESSAGES)

    @property
    def is_live(self) -> bool:
        return trio.current_time() < self.ends

    def see(self, message: Message) -> None:
        """Be shown a message before it is handled."""
        if not self.is_live:
            self._ref.trace(None)
            return
        self._seen += 1
        self._messages.append((self._clock.now(), type(message)))

    def end_when_over(self) -> None:
        if not self.is_live:
            self._ref.trace(None)

    def shown(self) -> Trace:
        messages = [
            TracedMessage(at, kind.__name__, fields_of(kind)) for at, kind in self._messages
        ]
        return Trace(self._ref.name, self._until, self._seen, messages)


def fields_of(kind: type[Message]) -> str:
    """Return the names of a message's fields, and no value of them."""
    names = kind.__struct_fields__
    more = ", …" if len(names) > FIELDS_SHOWN else ""
    return ", ".join(names[:FIELDS_SHOWN]) + more
