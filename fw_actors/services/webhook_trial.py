"""Sends a Webhook a signed `fw.test` event at once, and says how it went. It leaves no row.

Source: interface §7, `fw webhooks test`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from fw_actors.documents.handle import Fw
from fw_actors.documents.times import iso
from fw_actors.errors import ValidationError
from fw_actors.http import NetworkError, Sender, Times, parse_target
from fw_actors.rules.delivery_outcome import Backoff, error_of_answer
from fw_actors.rules.signing import signed_headers
from fw_actors.rules.tokens import DeliveryIds
from fw_actors.services.deliveries import Deliveries
from fw_actors.services.delivery_rows import Hook
from fw_actors.services.signing_keys import NoSigningKey, SigningKeys
from fw_actors.services.site import Site

EVENT: Final = "fw.test"
_NO_WAITS: Final = Backoff(1.0, 1.0)  # a trial is not repeated


class StepTimes(msgspec.Struct, frozen=True):
    """Milliseconds that each step took; 0 for one that was not needed or not come to."""

    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    answer: float = 0.0


class TrialResult(msgspec.Struct, frozen=True):
    """How a trial ended: a status, or none; `error` as on a delivery, None after 2xx."""

    status: int | None
    error: str | None
    times: StepTimes


class Trial:
    """Test events of one site."""

    def __init__(self, site: Site, sender: Sender) -> None:
        self._site, self._sender = site, sender
        self._deliveries = Deliveries(site.registry, _NO_WAITS)
        self._keys = SigningKeys(site.vault)
        self._ids = DeliveryIds(site.entropy.bytes)

    async def send(
        self, webhook: str, read: Callable[[Callable[[Fw], Hook]], Awaitable[Hook]]
    ) -> TrialResult:
        """Send the event; a Webhook that is disabled takes it too.

        `read` runs a function in a transaction of whoever asks.

        Raises: NotFoundError, PermissionDeniedError.
        """
        hook = await read(lambda fw: self._hook(fw, webhook))
        try:
            key = self._keys.of(hook)
            target = parse_target(hook.url, development=True)  # judged when it was written
        except NoSigningKey as reason:
            return TrialResult(None, str(reason), StepTimes())
        except ValidationError as reason:
            return TrialResult(None, f"internal: {reason}", StepTimes())
        clock = self._site.clock
        now = clock.now()
        delivery = self._ids.new(now)
        event = {"type": EVENT, "timestamp": iso(now), "data": {"webhook": webhook}}
        body = msgspec.json.encode(event)

        def headers() -> tuple[tuple[bytes, bytes], ...]:
            return signed_headers(key, delivery, clock.now(), body)

        try:
            answer = await self._sender.post(target, body, headers, timeout=hook.timeout, anew=True)
        except NetworkError as fault:
            return TrialResult(None, str(fault), _rounded(fault.times))
        error = error_of_answer(answer.status, answer.location)
        return TrialResult(answer.status, error or None, _rounded(answer.times))

    def _hook(self, fw: Fw, webhook: str) -> Hook:
        fw.get_doc("Webhook", webhook)  # whether it is there, and for this user
        hook = self._deliveries.hook(fw.tx, webhook)
        assert hook is not None
        return hook


def _rounded(times: Times | None) -> StepTimes:
    if times is None:
        return StepTimes()
    steps = (times.dns, times.connect, times.tls, times.answer)
    return StepTimes(*(round(step, 3) for step in steps))
