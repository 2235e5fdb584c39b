"""`fw sweep auth|webhooks|audit` (C-119, O-70, B-280, O-87)."""

from __future__ import annotations

import pytest

from fw_actors.actors import sweeper
from tests.fw_cli.conftest import CommandLine


def test_auth_sweep_deletes_only_expired_rows(fw: CommandLine) -> None:
    script = fw.folder / "fill.py"
    script.write_text(
        "now = fw.tx.now\n"
        "for n, at in enumerate([now - 1, now + 60_000]):\n"
        "    fw.db.sql('INSERT INTO fw_session (id, sid_hash, user, created, last_seen, expires)'\n"
        "        ' VALUES (:i, :h, :i, 1, 1, :at)', {'i': str(n), 'h': bytes([n]), 'at': at})\n"
        "    fw.db.sql('INSERT INTO fw_token (hash, kind, user, created, expires)'\n"
        "        ' VALUES (:h, :i, :i, 1, :at)', {'i': str(n), 'h': bytes([n]), 'at': at})\n"
        "for n, at in enumerate([1, now]):\n"
        "    fw.db.sql('INSERT INTO fw_login_attempt (id, key, at, state)'\n"
        "        ' VALUES (:i, :h, :at, 1)', {'i': str(n), 'h': bytes([n]), 'at': at})\n"
    )
    fw.done("exec", str(script), "--commit")
    assert fw.done("sweep", "auth") == "deleted 3 rows\n"
    assert fw.done("sweep", "auth") == "deleted 0 rows\n"
    for table in ("fw_session", "fw_token", "fw_login_attempt"):
        assert fw.json("eval", f"fw.db.sql('SELECT count(*) AS n FROM {table}')") == [{"n": 1}]


def test_webhook_sweep_of_empty_store_deletes_0_rows(fw: CommandLine) -> None:
    assert fw.done("sweep", "webhooks") == "deleted 0 rows\n"


def test_audit_sweep_deletes_events_beyond_retention(fw: CommandLine) -> None:
    (fw.folder / "fw.json").write_text('{"ops": {"auditRetentionDays": 7}}')
    script = fw.folder / "fill.py"
    script.write_text(
        "day = 86_400_000\n"
        "for name, days in (('old', 8), ('young', 6)):\n"
        "    fw.db.sql('INSERT INTO doc_audit_event (name, creation) VALUES (:name, :at)',\n"
        "        {'name': name, 'at': fw.tx.now - days * day})\n"
    )
    fw.done("exec", str(script), "--commit")
    assert fw.done("sweep", "audit") == "deleted 1 row\n"
    assert fw.json("eval", "fw.db.sql('SELECT name FROM doc_audit_event')") == [{"name": "young"}]


def test_sweep_continues_after_a_full_batch(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "BATCH", 2)
    (fw.folder / "fw.json").write_text('{"ops": {"auditRetentionDays": 7}}')
    insert = "fw.db.sql('INSERT INTO doc_audit_event (name, creation) VALUES (:n, 1)', {'n': n})"
    fw.done("eval", f"[{insert} for n in 'abc']", "--commit")
    assert fw.done("sweep", "audit") == "deleted 3 rows\n"


@pytest.mark.parametrize("args", [("sweep",), ("sweep", "no-such-sweep"), ("user", "unlock")])
def test_sweep_wrong_usage_exits_2(fw: CommandLine, args: tuple[str, ...]) -> None:
    assert fw.run(*args).exit_code == 2
