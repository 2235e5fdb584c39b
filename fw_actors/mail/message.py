"""Mail messages: safe headers, MIME, and the templates of the service.

`EmailMessage` refuses CR and LF, but accepts NUL, reads a recipient with a comma as two recipients,
and decodes encoded words (RFC 2047), which may contain line ends, before it writes a header (O-60).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from enum import StrEnum
from html import escape
from types import MappingProxyType
from typing import Final

import idna
import msgspec

from fw_actors.rules.safe_output import counted
from fw_actors.runtime.clock import HOURS_PER_DAY, MINUTES_PER_HOUR, MS_PER_SECOND

# Controls, lone surrogates, line and paragraph separators (U+2028, U+2029).
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
ENCODED_WORD: Final = "=?"
"""The beginning of an encoded word, which no address may contain (RFC 2047 5)."""
# One address without list, comment, quoted part or name (RFC 5322 3.4.1, dot-atom only).
_ADDRESS: Final = re.compile(r"[^\s@<>()\[\]\\,;:\"]+@[^\s@<>()\[\]\\,;:\"]+\Z")


class UnsafeHeaderError(ValueError):
    """Raised for a text that cannot be in a header; the message names the part, not the text."""

    def __init__(self, part: str) -> None:
        super().__init__(f"{part} contains a character that a mail header cannot contain.")
        self.part = part


@dataclass(frozen=True, slots=True)
class MailMessage:
    """A message for a transport; `link` is None unless the template has a link.

    Raises: UnsafeHeaderError if recipient or subject cannot be in a header.
    """

    template: str
    recipient: str
    subject: str
    text: str = field(repr=False)
    html: str = field(repr=False)
    link: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        validate_header("subject", self.subject)
        validate_header("recipient", self.recipient)
        if not _ADDRESS.match(self.recipient) or ENCODED_WORD in self.recipient:
            raise UnsafeHeaderError("recipient")

    def as_dict(self) -> dict[str, str | None]:
        """Return the argument of an app's own transport (O-57)."""
        return {
            "template": self.template,
            "recipient": self.recipient,
            "subject": self.subject,
            "text": self.text,
            "html": self.html,
            "link": self.link,
        }


def validate_header(part: str, text: str) -> None:
    """Refuse a text with a control character. Raises: UnsafeHeaderError naming `part`."""
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in text):
        raise UnsafeHeaderError(part)


# 7-bit bodies (quoted-printable if necessary): servers need not support 8BITMIME.
_POLICY: Final = SMTP.clone(cte_type="7bit")
_NEW_HEADER: Final = re.compile(r"\r\n(?![ \t]|\Z)|\r(?!\n)|(?<!\r)\n")
"""A line end in a header that does not continue it."""


def _validate_lines(mail: EmailMessage) -> None:
    """Refuse a header that has other headers or text in it. Raises: UnsafeHeaderError naming it.

    Python 3.13 encodes the line end of a decoded word again, 3.11 and 3.12 write it. Python's own
    check (`verify_generated_headers`) exists only since 3.11.10.
    """
    for name, value in mail.items():
        validate_header(name, str(value))
        if _NEW_HEADER.search(_POLICY.fold(name, value)):
            raise UnsafeHeaderError(name)


def envelope_sender(sender: str) -> str:
    """Return the bare address of `Desk <desk@example.org>`."""
    return parseaddr(sender)[1]


def sent_address(address: str) -> str:
    """Return an address as it is sent: with its domain in ASCII, if the rest is ASCII (RFC 5890).

    Any other address needs a server with SMTPUTF8 (RFC 6531), which many relays lack.
    """
    local, at, domain = address.rpartition("@")
    if domain.isascii() or not local.isascii():
        return address
    try:
        return f"{local}{at}{idna.encode(domain, uts46=True).decode('ascii')}"
    except UnicodeError:  # IDNAError is one
        return address


def as_email(message: MailMessage, *, sender: str, now: int, unique: str) -> EmailMessage:
    """Return a message in MIME, with a text and an HTML part.

    Args:
        sender: the address of the header From, with or without a display name.
        now: the time of the header Date, in ms since the epoch.
        unique: the first part of the Message-ID.

    Raises: UnsafeHeaderError.
    """
    validate_header("sender", sender)
    address = envelope_sender(sender)
    if ENCODED_WORD in address:
        raise UnsafeHeaderError("sender")
    mail = EmailMessage(policy=_POLICY)
    try:
        mail["From"] = sender
    except ValueError:  # a line end in an encoded word
        raise UnsafeHeaderError("sender") from None
    mail["To"] = sent_address(message.recipient)  # validated: one bare address
    mail["Subject"] = message.subject
    mail["Date"] = format_datetime(datetime.fromtimestamp(now // MS_PER_SECOND, UTC))
    mail["Message-ID"] = f"<{unique}@{address.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: prevents out-of-office replies
    _validate_lines(mail)
    mail.set_content(message.text)
    mail.add_alternative(message.html, subtype="html")
    return mail


class Template(StrEnum):
    """The templates of messages; the first two have a link."""

    RECOVERY = "recovery"
    INVITATION = "invitation"
    PASSWORD_CHANGED = "password_changed"
    API_KEY_MADE = "api_key_made"
    NEW_DEVICE = "new_device"
    WEBHOOK_FAILING = "webhook_failing"
    WEBHOOK_DISABLED = "webhook_disabled"


class NamedKey(msgspec.Struct, frozen=True):
    """An API key in a message: its label and its public part."""

    label: str
    name: str


class NewKey(msgspec.Struct, frozen=True):
    """The facts about a key in `api_key_made`; times in ms. `address` is that of the request, empty
    when no request made it.
    """

    label: str
    name: str
    made: int
    expires: int | None
    address: str


class NewDevice(msgspec.Struct, frozen=True):
    """A sign-in from a new device: when (ms), from which address, and its user agent."""

    at: int
    address: str
    user_agent: str


class FailingWebhook(msgspec.Struct, frozen=True):
    """A Webhook that has failed since `since` (ms), with its label and its last error."""

    label: str
    name: str
    since: int
    failures: int
    error: str


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts beside the account. A queued message stores them, so they hold no secret."""

    ended_keys: tuple[NamedKey, ...] = ()
    new_key: NewKey | None = None
    failing_webhook: FailingWebhook | None = None
    new_device: NewDevice | None = None


@dataclass(frozen=True, slots=True)
class TemplateValues:
    """The values of a template. `minutes` is the lifetime of the link, if there is one."""

    site: str
    user: str
    full_name: str
    recipient: str
    link: str | None = field(default=None, repr=False)
    minutes: int = 0
    notice: Notice = field(default_factory=Notice)


Paragraphs = Callable[[TemplateValues], list[str | None]]
"""The paragraphs below the greeting; None stands for the link."""


def _recovery(values: TemplateValues) -> list[str | None]:
    return [
        f"a new password was requested for the account {values.user} at {values.site}. "
        "Choose it here:",
        None,
        f"The link works once, within {_duration(values.minutes)}. If you did not ask for it, "
        "do nothing: the password stays as it is.",
    ]


def _invitation(values: TemplateValues) -> list[str | None]:
    return [
        f"the account {values.user} was created for you at {values.site}. "
        "Choose its password to begin:",
        None,
        f"The link works once, within {_duration(values.minutes)}. After that, ask the person who "
        "invited you for another one.",
    ]


def _password_changed(values: TemplateValues) -> list[str | None]:
    return [
        f"the password of the account {values.user} at {values.site} was changed, and sessions "
        "that were open elsewhere have ended.",
        *_ended_keys(values.notice.ended_keys),
        "If it was not you, ask for a new password on the sign-in page now, and inform the "
        "administrator of the site.",
    ]


def _ended_keys(keys: Sequence[NamedKey]) -> list[str]:
    if not keys:
        return []
    named = "; ".join(f"\u201c{key.label}\u201d ({key.name})" for key in keys)
    subject = "This API key has" if len(keys) == 1 else "These API keys have"
    return [f"{subject} ended as well: {named}. Programs that still need access need a new key."]


def _api_key_made(values: TemplateValues) -> list[str | None]:
    key = values.notice.new_key
    about = f"an API key was created for the account {values.user} at {values.site}."
    description = [] if key is None else [_described(key)]
    return [
        about,
        *description,
        "A key lets a program act as you, without your password. If you did not create it: "
        "sign in, revoke it on the page My account, set a new password there, end your other "
        "sessions, and inform the administrator of the site.",
    ]


def _described(key: NewKey) -> str:
    origin = f", by a request from {key.address}" if key.address else ""
    end = "has no end" if key.expires is None else f"works until {_moment(key.expires)}"
    return (
        f"It is called \u201c{key.label}\u201d ({key.name}), was created on {_moment(key.made)}"
        f"{origin}, and {end}."
    )


def _new_device(values: TemplateValues) -> list[str | None]:
    device = values.notice.new_device
    description = []
    if device is not None:
        agent = device.user_agent or "none"
        description.append(
            f"It was on {_moment(device.at)}, from the address {device.address}; user agent: "
            f"{agent}"
        )
    return [
        f"there was a sign-in to the account {values.user} at {values.site} from a device that "
        "was not used before.",
        *description,
        "If it was you, there is nothing to do. If not: set a new password on the page My "
        "account, end the other sessions there, and inform the administrator of the site.",
    ]


def _webhook_failing(values: TemplateValues) -> list[str | None]:
    return [
        *_failures_of(values.notice.failing_webhook, values.site),
        "Deliveries are sent again until they have used up their attempts; those that failed "
        "permanently are kept. Repair the receiver or correct the URL, send a test event from the "
        "page of the Webhook, and then replay what has failed. Disable the Webhook if the "
        "receiver is gone.",
    ]


def _webhook_disabled(values: TemplateValues) -> list[str | None]:
    return [
        *_failures_of(values.notice.failing_webhook, values.site),
        "It is now disabled: new events are not queued for it, and queued ones fail unsent. "
        "Once the receiver works, send a test event from the page of the Webhook, enable it, and "
        "replay the deliveries that have failed. Events that occurred in the meantime were not "
        "recorded.",
    ]


def _failures_of(webhook: FailingWebhook | None, site: str) -> list[str]:
    if webhook is None:
        return []
    return [
        f"the Webhook \u201c{webhook.label}\u201d ({webhook.name}) at {site} has failed at every "
        f"attempt since {_moment(webhook.since)}: {counted(webhook.failures, 'attempt')} in a row.",
        f"The last error: {webhook.error}",
    ]


_PARAGRAPHS: Final = MappingProxyType[Template, Paragraphs](
    {
        Template.RECOVERY: _recovery,
        Template.INVITATION: _invitation,
        Template.PASSWORD_CHANGED: _password_changed,
        Template.API_KEY_MADE: _api_key_made,
        Template.NEW_DEVICE: _new_device,
        Template.WEBHOOK_FAILING: _webhook_failing,
        Template.WEBHOOK_DISABLED: _webhook_disabled,
    }
)
_SUBJECTS: Final = MappingProxyType(
    {
        Template.RECOVERY: "A new password for {site}",
        Template.INVITATION: "Your account at {site}",
        Template.PASSWORD_CHANGED: "Your password at {site} was changed",
        Template.API_KEY_MADE: "A new API key at {site}",
        Template.NEW_DEVICE: "A sign-in from a new device at {site}",
        Template.WEBHOOK_FAILING: "A Webhook at {site} fails",
        Template.WEBHOOK_DISABLED: "A Webhook at {site} was disabled",
    }
)


def subject_of(template: Template, site: str) -> str:
    """Return the subject, whose only variable is the site's name."""
    return _SUBJECTS[template].replace("{site}", site)


def render(template: Template, values: TemplateValues) -> MailMessage:
    """Return the message. Raises: UnsafeHeaderError when the recipient is not a single address."""
    greeting = f"Hello {values.full_name}," if values.full_name else "Hello,"
    paragraphs = [greeting, *_PARAGRAPHS[template](values)]
    return MailMessage(
        template=template.value,
        recipient=values.recipient,
        subject=subject_of(template, values.site),
        text=_as_text(paragraphs, values.link or ""),
        html=_as_html(paragraphs, values.link or ""),
        link=values.link,
    )


def _as_text(paragraphs: list[str | None], link: str) -> str:
    return "\n\n".join(link if each is None else each for each in paragraphs) + "\n"


def _as_html(paragraphs: list[str | None], link: str) -> str:
    shown = escape(link)
    parts = [f'<a href="{shown}">{shown}</a>' if p is None else escape(p) for p in paragraphs]
    body = "\n".join(f"<p>{part}</p>" for part in parts)
    return f'<!doctype html>\n<html lang="en">\n<body>\n{body}\n</body>\n</html>\n'


def _moment(milliseconds: int) -> str:
    """Return a time in UTC, because the reader's zone is unknown."""
    at = datetime.fromtimestamp(milliseconds / MS_PER_SECOND, UTC)
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _duration(minutes: int) -> str:
    """Return a duration in the largest unit that is exact."""
    hours, rest = divmod(minutes, MINUTES_PER_HOUR)
    if rest:
        return counted(minutes, "minute")
    days, rest = divmod(hours, HOURS_PER_DAY)
    return counted(hours, "hour") if rest or days < 2 else counted(days, "day")
