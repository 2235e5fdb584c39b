"""The password policy (A-130 to A-136).

There are no rules of composition. A site may refuse the most common passwords (ASVS 6.2.4).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from fw_actors.errors import PasswordPolicyError
from fw_actors.rules.identifiers import UnusableIdentifierError, canonical

MAX_RUNES: Final = 256


def validate_password(
    password: str, *, minimum: int, name: str, email: str, common: AbstractSet[str] = frozenset()
) -> None:
    """Refuse a password that breaks the policy, with the first rule in the order of A-136.

    `minimum` counts runes (code points). `name` and `email` are compared in canonical form.
    `common` holds the casefolded passwords that are refused in any case of letters.

    Raises: PasswordPolicyError with the rule's name.
    """
    if len(password) > MAX_RUNES:
        raise PasswordPolicyError(f"Use at most {MAX_RUNES} characters.", rule="tooLong")
    if not password.strip():
        raise PasswordPolicyError("The password must not be blank.", rule="blank")
    if _same_as_account(password, name) or _same_as_account(password, email):
        raise PasswordPolicyError(
            "The password must not equal the account's name or e-mail.", rule="equalsAccountName"
        )
    if len(password) < minimum:
        raise PasswordPolicyError(f"Use at least {minimum} characters.", rule="tooShort")
    if password.casefold() in common:
        raise PasswordPolicyError(
            "This is one of the 10,000 most common passwords, which are guessed first. "
            "Choose another one.",
            rule="common",
        )


def _same_as_account(password: str, identifier: str) -> bool:
    try:
        return canonical(password) == canonical(identifier)
    except UnusableIdentifierError:
        return False
