"""The characters that a header may contain (O-60)."""

from __future__ import annotations

import pytest

from fw_actors.mail import MailMessage, UnsafeHeaderError


def message(recipient: str = "anna@example.test", subject: str = "Hello") -> MailMessage:
    return MailMessage("recovery", recipient, subject, "text", "<p>html</p>", "https://x/#token=t")


CONTROLS = [*range(0x20), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029, 0xD800, 0xDFFF]


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("part", ["recipient", "subject"])
def test_mail_header_refuses_control_characters(control: int, part: str) -> None:
    text = f"anna{chr(control)}@example.test"
    with pytest.raises(UnsafeHeaderError, match=part) as refusal:
        message(**{part: text})
    assert "anna" not in str(refusal.value)


@pytest.mark.parametrize(
    "recipient",
    [
        "", "anna", "@example.test", "anna@", "a@b@c", "a@x.test, b@x.test", "a@x.test;b@x.test",
        "Anna <a@x.test>", "a b@x.test", '"a"@x.test', "(a)@x.test", "a@x.test\nBcc: b@x.test",
        "<a@x.test>", "a@[127.0.0.1]", "a\\b@x.test",
    ],
)  # fmt: skip
def test_mail_recipient_is_single_bare_address(recipient: str) -> None:
    with pytest.raises(UnsafeHeaderError):
        message(recipient=recipient)


@pytest.mark.parametrize("recipient", ["anna@example.test", "ünï+tag@bücher.example", "a'b@x"])
def test_mail_message_accepts_valid_address(recipient: str) -> None:
    assert message(recipient=recipient).recipient == recipient


def test_mail_message_repr_hides_text_and_link() -> None:
    assert "token" not in repr(message())
    assert "html" not in repr(message())
