"""The password policy (A-131 to A-136)."""

from __future__ import annotations

import pytest

from fw_actors.errors import PasswordPolicyError
from fw_actors.rules.password_policy import validate_password


def rule(
    password: str,
    *,
    minimum: int = 8,
    name: str = "ada",
    email: str = "ada@x.test",
    common: frozenset[str] = frozenset(),
) -> str:
    """Return the rule that a password breaks; empty if it is accepted."""
    try:
        validate_password(password, minimum=minimum, name=name, email=email, common=common)
    except PasswordPolicyError as error:
        return str(error.extra["rule"])
    return ""


ROWS = [  # password, the rule it breaks
    ("12345678", ""),
    ("1234567", "tooShort"),
    ("\U0001f511" * 8, ""),  # runes, not bytes nor UTF-16 units
    ("\U0001f511" * 7, "tooShort"),
    ("a" * 256, ""),
    ("a" * 257, "tooLong"),
    ("", "blank"),
    ("        ", "blank"),
    ("\u00a0\u3000\t\n\r    ", "blank"),
    ("passwords have no complexity rules", ""),
    ("ada@x.test", "equalsAccountName"),
    ("  ADA@X.TEST ", "equalsAccountName"),
    ("\u202eada-lovelace", ""),  # it has no canonical form, so it equals no name
]


@pytest.mark.parametrize(("password", "broken"), ROWS)
def test_password_policy_checks_length_blankness_and_account(password: str, broken: str) -> None:
    """At least `minPasswordLength` code points (A-131), at most 256 (A-132), not blank (A-133),
    and not the account's name (A-134)."""
    assert rule(password) == broken


def test_password_policy_compares_folded_account_name() -> None:
    """`equalsAccountName` compares name and e-mail in canonical form (A-134)."""
    assert rule("GRACE HOPPER", name="grace hopper") == "equalsAccountName"
    assert rule("\uff27\uff32\uff21\uff23\uff25", name="grace", minimum=1) == "equalsAccountName"


ORDER = [  # the first of two broken rules: tooLong, blank, equalsAccountName, tooShort
    (" " * 257, "tooLong"),
    (" ", "blank"),
    ("ada", "equalsAccountName"),
]


@pytest.mark.parametrize(("password", "broken"), ORDER)
def test_password_policy_reports_first_broken_rule(password: str, broken: str) -> None:
    """The order of the rules is tooLong, blank, equalsAccountName, tooShort, common (A-136)."""
    assert rule(password) == broken


def test_password_policy_applies_without_usable_name() -> None:
    assert rule("12345678", name="\u202e", email="\u202e") == ""


@pytest.mark.parametrize(
    ("password", "broken"),
    [("letmein!", "common"), ("LetMeIn!", "common"), ("letmein!!", ""), ("letmein", "tooShort")],
)
def test_password_policy_refuses_common_password_last(password: str, broken: str) -> None:
    assert rule(password, common=frozenset({"letmein!", "letmein"})) == broken
    assert rule(password) == broken.replace("common", ""), "a site has to ask for it"
