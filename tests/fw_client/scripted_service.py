"""A service of scripted responses, and clients of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx

from fw_client import (
    FwClient,
    RetryPolicy,
)

URL = "http://127.0.0.1:8000"
AT_ONCE = RetryPolicy(attempts=3, first_seconds=0, longest_seconds=1)
PROFILE = {"name": "ada", "email": "", "fullName": "Ada", "language": "", "roles": []}
SIGNED_OUT = {"error": {"type": "AuthenticationError", "message": "Sign in first."}}
Answer = httpx.Response | Exception


class ScriptedService:
    """Responds as fw does, with sessions that a test can end, and with given responses."""

    def __init__(self, *answers: Answer | Callable[[httpx.Request], httpx.Response]) -> None:
        self.requests: list[httpx.Request] = []
        self.answers = list(answers)
        self.live: set[str] = set()
        self.sign_ins = 0
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.requests.append(request)
            return self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/login":
            if json.loads(request.content)["pwd"] != "right":
                return httpx.Response(401, json=SIGNED_OUT)
            self.sign_ins += 1
            sid = f"s{self.sign_ins}"
            self.live.add(sid)
            return httpx.Response(200, json={"ok": True}, headers={"set-cookie": f"sid={sid}; x"})
        if path == "/api/logout":
            self.live.discard(sid_of(request))
            return httpx.Response(200, json={"ok": True})
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, httpx.Response) else answer(request)
        if "authorization" not in request.headers and sid_of(request) not in self.live:
            return httpx.Response(401, json=SIGNED_OUT)
        return httpx.Response(200, json=PROFILE)

    @property
    def paths(self) -> list[str]:
        return [request.url.path.rpartition("/")[2] for request in self.requests]


def sid_of(request: httpx.Request) -> str:
    cookie: str = request.headers.get("cookie", "")
    return cookie.removeprefix("sid=")


def recorded(request: httpx.Request) -> httpx.Response:
    """Answer a batch of events: each is recorded."""
    keys = [each["options"]["key"] for each in json.loads(request.content)["events"]]
    return httpx.Response(200, json={"events": [{"deliveries": [f"msg_{key}"]} for key in keys]})


def client(service: ScriptedService, **settings: Any) -> FwClient:
    given: dict[str, Any] = {"key": "fwk_k"} if "user" not in settings else {}
    http = httpx.Client(transport=httpx.MockTransport(service))
    return FwClient(URL, retries=AT_ONCE, http=http, **(given | settings))


def by_password(service: ScriptedService, password: str = "right") -> FwClient:
    return client(service, user="ada", password=password)
