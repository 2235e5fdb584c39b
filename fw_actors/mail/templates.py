"""The messages that the service writes, each as text and as HTML from the same paragraphs.

Source: spec, Recovery and invitation; interface §8, Links and mail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from types import MappingProxyType
from typing import Final

from fw_actors.mail.message import MailMessage


class Template(StrEnum):
    """What a message is about; the first two hold a link."""

    RECOVERY = "recovery"
    INVITATION = "invitation"
    PASSWORD_CHANGED = "password_changed"


@dataclass(frozen=True, slots=True)
class TemplateValues:
    """What stands in a message. `minutes` is how long the link works, where there is one."""

    site: str
    user: str
    full_name: str
    recipient: str
    link: str | None = field(default=None, repr=False)
    minutes: int = 0


Paragraphs = Callable[[TemplateValues], list[str | None]]
"""The paragraphs below the greeting; None is where the link stands."""


def _recovery(values: TemplateValues) -> list[str | None]:
    return [
        f"somebody asked for a new password for the account {values.user} at {values.site}. "
        "It is chosen here:",
        None,
        f"The link works once, within {_lasting(values.minutes)}. If it was not you who asked, "
        "do nothing: the password stays as it is.",
    ]


def _invitation(values: TemplateValues) -> list[str | None]:
    return [
        f"the account {values.user} was made for you at {values.site}. "
        "Choose its password to begin:",
        None,
        f"The link works once, within {_lasting(values.minutes)}. After that, ask whoever "
        "invited you for another one.",
    ]


def _password_changed(values: TemplateValues) -> list[str | None]:
    return [
        f"the password of the account {values.user} at {values.site} was changed, and sessions "
        "that were open elsewhere have ended.",
        "If it was not you, ask for a new password on the sign-in page now, and tell whoever "
        "runs the site.",
    ]


_PARAGRAPHS: Final = MappingProxyType[Template, Paragraphs](
    {
        Template.RECOVERY: _recovery,
        Template.INVITATION: _invitation,
        Template.PASSWORD_CHANGED: _password_changed,
    }
)
_SUBJECTS: Final = MappingProxyType(
    {
        Template.RECOVERY: "A new password for {site}",
        Template.INVITATION: "Your account at {site}",
        Template.PASSWORD_CHANGED: "Your password at {site} was changed",
    }
)
_MINUTES_PER_HOUR: Final = 60
_HOURS_PER_DAY: Final = 24


def subject_of(template: Template, site: str) -> str:
    """Return the subject, which holds nothing but the site's name."""
    return _SUBJECTS[template].replace("{site}", site)


def render(template: Template, values: TemplateValues) -> MailMessage:
    """Return the message. Raises: UnsafeHeaderError for a recipient that is no single address."""
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


def _lasting(minutes: int) -> str:
    """Return a length of time in the largest unit that tells it exactly."""
    hours, rest = divmod(minutes, _MINUTES_PER_HOUR)
    if rest:
        return _count(minutes, "minute")
    days, rest = divmod(hours, _HOURS_PER_DAY)
    return _count(hours, "hour") if rest or days < 2 else _count(days, "day")


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
