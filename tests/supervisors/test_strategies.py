"""Restart decisions as pure functions."""

from __future__ import annotations

import pytest

from fw_actors.runtime import SeededEntropy
from fw_actors.runtime.supervision import FailureHistory, backoff_delay
from supervisors import Restart, RestartIntensity, Strategy
from supervisors.strategies import (
    ChildRules,
    Decision,
    Escalate,
    LeaveEnded,
    RestartGroup,
    ShutDown,
    decide,
)

PLAIN = RestartIntensity(
    restarts=3, seconds=30.0, backoff=1.0, backoff_cap=4.0, jitter=0.0, calm_seconds=20.0
)


def decision(
    ended: str = "b",
    *,
    failed: bool = True,
    restart: Restart = Restart.PERMANENT,
    significant: bool = False,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    intensity: RestartIntensity = PLAIN,
    history: FailureHistory | None = None,
    now: float = 0.0,
) -> Decision:
    children = [ChildRules(id, restart, significant) for id in "abc"]
    return decide(
        strategy,
        intensity,
        children,
        ended,
        failed=failed,
        history=history or FailureHistory(),
        now=now,
        entropy=SeededEntropy(1),
    )


ROWS = [  # restart, failed, significant, what becomes of it
    (Restart.PERMANENT, True, False, RestartGroup),
    (Restart.PERMANENT, False, False, RestartGroup),
    (Restart.PERMANENT, False, True, RestartGroup),
    (Restart.TRANSIENT, True, False, RestartGroup),
    (Restart.TRANSIENT, False, False, LeaveEnded),
    (Restart.TRANSIENT, False, True, ShutDown),
    (Restart.TEMPORARY, True, False, LeaveEnded),
    (Restart.TEMPORARY, True, True, LeaveEnded),
    (Restart.TEMPORARY, False, False, LeaveEnded),
    (Restart.TEMPORARY, False, True, ShutDown),
]


@pytest.mark.parametrize(("restart", "failed", "significant", "kind"), ROWS)
def test_decide_by_kind_of_end_and_child(
    restart: Restart, failed: bool, significant: bool, kind: type[Decision]
) -> None:
    decided = decision(restart=restart, failed=failed, significant=significant)
    assert type(decided) is kind


GROUPS = [
    (Strategy.ONE_FOR_ONE, ("b",)),
    (Strategy.REST_FOR_ONE, ("b", "c")),
    (Strategy.ONE_FOR_ALL, ("a", "b", "c")),
]


@pytest.mark.parametrize(("strategy", "group"), GROUPS)
def test_decide_restarts_the_group_of_the_strategy(
    strategy: Strategy, group: tuple[str, ...]
) -> None:
    decided = decision(strategy=strategy)
    assert isinstance(decided, RestartGroup)
    assert decided.stop == decided.start == group


def test_decide_stops_a_temporary_sibling_for_good() -> None:
    children = [
        ChildRules("a", Restart.TEMPORARY, False),
        ChildRules("b", Restart.PERMANENT, False),
    ]
    decided = decide(
        Strategy.ONE_FOR_ALL,
        PLAIN,
        children,
        "b",
        failed=True,
        history=FailureHistory(),
        now=0.0,
        entropy=SeededEntropy(1),
    )
    assert isinstance(decided, RestartGroup)
    assert (decided.stop, decided.start) == (("a", "b"), ("b",))


def waits(times: list[float], intensity: RestartIntensity = PLAIN, child: str = "b") -> list[float]:
    history, waits = FailureHistory(), []
    for now in times:
        decided = decision(child, history=history, now=now, intensity=intensity)
        assert isinstance(decided, RestartGroup)
        history = decided.history
        waits.append(decided.delay)
    return waits


def test_backoff_starts_at_zero_and_doubles_up_to_its_cap() -> None:
    patient = RestartIntensity(restarts=9, backoff=1.0, backoff_cap=4.0, jitter=0.0)
    assert waits([0, 1, 2, 3, 4, 5], patient) == [0, 1, 2, 4, 4, 4]


@pytest.mark.parametrize(("backoff", "delay"), [(0.0, 0.0), (1e-9, 4.0)])
def test_backoff_of_a_long_streak_is_its_cap_or_zero(backoff: float, delay: float) -> None:
    """R-72: without an overflow."""
    patient = RestartIntensity(backoff=backoff, backoff_cap=4.0, jitter=0.0)
    assert backoff_delay(100_000, patient, SeededEntropy(1)) == delay


def test_backoff_resets_after_calm_seconds() -> None:
    assert waits([0.0, 1.0, 20.9, 40.9, 41.0]) == [0, 1, 2, 0, 1]


def test_backoff_is_counted_per_child() -> None:
    first = decision("a")
    assert isinstance(first, RestartGroup)
    second = decision("b", history=first.history, now=1.0)
    assert isinstance(second, RestartGroup)
    assert second.delay == 0.0


def test_backoff_is_stretched_by_up_to_the_jitter() -> None:
    nervous = RestartIntensity(restarts=99, backoff=1.0, backoff_cap=1.0, jitter=0.5)
    stretched = waits([float(n) for n in range(50)], nervous)[1:]
    assert all(1.0 <= wait <= 1.5 for wait in stretched)


def test_decide_escalates_above_the_intensity() -> None:
    history = FailureHistory(times=(0.0, 10.0, 20.0))
    assert isinstance(decision(history=history, now=29.9), Escalate)
    assert isinstance(decision(history=history, now=30.0), RestartGroup)


def test_decide_delays_and_does_not_count_normal_ends() -> None:
    history = FailureHistory(times=(0.0, 1.0, 2.0))
    decided = decision(failed=False, history=history, now=3.0)
    assert decided == RestartGroup(("b",), ("b",), PLAIN.backoff, history)


def test_intensity_rejects_impossible_values() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        RestartIntensity(restarts=-1)
    with pytest.raises(ValueError, match="backoff_cap"):
        RestartIntensity(backoff=10.0, backoff_cap=1.0)
