"""The client for programs without tasks.

Generated from async_client.py by `python -m tests.fw_client.sync_client`. Do not edit.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from fw_client import calls, sync_library
from fw_client.errors import ApiError, FwClientError, NotReached, Unauthenticated
from fw_client.models import EndedLogins, UserProfile
from fw_client.operations import (
    ApiKeyCalls,
    DocumentCalls,
    JobCalls,
    SessionCalls,
    UserCalls,
    WebhookCalls,
)
from fw_client.randomness import fraction, new_request_id
from fw_client.retries import DEFAULT_RETRIES, RetryPolicy, requests
from fw_client.transport import (
    DEFAULT_SECONDS,
    ClientSettings,
    http_answer,
    http_request,
    no_answer,
)
from fw_client.wire import Call, HttpAnswer, NoAnswer

T = TypeVar("T")
_log: Final = logging.getLogger("fw_client")
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {}


class FwClient:
    """A client of one service, as one user, for any number of threads.

    Its operations are named as in the HTTP reference: `client.webhooks.emit`,
    `client.documents.insert`. Each raises an FwClientError; docs/python-client.md lists them.

    Args:
        url: the URL of the service, such as `https://fw.example.org`.
        key: an API key, `fwk_…`; preferred for programs.
        user, password: instead of a key. The client signs in at the first call, and again when
            the session has ended; closing it ends the session.
        timeout: seconds without progress after which a request fails; 5 at most for connecting.
        retries: the number of retries, and the waits between them.
        allow_http: permit http to another machine, although the network can then read the key.
        http: an httpx.Client to send with, for a proxy or your own certificates; it is not
            closed. After its first call it cannot be used in a forked process (RuntimeError).

    Raises: ValueError for a URL or a combination that cannot work.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout: float = DEFAULT_SECONDS,
        retries: RetryPolicy = DEFAULT_RETRIES,
        allow_http: bool = False,
        http: httpx.Client | None = None,
    ) -> None:
        self._settings = ClientSettings(url, key, user, password, timeout, retries, allow_http)
        self._owns_http = http is None
        self._http = self._new_http() if http is None else http
        self._inherited: list[httpx.Client] = []
        self._process = os.getpid()
        self._has_connected = self._shares_connections = False
        self._session: str | None = None
        self._sign_in_lock = sync_library.LibraryLock()
        self.documents = DocumentCalls(self)
        self.webhooks = WebhookCalls(self)
        self.jobs = JobCalls(self)
        self.sessions = SessionCalls(self)
        self.api_keys = ApiKeyCalls(self)
        self.users = UserCalls(self)

    def __repr__(self) -> str:
        caller = "" if self._settings.user is None else f", user={self._settings.user!r}"
        return f"{type(self).__name__}({self._settings.url!r}{caller})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session, if the client has one, and close its connections.

        A service that cannot be reached keeps the session until it expires.
        """
        self._leave_parent()
        session, self._session = self._session, None
        try:
            if session is not None:
                with contextlib.suppress(FwClientError):
                    self._send(calls.sign_out(), session, RetryPolicy(attempts=1))
        finally:
            if self._owns_http:
                self._http.close()

    def _new_http(self) -> httpx.Client:
        return httpx.Client(trust_env=self._settings.trust_env)

    def _leave_parent(self) -> None:
        """Leave connections and session to the parent, if this process was forked from it.

        Two processes that share a connection read each other's answers. The parent's client is kept
        without being closed, because closing a TLS connection would end it for the parent too.
        """
        if self._process == os.getpid():
            return
        if self._owns_http:
            self._inherited.append(self._http)
            self._http = self._new_http()
        else:
            self._shares_connections = self._has_connected
        self._session = None
        self._sign_in_lock = sync_library.LibraryLock()  # a thread of the parent may hold the old
        self._process = os.getpid()

    def profile(self) -> UserProfile:
        """Return the account as which the client acts."""
        return self.run(calls.profile())

    def update_profile(
        self, *, full_name: str | None = None, language: str | None = None
    ) -> UserProfile:
        """Change your full name and language; None keeps a value. Raises: Invalid."""
        return self.run(calls.update_profile(full_name, language))

    def change_password(self, current: str, password: str) -> EndedLogins:
        """Change your password; your other sessions end.

        A client that signs in by password uses the new one from then on. The call is not repeated.

        Raises: Unauthenticated for a wrong `current`, Invalid for a password that breaks the
            rules, Forbidden with an API key.
        """
        # Renews a session that has ended. A later 401 is about `current`, with which the call must
        # not be repeated: each attempt counts as a failed sign-in.
        self.profile()
        session = self._session_after(None)
        call = calls.change_password(current, password)
        ended = self._send(call, session, self._settings.retries)
        if self._settings.password is not None:
            self._settings = replace(self._settings, password=password)
        return ended

    def call(
        self,
        path: str,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
        *,
        repeatable: bool = False,
    ) -> Any:
        """Call a function of an app by its dotted path; return its result.

        Args:
            repeatable: whether the function is idempotent, so that the call may be repeated if it
                is unknown whether it ran.
        """
        return self.run(calls.function(path, arguments, repeatable))

    def run(self, call: Call[T]) -> T:
        """Carry out a call as the client's user; return its result.

        A call that is refused because the session has ended is repeated in a new session: a refused
        request has had no effect. One before it, whose response was lost, may have had one.
        """
        session = self._session_after(None)
        try:
            return self._send(call, session, self._settings.retries)
        except Unauthenticated as refused:
            if session is None:
                raise
            repeated = refused.repeated
        try:
            session = self._session_after(session)
        except ApiError as error:
            error.repeated = error.repeated or repeated
            raise
        except NotReached as error:
            error.sent = error.sent or repeated
            raise
        return self._send(call, session, self._settings.retries, repeated=repeated)

    def _session_after(self, ended: str | None) -> str | None:
        """Return a session other than `ended`; None for a client that has no password."""
        self._leave_parent()
        if self._shares_connections:
            raise RuntimeError("A client with http= must be created in the process that uses it.")
        user, password = self._settings.user, self._settings.password
        if user is None or password is None:
            return None
        with self._sign_in_lock:
            if self._session is None or self._session == ended:
                self._session = None
                call = calls.sign_in(user, password)
                self._session = self._send(call, None, self._settings.retries)
            return self._session

    def _send(
        self, call: Call[T], session: str | None, policy: RetryPolicy, *, repeated: bool = False
    ) -> T:
        """Send the requests of a call until it has its result. `repeated`: as in `requests`."""
        request_id = new_request_id()
        steps = requests(call, policy, fraction, request_id, repeated=repeated)
        outcome: HttpAnswer | NoAnswer | None = None
        try:
            wait = next(steps)
            while True:
                if wait is None:
                    outcome = self._outcome(call, session, request_id)
                else:
                    reason = "" if outcome is None else outcome.reason
                    _log.info(
                        "%s %s is sent again in %.1f s: %s", call.method, call.path, wait, reason
                    )
                    sync_library.sleep(wait)
                    outcome = None
                wait = steps.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result

    def _outcome(
        self, call: Call[Any], session: str | None, request_id: str
    ) -> HttpAnswer | NoAnswer:
        request = http_request(self._settings, call, session, request_id)
        self._has_connected = True
        try:
            response = self._http.send(request, auth=None, follow_redirects=False)
        except httpx.RequestError as error:
            return no_answer(error, request.url.host)
        return http_answer(response)
