"""The fields of an account: none helps to guess a password."""

from __future__ import annotations

from fw_actors.documents.core import User


def test_account_fields_hold_no_hint_or_secret_question() -> None:
    fields = {"email", "fullName", "language", "enabled", "roles", "new_password"}
    assert set(User.meta.fields) == fields
