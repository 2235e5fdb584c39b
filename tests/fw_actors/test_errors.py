"""Every refusal is one sentence that any answer, log and terminal can hold (H-50)."""

from __future__ import annotations

from typing import Any

from fw_actors.errors import NotFoundError


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
