"""The characters that a header may contain (O-60)."""

from __future__ import annotations

import pytest

from fw_actors.mail import MailMessage, UnsafeHeaderError
from fw_actors.mail.message import as_email


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
        "a@=?utf-8?q?x=0D=0ABcc=3Ab=40x=2Etest?=", "=?utf-8?q?b=40x=2Etest=2C?=@x.test",
    ],
)  # fmt: skip
def test_mail_recipient_is_single_bare_address(recipient: str) -> None:
    with pytest.raises(UnsafeHeaderError):
        message(recipient=recipient)


@pytest.mark.parametrize("recipient", ["anna@example.test", "ünï+tag@bücher.example", "a'b@x"])
def test_mail_message_accepts_valid_address(recipient: str) -> None:
    assert message(recipient=recipient).recipient == recipient


ENCODED_LINES = [  # both decode to a line end and the beginning of another header
    "=?utf-8?q?Desk=0D=0ABcc=3A_b=40x=2Etest?=",
    "=?utf-8?b?RGVzaw0KQmNjOiBiQHgudGVzdA==?=",
]


@pytest.mark.parametrize("word", ENCODED_LINES)
@pytest.mark.parametrize(
    ("sender", "subject"),
    [("desk@x.test", "Hello {}"), ("desk@{}", "Hello"), ("{} <desk@x.test>", "Hello")],
)
def test_mail_header_refuses_encoded_line_end(word: str, sender: str, subject: str) -> None:
    """An encoded word is decoded before the header is written (O-60)."""
    sender, subject = sender.format(word), subject.format(word)
    with pytest.raises(UnsafeHeaderError):
        as_email(message(subject=subject), sender=sender, now=0, unique="u")


@pytest.mark.parametrize("sender", ["desk@x.test", "=?utf-8?q?B=C3=BCro?= <desk@x.test>"])
def test_mail_header_may_have_encoded_words(sender: str) -> None:
    subject = "Your account at " + "Büro " * 40
    mail = as_email(message(subject=subject), sender=sender, now=0, unique="u")
    assert mail["Subject"] == subject
    assert mail["From"].addresses[0].addr_spec == "desk@x.test"
    assert mail["To"] == "anna@example.test"


def test_mail_sender_name_refuses_encoded_control_character() -> None:
    """The name is decoded before the header is written (O-60)."""
    with pytest.raises(UnsafeHeaderError, match="From"):
        as_email(message(), sender="=?utf-8?q?De=00sk?= <desk@x.test>", now=0, unique="u")


def test_mail_sender_address_has_no_encoded_word() -> None:
    with pytest.raises(UnsafeHeaderError, match="sender"):
        as_email(message(), sender="desk@=?utf-8?q?x=2Etest?=", now=0, unique="u")


def test_mail_message_repr_hides_text_and_link() -> None:
    assert "token" not in repr(message())
    assert "html" not in repr(message())
