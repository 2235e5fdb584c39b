"""The fields of an account: none helps to guess a password."""

from __future__ import annotations

from fw_actors.documents.core import User


def test_an_account_has_no_field_for_a_hint_or_a_secret_question() -> None:
    fields = {"email", "fullName", "language", "enabled", "roles", "new_password"}
    assert set(User.meta.fields) == fields
