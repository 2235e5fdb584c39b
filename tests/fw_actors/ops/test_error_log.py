"""Error Logs: method, message, request and time (D-226)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from fw_actors.documents import rest
from fw_actors.errors import OverloadedError
from fw_actors.ops.error_log import KEPT_DAYS, MAX_WAITING_DEFECTS, PER_MINUTE, ErrorRecorder
from tests.fw_actors.virtual_site_kit import VirtualSite, open_virtual_site
from tests.site_kit import SECRET_KEY, inline_site


def raised(fn: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        fn()
    return caught.value


def fail(text: str) -> BaseException:
    def inner() -> None:
        raise RuntimeError(text)

    return raised(inner)


async def logged(site: VirtualSite) -> list[tuple[Any, ...]]:
    return await site.sql("SELECT method, message, request_id FROM doc_error_log ORDER BY name")


async def flush(site: VirtualSite) -> int:
    return await site.site.store.write(site.site.errors.flush)


async def test_error_log_has_traceback_and_request_id(site: VirtualSite) -> None:
    site.site.errors.note("POST /api/x", fail("out of tea"), "request-1")
    assert await flush(site) == 1
    ((method, message, request),) = await logged(site)
    assert (method, request) == ("POST /api/x", "request-1")
    first, *places = message.splitlines()
    assert first == "RuntimeError: out of tea"
    assert places[-1].endswith("in inner")
    assert "test_error_log.py, line " in places[-1]


def fail_after_another() -> None:
    try:
        raise KeyError("token=hunter2")
    except KeyError as error:
        raise RuntimeError("no tea") from error


async def test_error_log_has_cause_of_error(site: VirtualSite) -> None:
    """Scrubbed like the error itself (D-226)."""
    site.site.errors.note("m", raised(fail_after_another), "r")
    await flush(site)
    ((_, message, _),) = await logged(site)
    lines = message.splitlines()
    assert lines[0] == "RuntimeError: no tea"
    (cause,) = [number for number, line in enumerate(lines) if line.startswith("after ")]
    assert lines[cause].startswith("after KeyError: 'token=[scrubbed]")
    assert lines[-1].endswith("in fail_after_another")
    assert cause < len(lines) - 1


async def test_error_log_keeps_paths_that_resemble_secrets(site: VirtualSite) -> None:
    """A site may lie in any folder; only the message of the error is scrubbed."""
    place = "/srv/token=releases/0123456789abcdef0123456789abcdef01/app.py"
    code = compile("raise RuntimeError('token=hunter2')", place, "exec")
    site.site.errors.note("m", raised(lambda: exec(code)), "r")
    await flush(site)
    ((_, message, _),) = await logged(site)
    first, *places = message.splitlines()
    assert first == "RuntimeError: token=[scrubbed]"
    assert places[-1] == f"  {place}, line 1, in <module>"


async def test_error_log_is_readable_by_a_system_manager(site: VirtualSite) -> None:
    site.site.errors.note("m", fail("x"), "")
    await flush(site)
    await site.add_account("ada", "System Manager", password=None)
    found = await site.do(lambda fw: rest.list_documents(fw, "Error Log", {}), "ada")
    shown = await site.do(lambda fw: rest.read(fw, "Error Log", found["data"][0]["name"]), "ada")
    assert (shown["method"], shown["request_id"], found["total"]) == ("m", None, 1)


async def test_error_log_is_scrubbed_of_secrets(site: VirtualSite) -> None:
    site.site.errors.note("m", fail(f"{SECRET_KEY} and password=hunter2"), "r")
    await flush(site)
    ((_, message, _),) = await logged(site)
    assert message.startswith("RuntimeError: [scrubbed] and password=[scrubbed]\n")


async def test_error_log_cuts_long_text_and_replaces_nul(site: VirtualSite) -> None:
    site.site.errors.note("m" * 200, fail("\x00" + "long " * 10_000), "r")
    await flush(site)
    ((method, message, _),) = await logged(site)
    assert len(method) == 140
    assert 4_000 <= len(message) < 20_000
    assert "\x00" not in message


class UnprintableError(Exception):
    """An exception of an app whose text cannot be computed."""

    def __str__(self) -> str:
        raise AttributeError("reason")


def fail_unprintably() -> None:
    raise UnprintableError


def fail_in_file(place: str) -> BaseException:
    code = compile("raise RuntimeError('x')", place, "exec")
    return raised(lambda: exec(code))


@pytest.mark.usefixtures("on_both_stores")
async def test_error_log_stores_any_text(site: VirtualSite) -> None:
    """A defect that the store refused would keep all later ones from being written."""
    for method, error in (
        ("m\x00\ud800", fail("a\x00b \ud800")),
        ("m", fail_in_file("/srv/caf\udce9/app.py")),
        ("m", raised(fail_unprintably)),
    ):
        site.site.errors.note(method, error, "r")
    assert await flush(site) == 3
    found = {(method, message.splitlines()[0]) for method, message, _ in await logged(site)}
    assert found == {
        ("m\ufffd\ufffd", "RuntimeError: a\ufffdb \ufffd"),
        ("m", "RuntimeError: x"),
        ("m", "UnprintableError: <its text raised AttributeError>"),
    }


async def test_error_log_is_limited_per_minute(site: VirtualSite) -> None:
    """A loop that fails must not fill the disk."""
    for _ in range(PER_MINUTE + 5):
        site.site.errors.note("m", fail("x"), "")
    assert await flush(site) == PER_MINUTE
    site.site.errors.note("m", fail("x"), "")
    assert await flush(site) == 0
    await trio.sleep(61)
    site.site.errors.note("m", fail("x"), "")
    assert await flush(site) == 1
    assert len(await logged(site)) == PER_MINUTE + 1


async def test_error_log_limit_ignores_entries_of_a_clock_that_was_ahead(site: VirtualSite) -> None:
    """Otherwise no defect would be written until the corrected clock reaches their time."""
    for _ in range(PER_MINUTE):
        site.site.errors.note("ahead", fail("x"), "")
    await flush(site)
    await site.site.store.write(
        lambda tx: tx.raw("UPDATE doc_error_log SET creation = creation + 86400000")
    )
    site.site.errors.note("now", fail("x"), "")
    assert await flush(site) == 1


async def test_error_recorder_bounds_waiting_entries(site: VirtualSite) -> None:
    for number in range(MAX_WAITING_DEFECTS + 10):
        site.site.errors.note(str(number), fail("x"), "")
    await flush(site)
    methods = {int(method) for method, _, _ in await logged(site)}
    assert methods == set(range(10, 10 + PER_MINUTE))


async def test_error_log_deletes_old_entries(site: VirtualSite) -> None:
    site.site.errors.note("old", fail("x"), "")
    await flush(site)
    await trio.sleep(KEPT_DAYS * 86_400 + 1)
    site.site.errors.note("new", fail("x"), "")
    await flush(site)
    assert [method for method, _, _ in await logged(site)] == ["new"]


async def test_error_recorder_deletes_a_limited_number_of_old_entries_at_once(
    site: VirtualSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A month of defects would keep every other write waiting (D-226)."""
    monkeypatch.setattr("fw_actors.ops.error_log.MAX_DELETED", 2)
    for name in ("a", "b", "c"):
        site.site.errors.note(name, fail("x"), "")
    await flush(site)
    await trio.sleep(KEPT_DAYS * 86_400 + 1)
    for left in (2, 1):
        site.site.errors.note("new", fail("x"), "")
        await flush(site)
        assert len(await logged(site)) == left + (left == 1)


async def test_error_recorder_keeps_entries_of_a_failed_flush(site: VirtualSite) -> None:
    errors = site.site.errors
    errors.note("m", fail("x"), "")

    def undone(tx: Any) -> None:
        errors.flush(tx)
        raise KeyError

    with pytest.raises(KeyError):
        await site.site.store.write(undone)
    assert errors.waits
    assert await flush(site) == 1
    assert not errors.waits


async def test_hook_failure_behind_the_commit_is_logged_and_undoes_nothing(
    site: VirtualSite,
) -> None:
    """`after_commit` never undoes; its failure is an Error Log (D-142)."""
    insert = {"title": "fail late"}
    await site.site.write(
        "Administrator", lambda fw: rest.insert(fw, "Sales Order", insert), "request-1"
    )
    assert await site.do(lambda fw: fw.count("Sales Order")) == 1
    await flush(site)
    ((method, message, request),) = await logged(site)
    assert (method, request) == ("Sales Order.after_commit", "request-1")
    assert message.startswith("RuntimeError: after the commit\n")


async def test_site_close_writes_waiting_error_logs(tmp_path: Path) -> None:
    """A command that runs a hook ends right after it."""
    async with open_virtual_site(tmp_path) as site:
        await site.do(lambda fw: rest.insert(fw, "Sales Order", {"title": "fail late"}))
    async with open_virtual_site(tmp_path, seed=2) as site:
        assert [method for method, _, _ in await logged(site)] == ["Sales Order.after_commit"]


async def test_site_close_writes_error_logs_of_a_failed_command(tmp_path: Path) -> None:
    """A command that fails, or is interrupted, after a hook's defect (D-142)."""

    async def fail_after_hook(scope: trio.CancelScope) -> None:
        async with open_virtual_site(tmp_path) as site:
            await site.do(lambda fw: rest.insert(fw, "Sales Order", {"title": "fail late"}))
            scope.cancel()
            raise KeyError

    with trio.CancelScope() as scope, pytest.raises(KeyError):
        await fail_after_hook(scope)
    async with open_virtual_site(tmp_path, seed=2) as site:
        assert [method for method, _, _ in await logged(site)] == ["Sales Order.after_commit"]


async def test_site_close_ignores_a_failed_flush(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop while the database is locked is a stop in order; the log has the defect."""

    def locked(_self: ErrorRecorder, _tx: Any) -> int:
        raise OverloadedError

    async with inline_site(tmp_path) as site:
        site.errors.note("m", fail("x"), "r")
        monkeypatch.setattr(ErrorRecorder, "flush", locked)
