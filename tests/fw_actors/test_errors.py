"""Every refusal is one sentence that any answer, log and terminal can hold (H-50)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from fw_actors.errors import NotFoundError, ValidationError


def test_error_message_escapes_a_lone_surrogate() -> None:
    """App code may ask for anything by name; JSON in UTF-8 cannot hold a lone surrogate."""
    refusal = NotFoundError("There is no Note a\ud800b.")
    assert refusal.message == str(refusal) == "There is no Note a\\ud800b."


def test_error_message_is_the_text_of_another_object() -> None:
    """`raise ValidationError(error) from error` is a refusal, and not a defect of its own."""
    given: Any = ValueError("too long")
    assert NotFoundError(given).message == "too long"


def test_error_message_keeps_other_characters() -> None:
    assert NotFoundError("Ünïcode ☃ 𝄞").message == "Ünïcode ☃ 𝄞"


def test_error_details_escape_lone_surrogates_in_lists() -> None:
    """Details that an app gives as lists and dicts are encodable too (H-50)."""
    refusal = ValidationError("no", rows=["a\ud800", {"why\ud800": ("\udfff", 1)}])
    assert refusal.extra == {"rows": ["a\\ud800", {"why\\ud800": ["\\udfff", 1]}]}
    msgspec.json.encode(refusal.details)


@pytest.mark.parametrize("status", ["closed", 200, 302, 600, 422.0, True, None])
def test_error_class_of_an_app_needs_a_status_of_an_error(status: Any) -> None:
    """The server closed the connection without a response for a status that HTTP lacks (D-196)."""
    rule = "^status of TicketClosed must be a whole number from 400 to 599$"
    with pytest.raises(TypeError, match=rule):
        type("TicketClosed", (ValidationError,), {"status": status})


def test_error_class_of_an_app_may_have_its_own_status() -> None:
    """D-196: an app's error has the status of its class, or of the class it derives from."""
    own: Any = type("TicketClosed", (ValidationError,), {"status": 410})
    lost: Any = type("TicketLost", (ValidationError,), {})
    assert own("closed").details == {"type": "TicketClosed", "message": "closed"}
    assert (own.status, lost.status) == (410, 422)
    listed: Any = type("TicketListed", (ValidationError,), {"status": HTTPStatus.GONE})
    assert (type(listed.status), listed.status) == (int, 410)
