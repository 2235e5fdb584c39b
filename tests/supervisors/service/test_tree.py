"""The children of the service: the queues `mail` and `app` from a commit to their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fw_actors.access.users import add_user
from fw_actors.errors import ConfigurationError
from fw_actors.mail import Template
from fw_actors.ops.data_migrations import run_pending
from fw_actors.ops.site import Site
from fw_actors.runtime import SeededEntropy, TrioClock
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_HOUR
from fw_actors.store import Store
from supervisors.service.tree import RunningService, open_service
from tests.mail_kit import RecordingLog
from tests.site_kit import START_MS, make_config

PUBLIC = "https://desk.example"
APP = """
SENT = []

def send(fw, message):
    SENT.append((fw.user, fw.get_value("User", "anna", "email"), message))

def mark(fw):
    fw.new_doc("Role", name="Marked").insert()
"""


@asynccontextmanager
async def worker(
    folder: Path, log: RecordingLog, mail: dict[str, Any] | None = None, **changes: Any
) -> AsyncIterator[RunningService]:
    """Run a worker in virtual time; `mail` changes that section."""
    config = make_config(folder, public_url=PUBLIC, **changes)
    config = replace(config, mail=replace(config.mail, **(mail or {})))
    clock = TrioClock(START_MS + round(trio.current_time() * 1000))
    async with open_service(
        config, log=log, front=False, clock=clock, entropy=SeededEntropy(1), inline=True
    ) as service:
        yield service


async def recover_anna(site: Site) -> None:
    """Make an account with a password, and queue a recovery for it."""
    hashed = await site.hash_password("correct horse battery", "anna", "anna@x.test")
    await site.write(
        "Administrator",
        lambda fw: add_user(fw, "anna", "anna@x.test", password_hash=hashed),
    )
    await site.store.write(
        lambda tx: site.mail_queue.to_identifier(tx, Template.RECOVERY, "anna", owner="Guest")
    )


async def test_transport_log_writes_a_mail_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    log = RecordingLog()
    async with worker(tmp_path, log) as service:
        assert service.url == ""
        began = trio.current_time()
        await recover_anna(service.site)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == began
        (line,) = log.of("mail.sent")
    assert (line["recipient"], line["template"]) == ("anna@x.test", "recovery")
    assert str(line["link"]).startswith(f"{PUBLIC}/reset-password#token=")


async def test_transport_method_calls_the_app_and_jobs_run(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    (tmp_path / "tree_test_app.py").write_text(APP)
    mail = {"transport": "method", "method": "tree_test_app.send"}
    log = RecordingLog()
    async with worker(tmp_path, log, mail, apps=("tree_test_app",)) as service:
        import tree_test_app  # type: ignore[import-not-found]

        await recover_anna(service.site)
        await service.site.write("Administrator", lambda fw: fw.enqueue(tree_test_app.mark))
        await trio.sleep(1)
        ((user, email, message),) = tree_test_app.SENT
        assert (user, email) == ("Administrator", "anna@x.test")
        assert str(message["link"]).startswith(PUBLIC)
        assert await service.site.read("Administrator", lambda fw: fw.exists("Role", "Marked"))
    assert str(message["link"]) not in str(log.entries)


async def fail_webhook(site: Site, since: int) -> str:
    """Make a Webhook all of whose attempts have failed since then (ms); return its name."""
    fields = {"event_type": "Custom", "custom_event": "a.b", "secret": "s"}

    def work(fw: Any) -> str:
        hook = fw.new_doc("Webhook", url="https://receiver.test", **fields).insert()
        fw.db.sql(
            "INSERT INTO fw_webhook_health (webhook, failures, failing_since, last_error,"
            " last_failure) VALUES (:name, 7, :since, 'HTTP 500', :last)",
            {"name": hook.name, "since": since, "last": START_MS},
        )
        return str(hook.name)

    return await site.write("Administrator", work)


async def test_sweep_logs_failing_receiver_and_its_recovery(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    log = RecordingLog()
    async with worker(tmp_path, log, receiver_notice=1) as service:
        name = await fail_webhook(service.site, START_MS - 2 * MS_PER_HOUR)
        await trio.sleep(120)
        assert log.of("receiver.failing") == [{"webhook": name}]
        succeeded = "UPDATE fw_webhook_health SET failures = 0, failing_since = NULL"
        await service.site.store.write(lambda tx: tx.raw(succeeded))
        await trio.sleep(60)
    assert log.of("receiver.recovered") == [{"webhook": name}]
    assert log.of("receiver.disabled") == []


async def test_sweep_logs_disabled_webhook(tmp_path: Path, autojump_clock: MockClock) -> None:
    log = RecordingLog()
    async with worker(tmp_path, log, receiver_notice=0, disable_after_days=1) as service:
        name = await fail_webhook(service.site, START_MS - 2 * MS_PER_DAY)
        await trio.sleep(120)
    assert log.of("receiver.disabled") == [{"webhook": name}]


async def test_external_commits_at_start_and_stop_make_no_dead_letters(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of a site commit while another one starts or stops."""
    add = Store.on_external_commit

    def called_first_and_last(store: Store, callback: Callable[[], None]) -> Callable[[], None]:
        callback()
        remove = add(store, callback)

        def end() -> None:
            callback()
            remove()

        return end

    monkeypatch.setattr(Store, "on_external_commit", called_first_and_last)
    log = RecordingLog()
    async with worker(tmp_path, log):
        await trio.sleep(2)
    assert log.of("dead_letter") == []


async def test_missing_mail_method_fails_the_start(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    mail = {"transport": "method", "method": "no_such_app_module.send"}
    with pytest.raises(ConfigurationError, match="FW_MAIL_METHOD"):
        async with worker(tmp_path, RecordingLog(), mail):
            pass


async def test_service_with_a_front_raises_the_plain_start_error(tmp_path: Path) -> None:
    """The error itself is raised, not a group of the nursery that serves meanwhile."""
    config = make_config(tmp_path, public_url=PUBLIC)
    mail = replace(config.mail, transport="method", method="no_such_app_module.send")
    deployment = replace(config.deployment, bind_host="127.0.0.1", bind_port=0)
    config = replace(config, mail=mail, deployment=deployment)
    with pytest.raises(ConfigurationError, match="FW_MAIL_METHOD"):
        async with open_service(config, log=RecordingLog(), inline=True):
            pass


async def test_service_start_warns_of_pending_data_migrations(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """D-177."""
    step = "from fw_actors.app import migration\n\n@migration(1)\ndef fill(fw):\n    pass\n"
    (tmp_path / "tree_test_steps.py").write_text(step)
    first, second = RecordingLog(), RecordingLog()
    async with worker(tmp_path, first, apps=("tree_test_steps",)) as service:
        assert [str(each) async for each in run_pending(service.site)] == [
            "tree_test_steps 1 (fill)"
        ]
    async with worker(tmp_path, second, apps=("tree_test_steps",)):
        pass
    expected = {"migration": "tree_test_steps 1 (fill)", "hint": "fw migrate"}
    assert first.of("service.data_migration_pending") == [expected]
    assert second.of("service.data_migration_pending") == []
