"""The measures due for a Webhook that has only had failures (B-340, B-342, B-344)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.rules.receivers import NoticePolicy, OutageAction, ReceiverOutage, outage_action

HOUR, DAY = 3_600_000, 86_400_000
BOTH = NoticePolicy(notice_hours=24, disable_days=3)
NOTICE, DISABLE, END = OutageAction.NOTICE, OutageAction.DISABLE, OutageAction.END


def failing(lasted: int = 0, **changes: object) -> ReceiverOutage:
    """Return a Webhook with three failures since 1,000, the last one `lasted` later."""
    state: dict[str, object] = {
        "enabled": True, "failures": 3, "since": 1000, "last_failure": 1000 + lasted, **changes,
    }  # fmt: skip
    return ReceiverOutage(**state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trouble", "after", "policy", "action"),
    [
        (failing(), DAY - 1, BOTH, None),
        (failing(), DAY, BOTH, NOTICE),
        (failing(), DAY, NoticePolicy(0, 0), None),
        (failing(failures=2), DAY, BOTH, None),
        (failing(enabled=False), DAY, BOTH, None),
        (failing(noticed=1000, notice_open=True), 2 * DAY, BOTH, None),
        (failing(noticed=500), DAY, BOTH, NOTICE),  # an earlier series of failures
        (failing(noticed=500, notice_open=True), DAY, BOTH, END),  # its end comes first
        (failing(noticed=1000, notice_open=True, since=None), 0, BOTH, END),
        (failing(noticed=1000, notice_open=True, enabled=False), 0, BOTH, END),
        (failing(noticed=1000, since=None, last_failure=None, failures=0), 0, BOTH, None),
        (failing(3 * DAY), 3 * DAY, BOTH, DISABLE),
        (failing(3 * DAY - 1), 9 * DAY, BOTH, NOTICE),  # no failure since: no reason to disable
        (failing(3 * DAY, disabled=1000, noticed=1000), 9 * DAY, BOTH, None),
        (failing(3 * DAY), 3 * DAY, NoticePolicy(0, 3), DISABLE),
        (failing(3 * DAY), 3 * DAY, NoticePolicy(24, 0), NOTICE),
    ],
)
def test_outage_action_follows_state_and_policy(
    trouble: ReceiverOutage, after: int, policy: NoticePolicy, action: OutageAction | None
) -> None:
    assert outage_action(trouble, 1000 + after, policy) is action


@given(st.floats(0.0001, 100))
def test_notice_policy_has_whole_milliseconds(hours: float) -> None:
    """The rule and the store's statement then agree on when the period ends."""
    policy = NoticePolicy(hours, 0)
    assert outage_action(failing(), 1000 + policy.notice_ms - 1, policy) is None
    assert outage_action(failing(), 1000 + policy.notice_ms, policy) is NOTICE
    assert isinstance(policy.notice_ms, int)
    assert isinstance(NoticePolicy(0, hours).disable_ms, int)
