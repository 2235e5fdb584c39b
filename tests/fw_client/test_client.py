"""The client's sign-in, retries and closing, without a service (H-221 to H-224)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import httpx
import pytest
import trio
import trustme

from fw_client import (
    AsyncFwClient,
    FwClient,
    NotFound,
    NotReached,
    RetryPolicy,
    Unauthenticated,
)
from tests.fw_client.scripted_service import (
    AT_ONCE,
    PROFILE,
    SIGNED_OUT,
    URL,
    ScriptedService,
    by_password,
    client,
)


def test_client_signs_in_at_first_call() -> None:
    service = ScriptedService()
    ada = by_password(service)
    assert service.requests == []
    assert [ada.profile().name for _ in range(2)] == ["ada", "ada"]
    assert service.paths == ["login", *["core.services.profile.getMyProfile"] * 2]


def test_client_signs_in_again_after_session_ended() -> None:
    service = ScriptedService()
    ada = by_password(service)
    ada.profile()
    service.live.clear()
    assert ada.profile().name == "ada"
    assert service.sign_ins == 2


def test_lost_deletion_counts_as_done_in_a_new_session() -> None:
    """H-222, H-223: the document was deleted by the request whose response was lost."""
    gone = {"error": {"type": "NotFoundError", "message": "Gone."}}
    lost, ended = httpx.ReadTimeout("lost"), httpx.Response(401, json=SIGNED_OUT)
    service = ScriptedService(lost, ended, httpx.Response(404, json=gone))
    by_password(service).documents.delete("Note", "a")
    assert service.sign_ins == 2
    service = ScriptedService(httpx.Response(401, json=SIGNED_OUT), httpx.Response(404, json=gone))
    with pytest.raises(NotFound):
        by_password(service).documents.delete("Note", "a")


@pytest.mark.parametrize("lost", [True, False])
def test_error_says_whether_an_earlier_request_may_have_been_carried_out(lost: bool) -> None:
    """H-222: also if the credentials have ended before the repetition."""
    ended = httpx.Response(401, json=SIGNED_OUT)
    answers = [httpx.ReadTimeout("lost"), ended] if lost else [ended]
    with pytest.raises(Unauthenticated) as refused:
        client(ScriptedService(*answers)).documents.delete("Note", "a")
    assert refused.value.repeated is lost


def test_new_session_refused_raises_unauthenticated() -> None:
    refusals = [httpx.Response(401, json=SIGNED_OUT) for _ in range(2)]
    service = ScriptedService(*refusals)
    with pytest.raises(Unauthenticated):
        by_password(service).profile()
    assert service.sign_ins == 2


def test_wrong_password_is_sent_once() -> None:
    service = ScriptedService()
    with pytest.raises(Unauthenticated):
        by_password(service, "wrong").profile()
    assert service.paths == ["login"]


def test_wrong_present_password_is_sent_once() -> None:
    """Each attempt counts as a failed sign-in."""
    profile = httpx.Response(200, json=PROFILE)
    service = ScriptedService(profile, httpx.Response(401, json=SIGNED_OUT))
    with pytest.raises(Unauthenticated):
        by_password(service).change_password("wrong", "new")
    assert [name.rpartition(".")[2] for name in service.paths] == [
        "login", "getMyProfile", "changeMyPassword",
    ]  # fmt: skip


def test_time_without_zone_is_refused() -> None:
    service = ScriptedService()
    with pytest.raises(ValueError, match="since must have a time zone"):
        client(service).webhooks.attempts(since=datetime.fromisoformat("2026-01-01"))
    assert service.requests == []


def test_jobs_are_iterated_by_id() -> None:
    def page(*ids: int) -> httpx.Response:
        other = {"queue": "q", "state": "failed", "function": "f", "subject": None, "user": None}
        times = {"due": None, "created": "2026-01-01T00:00:00Z"}
        rows = [{"id": each, "attempts": 1, "error": None, **other, **times} for each in ids]
        return httpx.Response(200, json={"jobs": rows})

    service = ScriptedService(page(9, 8), page(7), page())
    assert [job.id for job in client(service).jobs.iterate(state="failed", page=2)] == [9, 8, 7]
    bodies = [json.loads(request.content) for request in service.requests]
    assert [each.get("before") for each in bodies] == [None, 8, 7]
    assert all((each["state"], each["limit"]) == ("failed", 2) for each in bodies)


@pytest.mark.parametrize("name", ["retry_matching", "cancel_matching"])
def test_jobs_beyond_one_request_are_changed(name: str) -> None:
    """O-223: one action changes at most 500 jobs; the next begins below them."""
    parts = [(500, 7), (500, 3), (1, None)]
    answers = [httpx.Response(200, json={"changed": n, "next": last}) for n, last in parts]
    service = ScriptedService(*answers)
    assert getattr(client(service).jobs, name)(queue="mail") == 1001
    bodies = [json.loads(request.content) for request in service.requests]
    assert [each.get("before") for each in bodies] == [None, 7, 3]
    assert {each["queue"] for each in bodies} == {"mail"}


def test_jobs_are_changed_by_service_without_next() -> None:
    """Version 0.2.0 answers no `next`; the jobs have been changed by then."""
    service = ScriptedService(httpx.Response(200, json={"changed": 2}))
    assert client(service).jobs.retry_matching(user="ann") == 2
    assert json.loads(service.requests[0].content) == {"user": "ann"}


def test_too_large_page_is_requested_again_in_halves() -> None:
    """H-227: without skipping a document, and without returning one twice."""

    def page(*names: str) -> httpx.Response:
        return httpx.Response(200, json={"data": [{"name": n} for n in names], "total": 5})

    refusal = {"type": "ValidationError", "message": "No.", "extra": {"field": "limit"}}
    too_large = httpx.Response(422, json={"error": refusal})
    service = ScriptedService(too_large, page("a", "b"), too_large, page("c"), page())
    rows = client(service).documents.iterate("Note", fields=["name"], page=4)
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    queries = [request.url.params for request in service.requests]
    assert [query["limit"] for query in queries] == ["4", "2", "2", "1", "1"]
    assert {query["fields"] for query in queries} == {'["name"]'}
    assert json.loads(queries[-1]["filters"]) == [["name", ">", "c"]]


def test_refused_api_key_is_not_sent_again() -> None:
    service = ScriptedService(httpx.Response(401, json=SIGNED_OUT))
    with pytest.raises(Unauthenticated):
        client(service).profile()
    assert len(service.requests) == 1


def test_close_ends_session() -> None:
    service = ScriptedService()
    with by_password(service) as ada:
        ada.profile()
    assert service.live == set()


def test_close_does_not_fail_if_service_is_unreachable() -> None:
    service = ScriptedService()
    ada = by_password(service)
    ada.profile()
    service.answers.append(httpx.ConnectError("away"))
    ada.close()


def test_threads_of_a_client_share_one_sign_in() -> None:
    service = ScriptedService()
    ada = by_password(service)
    threads = [threading.Thread(target=ada.profile) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert service.sign_ins == 1
    assert len(service.requests) == 9


async def tasks_share_one_sign_in(spawn: Callable[..., Any]) -> None:
    service = ScriptedService()

    async def answer(request: httpx.Request) -> httpx.Response:
        return service(request)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    async with AsyncFwClient(URL, user="ada", password="right", http=http) as ada:
        await spawn(ada.profile, 8)
        assert service.sign_ins == 1
    assert service.live == set()
    await http.aclose()


async def test_tasks_of_trio_share_one_sign_in() -> None:
    import trio

    async def spawn(work: Callable[[], Any], count: int) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(work)

    await tasks_share_one_sign_in(spawn)


def test_tasks_of_asyncio_share_one_sign_in() -> None:
    async def spawn(work: Callable[[], Any], count: int) -> None:
        await asyncio.gather(*(work() for _ in range(count)))

    asyncio.run(tasks_share_one_sign_in(spawn))


@pytest.mark.parametrize("library", ["trio", "asyncio"])
def test_async_client_retries_unavailable_service(library: str) -> None:
    async def ask() -> str:
        answers = [httpx.Response(503), httpx.Response(200, json=PROFILE)]
        http = httpx.AsyncClient(transport=httpx.MockTransport(ScriptedService(*answers)))
        retries = RetryPolicy(first_seconds=0.001)
        async with AsyncFwClient(URL, key="fwk_k", retries=retries, http=http) as ada:
            name = (await ada.profile()).name
        await http.aclose()
        return name

    assert (trio.run(ask) if library == "trio" else asyncio.run(ask())) == "ada"


def test_repetitions_of_call_have_same_request_id() -> None:
    service = ScriptedService(httpx.ReadTimeout("slow"))
    client(service).profile()
    first, second = service.requests
    assert first.headers["x-request-id"] == second.headers["x-request-id"]


def test_client_waits_before_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """H-224: Retry-After is the shortest wait."""
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    service = ScriptedService(httpx.Response(503, headers={"retry-after": "1"}))
    client(service).profile()
    assert waits == [1]


def test_given_httpx_client_does_not_replace_key() -> None:
    """H-221: the credentials of the given httpx client are not sent."""
    service = ScriptedService()
    http = httpx.Client(transport=httpx.MockTransport(service), auth=("other", "secret"))
    FwClient(URL, key="fwk_k", http=http).profile()
    assert service.requests[0].headers["authorization"] == "Bearer fwk_k"


def test_insert_is_not_repeated_after_lost_response() -> None:
    service = ScriptedService(httpx.ReadTimeout("slow"))
    with pytest.raises(NotReached) as lost:
        client(service).documents.insert("Note", {"title": "x"})
    assert lost.value.sent
    assert len(service.requests) == 1


@pytest.mark.parametrize("unsent", [httpx.ConnectError("no"), httpx.ConnectTimeout("no")])
def test_insert_is_repeated_after_failed_connection(unsent: Exception) -> None:
    service = ScriptedService(unsent, httpx.Response(201, json={"data": {"name": "n"}}))
    assert client(service).documents.insert("Note", {"title": "x"}) == {"name": "n"}


def test_call_is_repeated_only_if_declared_repeatable() -> None:
    with pytest.raises(NotReached):
        client(ScriptedService(httpx.ReadError("cut"))).call("shop.close")
    service = ScriptedService(httpx.ReadError("cut"), httpx.Response(200, json=5))
    assert client(service).call("shop.close", {"name": "SO-1"}, repeatable=True) == 5
    assert json.loads(service.requests[1].content) == {"name": "SO-1"}


@pytest.mark.parametrize("library", ["sync", "asyncio", "trio"])
def test_untrusted_certificate_ends_call_at_once(library: str) -> None:
    """H-223: the next connection would get the same certificate."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(server)
    connections = []

    def refuse_until_closed(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connections.append(listener.accept()[0])
                with suppress(OSError), server.wrap_socket(connections[-1], server_side=True):
                    pass

    async def call() -> None:
        async with AsyncFwClient(url, key="fwk_k", retries=AT_ONCE) as fw:
            await fw.profile()

    def call_sync() -> None:
        with FwClient(url, key="fwk_k", retries=AT_ONCE) as fw:
            fw.profile()

    calls: dict[str, Callable[[], None]] = {
        "sync": call_sync,
        "asyncio": lambda: asyncio.run(call()),
        "trio": lambda: trio.run(call),
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=refuse_until_closed, args=[listener])
        thread.start()
        with pytest.raises(
            NotReached, match=r"after 1 attempt: 127\.0\.0\.1: the certificate is not"
        ):
            calls[library]()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert len(connections) == 1


def test_client_follows_no_redirect() -> None:
    service = ScriptedService(
        httpx.Response(307, headers={"location": "https://elsewhere.example/"})
    )
    with pytest.raises(Exception, match="without a redirect"):
        client(service).profile()
    assert len(service.requests) == 1


def test_client_log_and_repr_contain_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fw_client")
    ada = by_password(ScriptedService(httpx.ReadTimeout("slow")))
    ada.profile()
    assert "is sent again" in caplog.text
    shown = caplog.text + repr(ada)
    assert "right" not in shown
    assert "s1" not in shown


def test_given_httpx_client_stays_open_and_sends_no_cookie() -> None:
    http = httpx.Client(transport=httpx.MockTransport(ScriptedService()))
    FwClient(URL, http=http).close()
    assert not http.is_closed
    http.cookies.set("sid", "other")
    service = ScriptedService()
    http = httpx.Client(transport=httpx.MockTransport(service), cookies={"sid": "other"})
    FwClient(URL, key="fwk_k", http=http).profile()
    assert "cookie" not in service.requests[0].headers


def test_retry_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fw_client")
    client(ScriptedService(httpx.ReadError("reset"), httpx.Response(503))).profile()
    assert [record.getMessage().rpartition(" s: ")[2] for record in caplog.records] == [
        "127.0.0.1: ReadError: reset",
        "the answer was 503",
    ]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_client_of_this_machine_uses_no_proxy_of_the_environment(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-228: a proxy on another machine would read the key."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("", 0)) as closed:
        proxy.settimeout(0)
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        url = f"http://{host}:{closed.getsockname()[1]}"
        closed.close()
        once = RetryPolicy(attempts=1)
        with pytest.raises(NotReached), FwClient(url, key="fwk_k", retries=once, timeout=5) as fw:
            fw.profile()
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_forked_process_opens_its_own_connection() -> None:
    """H-221: two processes on one connection would read each other's answers."""
    body = json.dumps(PROFILE).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(60)
        url = f"http://127.0.0.1:{service.getsockname()[1]}"
        with FwClient(url, key="fwk_k", timeout=60) as fw:
            first = _answered(service, answer, fw.profile)
            child = os.fork()
            if not child:
                os._exit(_status_of(fw.profile))
            second, _ = service.accept()
            second.recv(65536)
            second.sendall(answer)
            assert os.waitpid(child, 0)[1] == 0
            first.close()
            second.close()


def test_forked_process_refuses_connections_of_an_http_client() -> None:
    """H-221: the client cannot make another one, and would read answers to its parent."""
    body = json.dumps(PROFILE).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0)) as service, httpx.Client() as http:
        service.settimeout(60)
        url = f"http://127.0.0.1:{service.getsockname()[1]}"
        fw = FwClient(url, key="fwk_k", timeout=60, http=http)
        first = _answered(service, answer, fw.profile)
        child = os.fork()
        if not child:
            os._exit(_status_of(fw.profile) + 2 * _status_of(fw.close))
        first.settimeout(60)
        with first:
            sent = select.select([first], [], [], 1)[0]
            if sent:
                first.sendall(answer)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            assert not sent


def _answered(service: socket.socket, answer: bytes, call: Callable[[], object]) -> socket.socket:
    """Make a call, and answer it; return its connection, which stays open."""
    caller = threading.Thread(target=call)
    caller.start()
    connection, _ = service.accept()
    connection.recv(65536)
    connection.sendall(answer)
    caller.join(60)
    return connection


def _status_of(call: Callable[[], object]) -> int:
    try:
        call()
    except BaseException:
        return 1
    return 0


def test_forked_process_signs_in_for_itself() -> None:
    """H-221: ending its session would end that of its parent."""
    service = ScriptedService()
    with by_password(service) as ada:
        ada.profile()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            failed = _status_of(ada.close)
            os.write(writer, json.dumps(service.paths).encode())
            os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        assert json.loads(os.read(reader, 65536)) == ["login", "core.services.profile.getMyProfile"]
        os.close(reader)
        os.close(writer)
