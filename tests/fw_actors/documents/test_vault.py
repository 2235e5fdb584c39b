"""Vault fields at rest (D-72)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fw_actors.documents.vault import UnreadableError, VaultCipher
from fw_actors.errors import ValidationError
from fw_actors.runtime import SeededEntropy
from tests.fw_actors.documents.conftest import ShopSite

PLACE = ("Webhook", "secret", "row1")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def vault(key: str | None = "a key") -> VaultCipher:
    return VaultCipher(key, SeededEntropy(1))


@given(TEXTS, st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_vault_cipher_opens_sealed_text_with_same_key(text: str, key: str) -> None:
    assert vault(key).open(vault(key).seal(text, *PLACE), *PLACE) == text


def test_vault_cipher_hides_plain_text() -> None:
    """A Vault value is encrypted at rest (D-72)."""
    sealed = vault().seal("whsec_plain", *PLACE)
    raw = base64.b64decode(sealed.split(":")[2])
    assert "plain" not in sealed
    assert b"plain" not in raw


def test_vault_cipher_seals_equal_texts_differently() -> None:
    box = vault()
    assert len({box.seal("same", *PLACE) for _ in range(50)}) == 50


ELSEWHERE = [("Other", "secret", "row1"), ("Webhook", "token", "row1"), ("Webhook", "secret", "2")]


@pytest.mark.parametrize("place", ELSEWHERE)
def test_vault_cipher_binds_sealed_value_to_column_and_row(place: tuple[str, str, str]) -> None:
    box = vault()
    with pytest.raises(UnreadableError):
        box.open(box.seal("s", *PLACE), *place)


def test_vault_cipher_distinguishes_changed_key_and_damage() -> None:
    """The errors distinguish a changed key from damage (B-169)."""
    sealed = vault().seal("s", *PLACE)
    with pytest.raises(UnreadableError, match="another FW_SECRET_KEY"):
        vault("another key").open(sealed, *PLACE)
    with pytest.raises(UnreadableError, match="not set"):
        vault(None).open(sealed, *PLACE)
    with pytest.raises(UnreadableError, match="damaged"):
        vault().open(sealed[:-8] + "AAAAAAA=", *PLACE)


@pytest.mark.parametrize("stored", ["plain", "v1:plain", "", "a:b:c"])
def test_vault_cipher_tells_plain_text_from_value_of_another_key(stored: str) -> None:
    """A field that was Data before has plain texts; no key decrypts them (O-145)."""
    with pytest.raises(UnreadableError, match="is not encrypted"):
        vault().open(stored, *PLACE)


@given(st.text(max_size=40) | st.text(max_size=40).map("v1:".__add__))
def test_vault_cipher_reports_arbitrary_text_as_unreadable(stored: str) -> None:
    with pytest.raises(UnreadableError):
        vault().open(stored, *PLACE)


def test_vault_cipher_reports_damage_behind_valid_key_id() -> None:
    head = ":".join(vault().seal("s", *PLACE).split(":")[:2])
    for rest in ("", ":", ":AA==", ":not base64", ":" + "A" * 40, ":ä"):
        with pytest.raises(UnreadableError):
            vault().open(head + rest, *PLACE)


@pytest.mark.parametrize("key", [None, ""])
def test_vault_cipher_without_key_refuses_to_seal(key: str | None) -> None:
    """Writing or changing a Vault value needs FW_SECRET_KEY, else the write fails (D-76)."""
    with pytest.raises(ValidationError) as refusal:
        vault(key).seal("s", *PLACE)
    assert refusal.value.extra == {"field": "secret"}
    assert "FW_SECRET_KEY" in str(refusal.value)


async def test_vault_write_assigns_missing_row_id(desk: ShopSite) -> None:
    """A row gets its row id at the first write of a Vault value."""

    def work(fw: Any) -> list[Any]:
        for name in ("a", "b"):
            fw.new_doc("Sample", name=name).insert()
        fw.db.sql("UPDATE doc_sample SET row_id = NULL")
        saved = fw.get_doc("Sample", "a")
        saved.token = "one"
        saved.save()
        fw.get_doc("Sample", "b").db_set("token", "two")
        ids = {row["row_id"] for row in fw.db.sql("SELECT row_id FROM doc_sample")}
        assert None not in ids
        assert len(ids) == 2
        return [fw.get_doc("Sample", name).vault("token") for name in ("a", "b")]

    assert await desk.do(work) == ["one", "two"]
