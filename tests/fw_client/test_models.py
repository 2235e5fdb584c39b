"""The results of calls as frozen data (H-221)."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final, get_type_hints

import pytest

from fw_client import models
from fw_client.models import (
    BulkReplay,
    CreatedApiKey,
    InvitedUser,
    MailedLink,
    RotatedSecret,
    read_model,
)

TEXT: Final = "2026-01-31T12:00:00Z"
TIME: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
MODELS: Final = [each for each in vars(models).values() if is_dataclass(each)]


def sent(name: str) -> str:
    """Return the name that a field has in a response."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_model_has_times_as_datetimes_and_null_as_none(kind: Any) -> None:
    hints = get_type_hints(kind)
    times = [each.name for each in fields(kind) if hints[each.name] in (datetime, datetime | None)]
    response: dict[str, Any] = {sent(each.name): [] for each in fields(kind)}
    response |= {sent(name): TEXT for name in times}
    model = read_model(kind, response)
    assert [getattr(model, name) for name in times] == [TIME] * len(times)
    optional = [name for name in times if hints[name] == datetime | None]
    without = read_model(kind, response | {sent(name): None for name in optional})
    assert [getattr(without, name) for name in optional] == [None] * len(optional)


@pytest.mark.parametrize(
    ("kind", "secret"),
    [
        (CreatedApiKey, "key"),
        (InvitedUser, "link"),
        (MailedLink, "link"),
        (RotatedSecret, "secret"),
    ],
)
def test_model_shows_no_secret_in_logs(kind: Any, secret: str) -> None:
    response = {sent(each.name): TEXT for each in fields(kind)} | {secret: "s3cret"}
    model = read_model(kind, response)
    assert getattr(model, secret) == "s3cret"
    assert "s3cret" not in repr(model)


def test_model_of_older_service_has_defaults() -> None:
    begun: dict[str, Any] = {
        "id": "r", "user": "ann", "state": "running", "total": 5, "done": 2, "replayed": 1,
        "refused": {"notFinal": 1}, "error": "", "begun": TEXT, "ended": None,
    }  # fmt: skip
    run = read_model(BulkReplay, begun)
    assert (run.arrived, run.failed_again, run.open, run.gone, run.more) == (0, 0, 0, 0, False)
    rotated = read_model(RotatedSecret, {"webhook": "w", "oldUntil": None})
    assert (rotated.modified, rotated.secret) == (None, None)
    with pytest.raises(TypeError):
        read_model(BulkReplay, {})
