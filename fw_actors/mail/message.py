"""A message to one person, safe to be put into headers.

Source: pitfalls, Mail: `EmailMessage` stops CR and LF but lets NUL pass, and a recipient that
holds a comma would be two.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final

# Controls, lone surrogates, line and paragraph separators (U+2028, U+2029).
_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# One address and no list, comment, quoted part or name around it (RFC 5322 3.4.1, dot-atom only).
_ADDRESS: Final = re.compile(r"[^\s@<>()\[\]\\,;:\"]+@[^\s@<>()\[\]\\,;:\"]+\Z")


class UnsafeHeaderError(ValueError):
    """Raised when a text can't stand in a header; names the part, never shows the text."""

    def __init__(self, part: str) -> None:
        super().__init__(f"{part} holds what a mail header can't hold.")
        self.part = part


@dataclass(frozen=True, slots=True)
class MailMessage:
    """What a transport carries. `link` is that of the two link templates, else None.

    Raises: UnsafeHeaderError when recipient or subject would break out of their header.
    """

    template: str
    recipient: str
    subject: str
    text: str = field(repr=False)
    html: str = field(repr=False)
    link: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        judge_header("subject", self.subject)
        judge_header("recipient", self.recipient)
        if not _ADDRESS.match(self.recipient):
            raise UnsafeHeaderError("recipient")

    def as_dict(self) -> dict[str, str | None]:
        """Return what an app's own transport gets (interface §8, Links and mail)."""
        return {
            "template": self.template,
            "recipient": self.recipient,
            "subject": self.subject,
            "text": self.text,
            "html": self.html,
            "link": self.link,
        }


def judge_header(part: str, text: str) -> None:
    """Refuse a text that holds a control character of any kind. Raises: UnsafeHeaderError."""
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in text):
        raise UnsafeHeaderError(part)
