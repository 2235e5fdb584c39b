"""The client for programs without tasks.

Made of async_client.py by `python -m tests.fw_client.sync_client`. Do not edit.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from fw_client import calls, sync_library
from fw_client.calls import Filters
from fw_client.errors import FwClientError, Invalid, Unauthenticated
from fw_client.events import EmitInterrupted, Event, EventBatch, batches
from fw_client.listing import ListPosition
from fw_client.models import (
    ApiKeyInfo,
    BulkReplay,
    CreatedApiKey,
    Document,
    DocumentPage,
    EmitResult,
    EndedLogins,
    EventEmitted,
    EventRefused,
    InvitedUser,
    JobInfo,
    MailedLink,
    PausedWebhook,
    QueuedReplay,
    RotatedSecret,
    TestEvent,
    UserProfile,
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
        url: the service's, as `https://fw.example.org`.
        key: an API key, `fwk_…`. It fits programs best.
        user, password: in place of a key. The client signs in at the first call, and again when
            the session has ended; closing it ends the session.
        timeout: seconds without progress until a request is given up; 5 at most for connecting.
        retries: how often and when a request is sent again.
        allow_http: let http lead to another machine, where anyone on the way can read the key.
        http: an httpx.Client to send with, for a proxy or certificates of one's own; it is
            not closed.

    Raises: ValueError for a URL or a combination that can't work.
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
        self._http = httpx.Client() if http is None else http
        self._session: str | None = None
        self._sign_in_lock = sync_library.LibraryLock()
        self.documents = DocumentCalls(self)
        self.webhooks = WebhookCalls(self)
        self.jobs = JobCalls(self)
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

        A service that can't be reached keeps the session until it expires.
        """
        session, self._session = self._session, None
        try:
            if session is not None:
                with contextlib.suppress(FwClientError):
                    self._send(calls.sign_out(), session, RetryPolicy(attempts=1))
        finally:
            if self._owns_http:
                self._http.close()

    def profile(self) -> UserProfile:
        """Return the account that the client acts as."""
        return self.run(calls.profile())

    def call(
        self,
        path: str,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
        *,
        repeatable: bool = False,
    ) -> Any:
        """Call a function of an app by its dotted path; return what it returned.

        Args:
            repeatable: whether the function does no more when it runs twice, so that the call may
                be repeated when it is not known whether it ran.
        """
        return self.run(calls.function(path, arguments, repeatable))

    def run(self, call: Call[T]) -> T:
        """Carry out a call as the client's user; return its result.

        A call that is refused because the session has ended is repeated in a new one: a refused
        call has done nothing.
        """
        session = self._session_after(None)
        try:
            return self._send(call, session, self._settings.retries)
        except Unauthenticated:
            if session is None:
                raise
        session = self._session_after(session)
        return self._send(call, session, self._settings.retries)

    def _session_after(self, ended: str | None) -> str | None:
        """Return a session other than `ended`; None for a client that has no password."""
        user, password = self._settings.user, self._settings.password
        if user is None or password is None:
            return None
        with self._sign_in_lock:
            if self._session is None or self._session == ended:
                self._session = None
                call = calls.sign_in(user, password)
                self._session = self._send(call, None, self._settings.retries)
            return self._session

    def _send(self, call: Call[T], session: str | None, policy: RetryPolicy) -> T:
        """Send the requests of a call until it has its result."""
        request_id = new_request_id()
        steps = requests(call, policy, fraction, request_id)
        outcome: HttpAnswer | NoAnswer | None = None
        try:
            wait = next(steps)
            while True:
                if wait is None:
                    outcome = self._outcome(call, session, request_id)
                else:
                    _log.info("%s %s is sent again in %.1f s", call.method, call.path, wait)
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
        try:
            response = self._http.send(request, auth=None, follow_redirects=False)
        except httpx.RequestError as error:
            return no_answer(error)
        return http_answer(response)


class DocumentCalls:
    """`client.documents`: documents of any DocType."""

    def __init__(self, client: FwClient) -> None:
        self._client = client

    def list(
        self,
        doctype: str,
        filters: Filters = (),
        *,
        fields: Sequence[str] | None = None,
        order_by: str | None = None,
        limit: int = 20,
        start: int = 0,
    ) -> DocumentPage:
        """Return some documents that match, and the number of all that do.

        Args:
            filters: `{"status": "Open"}`, or triples `("total", ">", 5)`; all must hold.
            fields: by default the name and the standard fields.
            order_by: by default `creation desc`.
            limit: from 1 to 500.
            start: how many are left out.
        """
        return self._client.run(
            calls.list_documents(doctype, filters, fields, order_by, limit, start)
        )

    def iterate(
        self,
        doctype: str,
        filters: Filters = (),
        *,
        fields: Sequence[str] | None = None,
        order_by: str | None = None,
        page: int = 200,
    ) -> Iterator[Document]:
        """Go through all documents that match, a page of them at a time.

        Args:
            order_by: by default the name; then no document is left out or comes twice because
                others come and go meanwhile. In another order that may happen.
            page: documents of a request, from 1 to 500; fewer where they are large.
        """
        wanted = None if fields is None else tuple(fields)
        position: ListPosition | None = ListPosition(doctype, filters, wanted, order_by, page)
        while position is not None:
            try:
                found = self._client.run(position.call())
            except Invalid as refusal:
                position = position.after_refusal(refusal)
                continue
            for row in found.rows:
                yield position.shown(row)
            position = position.after(found)

    def get(self, doctype: str, name: str) -> Document:
        """Return a document. Raises: NotFound."""
        return self._client.run(calls.get_document(doctype, name))

    def insert(self, doctype: str, values: Mapping[str, Any], *, submit: bool = False) -> Document:
        """Insert a document, and submit it as well; return it as stored.

        Raises: Duplicate, Invalid.
        """
        return self._client.run(calls.insert_document(doctype, values, submit))

    def save(self, doctype: str, name: str, changes: Mapping[str, Any]) -> Document:
        """Change fields of a document; return it as stored.

        Args:
            changes: the fields that change; tables as whole lists. With the `modified` of the
                document as it was read, a save over a newer version is refused.

        Raises: NotFound, Conflict, Invalid.
        """
        return self._client.run(calls.save_document(doctype, name, changes))

    def delete(self, doctype: str, name: str) -> None:
        """Delete a document. Raises: NotFound, Conflict for one that others link to."""
        self._client.run(calls.delete_document(doctype, name))

    def submit(self, doctype: str, name: str) -> Document:
        """Submit a draft. Raises: NotFound, Conflict."""
        return self._client.run(calls.submit_document(doctype, name))

    def cancel(self, doctype: str, name: str) -> Document:
        """Cancel a submitted document. Raises: NotFound, Conflict."""
        return self._client.run(calls.cancel_document(doctype, name))

    def rename(self, doctype: str, name: str, new_name: str) -> Document:
        """Rename a document, and all that links to it. Raises: NotFound, Duplicate."""
        return self._client.run(calls.rename_document(doctype, name, new_name))

    def export(self, doctype: str, name: str) -> Document:
        """Return a document without its secrets. Raises: NotFound."""
        return self._client.run(calls.export_document(doctype, name))


class WebhookCalls:
    """`client.webhooks`: events and deliveries."""

    def __init__(self, client: FwClient) -> None:
        self._client = client

    def emit(
        self,
        name: str,
        data: Mapping[str, Any],
        *,
        reference: tuple[str, str] | None = None,
        key: str | None = None,
    ) -> EventEmitted:
        """Emit an event; when this returns, it is recorded durably.

        Args:
            reference: the DocType and the name of the document that it is about.
            key: no Webhook receives an event with the same key again. Without one the client takes
                a random one, so that its own repetitions double nothing.

        Raises: Invalid for a reserved or malformed name, Forbidden without the role.
        """
        event = Event(name, data, reference) if key is None else Event(name, data, reference, key)
        (batch,) = batches([event])
        (result,) = self._emit(batch)
        if isinstance(result, EventRefused):
            raise result.error
        return result

    def emit_many(self, events: Iterable[Event]) -> list[EmitResult]:
        """Emit events in requests of at most 1,000 and 4 MiB; return a result for each.

        One that is refused does not keep the others from being recorded.

        Raises: EmitInterrupted when a request fails for good; it has the results until then.
        """
        results: list[EmitResult] = []
        for batch in batches(events):
            try:
                results += self._emit(batch)
            except FwClientError as error:
                raise EmitInterrupted(results, batch.events) from error
        return results

    def _emit(self, batch: EventBatch) -> list[EmitResult]:
        if batch.body is None:
            return batch.too_large()
        return self._client.run(calls.emit_batch(batch))

    def replay(self, delivery: str) -> QueuedReplay:
        """Send a Sent or Failed delivery again. It is not repeated by the client.

        Raises: NotFound, Conflict for one that is still on its way.
        """
        return self._client.run(calls.replay(delivery))

    def replay_many(self, filters: Filters) -> BulkReplay:
        """Begin to replay the deliveries that match, some at a time.

        Raises: Conflict while another such run goes on.
        """
        return self._client.run(calls.replay_many(filters))

    def replay_progress(self) -> BulkReplay | None:
        """Return the present run, else the last one; None before the first."""
        return self._client.run(calls.replay_progress())

    def stop_replay(self) -> BulkReplay | None:
        """Stop the run after the deliveries in progress."""
        return self._client.run(calls.stop_replay())

    def explain(self, delivery: str) -> dict[str, Any]:
        """Return the attempts of a delivery, and what it waits for. Raises: NotFound."""
        return self._client.run(calls.explain(delivery))

    def test(self, webhook: str) -> TestEvent:
        """Send a test event now; the failure of a receiver is a result, not an error."""
        return self._client.run(calls.send_test_event(webhook))

    def pause(self, webhook: str, *, seconds: int | None = None) -> PausedWebhook:
        """Pause a Webhook: its deliveries wait. `seconds`: for how long; None: until resumed.

        Raises: NotFound, Invalid.
        """
        return self._client.run(calls.pause(webhook, seconds))

    def resume(self, webhook: str) -> PausedWebhook:
        """End the pause of a Webhook, if there is one. Raises: NotFound."""
        return self._client.run(calls.resume(webhook))

    def rotate(self, webhook: str, *, secret: str | None = None, overlap: int = 0) -> RotatedSecret:
        """Replace the signing secret of a Webhook. It is not repeated by the client.

        Args:
            secret: the new one; None: the service makes it.
            overlap: for how many hours the old one signs too, 0 to 720.

        Raises: NotFound, Invalid.
        """
        return self._client.run(calls.rotate(webhook, secret, overlap))

    def erase(self, delivery: str) -> datetime:
        """Erase what a Sent or Failed delivery carried; return when it was erased first.

        Raises: NotFound, Conflict for one that is still on its way.
        """
        return self._client.run(calls.erase(delivery))


class JobCalls:
    """`client.jobs`: jobs of apps and mails that wait, for System Managers."""

    def __init__(self, client: FwClient) -> None:
        self._client = client

    def list(
        self,
        *,
        queue: str = "",
        state: str = "",
        function: str = "",
        user: str = "",
        limit: int = 50,
        before: int | None = None,
    ) -> tuple[JobInfo, ...]:
        """Return jobs, the newest first; an empty text matches all.

        Args:
            state: ready, scheduled, leased or failed.
            limit: from 1 to 500.
            before: only jobs with a lower id: the last one of the page before.
        """
        return self._client.run(calls.list_jobs(queue, state, function, user, limit, before))

    def retry(self, job: int) -> None:
        """Make a failed or scheduled job due now. Raises: NotFound, Conflict."""
        self._client.run(calls.retry_job(job))

    def cancel(self, job: int) -> None:
        """Delete a job; a mail is recorded as failed. Raises: NotFound, Conflict."""
        self._client.run(calls.cancel_job(job))


class ApiKeyCalls:
    """`client.api_keys`: the own API keys. A key itself may not call these."""

    def __init__(self, client: FwClient) -> None:
        self._client = client

    def list(self) -> tuple[ApiKeyInfo, ...]:
        """Return the own keys, without their secrets."""
        return self._client.run(calls.list_keys())

    def create(self, label: str, *, days: int | None = None) -> CreatedApiKey:
        """Create a key; `days`: until it expires. Its `key` is shown this once."""
        return self._client.run(calls.create_key(label, days))

    def revoke(self, name: str) -> None:
        """End a key. Raises: NotFound."""
        self._client.run(calls.revoke_key(name))


class UserCalls:
    """`client.users`: the accounts, for System Managers."""

    def __init__(self, client: FwClient) -> None:
        self._client = client

    def invite(
        self,
        email: str,
        *,
        name: str | None = None,
        full_name: str | None = None,
        roles: Sequence[str] | None = None,
    ) -> InvitedUser:
        """Create an account, and mail the link for choosing a password. Raises: Duplicate."""
        return self._client.run(calls.invite(email, name, full_name, roles))

    def resend_invite(self, user: str) -> MailedLink:
        """Mail an invitation again. Raises: NotFound, Conflict."""
        return self._client.run(calls.resend_invite(user))

    def send_password_reset(self, user: str) -> MailedLink:
        """Mail a recovery link. Raises: NotFound, Conflict."""
        return self._client.run(calls.send_password_reset(user))

    def revoke_sessions(self, user: str, *, keys: bool = False) -> EndedLogins:
        """End all sessions of a user; `keys`: the API keys too. Raises: NotFound."""
        return self._client.run(calls.revoke_user_sessions(user, keys))

    def unlock(self, user: str) -> None:
        """Lift a lockout early. Raises: NotFound."""
        self._client.run(calls.unlock_user(user))
