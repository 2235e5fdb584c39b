"""Decides when failures of a Webhook are announced, ended or disable it (B-340 to B-346).

A trouble is identified by its beginning: the time of the first failure since the last
success. The acts for it are recorded beside, so that each happens once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fw_actors.rules.concurrency import FAILURES
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_HOUR

FAILING_EVENT: Final = "webhook.failing"
ENDED_EVENT: Final = "webhook.failing.ended"


class TroubleAct(StrEnum):
    """The action about a trouble: announce its end, announce it, or disable the Webhook."""

    END = "ended"
    NOTICE = "failing"
    DISABLE = "disabled"


@dataclass(frozen=True, slots=True)
class NoticePolicy:
    """`ops.receiverNotice` in hours and `ops.disableAfterDays`; 0 switches each off."""

    notice_hours: float
    disable_days: float

    @property
    def notice_ms(self) -> int:
        """The duration of a trouble before it is announced."""
        return round(self.notice_hours * MS_PER_HOUR)

    @property
    def disable_ms(self) -> int:
        """The time between the first and the last failure at which the Webhook is disabled."""
        return round(self.disable_days * MS_PER_DAY)


@dataclass(frozen=True, slots=True)
class ReceiverTrouble:
    """The failures of a Webhook in a row, and what was done about them; times in ms.

    `noticed` and `disabled` are the beginnings of the troubles that were told and that disabled
    it; `notice_open` says that the end of `noticed` has not been told.
    """

    enabled: bool
    failures: int
    since: int | None
    last_failure: int | None
    noticed: int | None = None
    notice_open: bool = False
    disabled: int | None = None


def trouble_act(trouble: ReceiverTrouble, now: int, policy: NoticePolicy) -> TroubleAct | None:
    """Return what is to be done next at `now` (ms); None for nothing.

    A notice waits for time alone: events that nobody received are worth a mail, even if no
    further one came. To disable needs failures over the whole period.
    """
    if trouble.notice_open and (not trouble.enabled or trouble.noticed != trouble.since):
        return TroubleAct.END
    since, last = trouble.since, trouble.last_failure
    if not trouble.enabled or since is None or last is None or trouble.failures < FAILURES:
        return None
    if policy.disable_days and trouble.disabled != since and last - since >= policy.disable_ms:
        return TroubleAct.DISABLE
    if policy.notice_hours and trouble.noticed != since and now - since >= policy.notice_ms:
        return TroubleAct.NOTICE
    return None
