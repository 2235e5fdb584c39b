"""The messages: recovery, invitation and the notices of the service (O-53)."""

from __future__ import annotations

import pytest

from fw_actors.mail import (
    NamedKey,
    NewKey,
    Notice,
    Template,
    TemplateValues,
    UnsafeHeaderError,
    render,
    subject_of,
)

LINK = "https://desk.example/reset-password#token=abc_-123"


def values(**changes: object) -> TemplateValues:
    facts = {
        "site": "Desk & Co", "user": "anna", "full_name": "Anna", "recipient": "anna@x.test",
        "link": LINK, "minutes": 60, **changes,
    }  # fmt: skip
    return TemplateValues(**facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("template", [Template.RECOVERY, Template.INVITATION])
def test_mail_templates_contain_link_and_account(template: Template) -> None:
    message = render(template, values())
    assert f"\n{LINK}\n" in message.text
    assert f'<a href="{LINK}">{LINK}</a>' in message.html
    assert message.link == LINK
    assert "1 hour" in message.text
    for part in (message.text, message.html):
        assert "Hello Anna," in part
        assert "account anna" in part
    assert "Desk & Co" in message.text
    assert "Desk &amp; Co" in message.html


def test_changed_password_mail_has_no_link() -> None:
    message = render(Template.PASSWORD_CHANGED, values(link=None))
    assert message.link is None
    assert "was changed" in message.text
    assert "http" not in message.text + message.html


def test_changed_password_mail_names_ended_keys() -> None:
    keys = (NamedKey("<CI>", "AbCdEf012345"), NamedKey("backup", "012345AbCdEf"))
    message = render(Template.PASSWORD_CHANGED, values(link=None, notice=Notice(ended_keys=keys)))
    for part, label in ((message.text, "<CI>"), (message.html, "&lt;CI&gt;")):
        assert f"These API keys have ended as well: “{label}” (AbCdEf012345); “backup”" in part


@pytest.mark.parametrize(
    ("expires", "end"),
    [(None, "has no end."), (1_800_086_400_000, "works until 2027-01-16 08:00 UTC.")],
)
def test_new_api_key_mail_names_end_time_and_origin(expires: int | None, end: str) -> None:
    key = NewKey("CI", "AbCdEf012345", 1_800_000_000_000, expires, "203.0.113.9")
    message = render(Template.API_KEY_MADE, values(link=None, notice=Notice(new_key=key)))
    assert message.link is None
    for part in (message.text, message.html):
        assert (
            "It is called “CI” (AbCdEf012345), was created on 2027-01-15 08:00 UTC, "
            f"by a request from 203.0.113.9, and {end}"
        ) in part
        assert "revoke it on the page My account" in part


def test_mail_template_escapes_names() -> None:
    message = render(Template.RECOVERY, values(full_name='<img src="x">', user="a&b"))
    assert "<img" not in message.html
    assert "&lt;img src=&quot;x&quot;&gt;" in message.html
    assert "a&amp;b" in message.html


def test_mail_greeting_works_without_full_name() -> None:
    assert render(Template.RECOVERY, values(full_name="")).text.startswith("Hello,\n")


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [(1, "1 minute"), (45, "45 minutes"), (60, "1 hour"), (90, "90 minutes"), (120, "2 hours"),
     (1440, "24 hours"), (2880, "2 days"), (4320, "3 days"), (4380, "73 hours")],
)  # fmt: skip
def test_mail_states_duration_in_largest_exact_unit(minutes: int, expected: str) -> None:
    assert f"within {expected}." in render(Template.RECOVERY, values(minutes=minutes)).text


def test_mail_subject_holds_only_site_name() -> None:
    assert {subject_of(template, "{user}") for template in Template} == {
        "A new password for {user}", "Your account at {user}",
        "Your password at {user} was changed", "A new API key at {user}",
        "A sign-in from a new device at {user}",
        "A Webhook at {user} fails", "A Webhook at {user} was disabled",
    }  # fmt: skip


def test_mail_templates_are_those_of_the_contract() -> None:
    """An operator filters Email Delivery by these names (O-53)."""
    assert {template.value for template in Template} == {
        "recovery", "invitation", "password_changed", "api_key_made", "new_device",
        "webhook_failing", "webhook_disabled",
    }  # fmt: skip


def test_mail_template_refuses_invalid_recipient() -> None:
    with pytest.raises(UnsafeHeaderError):
        render(Template.RECOVERY, values(recipient="a@x.test, b@x.test"))
