"""Callbacks after a commit (`Tx.after_commit`), with threads and inline alike."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial

import pytest
import trio

from fw_actors.errors import OverloadedError
from fw_actors.store import SlowCallback, Store, Tx
from tests.fw_actors.store.conftest import OpenStore
from tests.fw_actors.store.notes import NoteRefused, add, texts


async def test_commit_callbacks_run_in_order_and_skip_failed_savepoint(store: Store) -> None:
    called: list[str] = []

    def work(tx: Tx) -> None:
        tx.after_commit(lambda: called.append("first"))
        with suppress(NoteRefused), tx.savepoint():
            tx.after_commit(lambda: called.append("dropped"))
            raise NoteRefused
        with tx.savepoint():
            tx.after_commit(lambda: called.append("second"))

    await store.write(work)
    assert called == ["first", "second"]


async def test_commit_callback_for_once_runs_once(store: Store) -> None:
    called: list[str] = []

    def notice() -> None:
        called.append("notice")

    def work(tx: Tx) -> None:
        for _ in range(3):
            tx.after_commit(notice, once=True)
            tx.after_commit(lambda: called.append("other"))

    await store.write(work)
    assert called == ["notice", *["other"] * 3]


async def test_commit_callback_for_once_survives_failed_savepoint(store: Store) -> None:
    """A savepoint that is undone takes only its own registration with it."""
    called: list[str] = []

    def notice() -> None:
        called.append("notice")

    def work(tx: Tx) -> None:
        with suppress(NoteRefused), tx.savepoint():
            tx.after_commit(notice, once=True)
            raise NoteRefused
        tx.after_commit(lambda: called.append("other"))
        with suppress(NoteRefused), tx.savepoint():
            tx.after_commit(notice, once=True)
            raise NoteRefused
        tx.after_commit(notice, once=True)
        tx.after_commit(notice, once=True)

    await store.write(work)
    assert called == ["other", "notice"]


async def test_commit_callback_of_failed_transaction_is_dropped(store: Store) -> None:
    called: list[str] = []

    def work(tx: Tx) -> None:
        tx.after_commit(lambda: called.append("dropped"))
        raise NoteRefused

    with pytest.raises(NoteRefused):
        await store.write(work)
    assert called == []


async def test_commit_callback_error_is_logged_and_next_callback_runs(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    def work(tx: Tx) -> str:
        tx.after_commit(lambda: called.remove("missing"))
        tx.after_commit(lambda: called.append("next"))
        return "done"

    assert await store.write(work) == "done"
    assert called == ["next"]
    assert "callback" in caplog.text


def unexpected(error: BaseException) -> None:
    raise AssertionError from error


async def test_slow_callback_error_is_logged_and_reported(
    threaded: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the error is: it must not end the thread of the callbacks."""
    reported: list[str] = []

    def fail() -> None:
        raise KeyboardInterrupt

    def work(tx: Tx) -> str:
        tx.after_commit(SlowCallback(fail, lambda error: reported.append(type(error).__name__)))
        tx.after_commit(SlowCallback(lambda: reported.append("next"), unexpected))
        return "done"

    for _ in range(2):
        assert await threaded.write(work) == "done"
    assert sorted(reported) == ["KeyboardInterrupt", "KeyboardInterrupt", "next", "next"]
    assert "callback" in caplog.text


async def test_slow_callback_runs_at_limit_of_threads(
    threaded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the start ended trio's loop, and with it the service."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def work(tx: Tx) -> str:
        tx.after_commit(SlowCallback(lambda: ran.append("callback"), unexpected))
        return "done"

    ran: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert await threaded.write(work) == "done"
    assert await threaded.write(work) == "done"
    assert ran == ["callback"] * 2


async def test_slow_callbacks_run_in_order_while_others_write(threaded: Store) -> None:
    """The hook `after_commit` of an app may take long (D-142)."""
    release, ran = threading.Event(), list[str]()

    def slowly(name: str) -> None:
        assert release.wait(60)
        ran.append(name)

    async def write(name: str, *, task_status: trio.TaskStatus[None]) -> None:
        def work(tx: Tx) -> None:
            tx.after_commit(SlowCallback(partial(slowly, name), unexpected))
            tx.after_commit(task_status.started)

        await threaded.write(work)
        ran.append(f"{name} answered")

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                await nursery.start(write, name)
            await threaded.write(add("while they wait"))
            assert await threaded.read(texts) == ["while they wait"]
            assert ran == []
            release.set()
    assert [each for each in ran if len(each) == 1] == ["a", "b"]
    assert ran.index("a") < ran.index("a answered")
    assert ran.index("b") < ran.index("b answered")


async def test_closing_store_waits_for_slow_callbacks(open_store: OpenStore) -> None:
    release, ran = threading.Event(), list[bool]()

    async def write(store: Store, *, task_status: trio.TaskStatus[None]) -> None:
        def work(tx: Tx) -> None:
            tx.after_commit(SlowCallback(lambda: ran.append(release.wait(60)), unexpected))
            tx.after_commit(task_status.started)

        await store.write(work)

    async def release_when_closing(store: Store) -> None:
        with suppress(OverloadedError):
            while True:
                await store.write(lambda tx: None)
        release.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            async with open_store() as store:
                await nursery.start(write, store)
                nursery.start_soon(release_when_closing, store)
            assert ran == [True]
