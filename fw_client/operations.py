"""The operations of the service in groups, for programs without tasks.

Generated from async_operations.py by `python -m tests.fw_client.sync_client`. Do not edit.

The module has more than 500 lines because the groups are its whole content: a method with its
documentation for each operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from fw_client import calls
from fw_client.calls import ChangeJobs, Filters
from fw_client.errors import FwClientError, Invalid
from fw_client.events import EmitInterrupted, Event, EventBatch, EventBatches
from fw_client.listing import ListPosition
from fw_client.models import (
    ApiKeyInfo,
    AttemptInfo,
    AttemptInfoPage,
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
    SessionInfo,
    TestEvent,
)
from fw_client.wire import Call

T = TypeVar("T")


class CallRunner(Protocol):
    """Carries out calls as a user: the client."""

    def run(self, call: Call[T]) -> T:
        """Carry out a call; return its result."""
        ...


class DocumentCalls:
    """`client.documents`: documents of any DocType."""

    def __init__(self, client: CallRunner) -> None:
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
        """Return matching documents, and the total number of matches.

        Args:
            filters: `{"status": "Open"}`, or triples `("total", ">", 5)`; all must hold.
            fields: by default the name and the standard fields.
            order_by: by default `creation desc`.
            limit: from 1 to 500.
            start: the number of documents to skip.
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
        """Iterate over all matching documents, page by page.

        Args:
            order_by: by default the name. Only then is no document skipped or repeated when others
                are inserted or deleted meanwhile.
            page: documents of a request, from 1 to 500; fewer if they are large.
        """
        names = None if fields is None else tuple(fields)
        position: ListPosition | None = ListPosition(doctype, filters, names, order_by, page)
        while position is not None:
            try:
                current = self._client.run(position.call())
            except Invalid as refusal:
                position = position.after_refusal(refusal)
                continue
            for row in current.rows:
                yield position.shown(row)
            position = position.after(current)

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

    def delete(self, doctype: str, name: str, *, modified: str | None = None) -> None:
        """Delete a document.

        Args:
            modified: the `modified` of the document as it was read; if another version is stored,
                the call is refused. None: any version is accepted.

        Raises: NotFound, Conflict, also for a document that others link to.
        """
        self._client.run(calls.delete_document(doctype, name, modified))

    def submit(self, doctype: str, name: str, *, modified: str | None = None) -> Document:
        """Submit a draft; `modified` as for `delete`. Raises: NotFound, Conflict."""
        return self._client.run(calls.submit_document(doctype, name, modified))

    def cancel(self, doctype: str, name: str, *, modified: str | None = None) -> Document:
        """Cancel a submitted document; `modified` as for `delete`. Raises: NotFound, Conflict."""
        return self._client.run(calls.cancel_document(doctype, name, modified))

    def rename(
        self, doctype: str, name: str, new_name: str, *, modified: str | None = None
    ) -> Document:
        """Rename a document, and update all links to it; `modified` as for `delete`.

        Raises: NotFound, Duplicate, Conflict.
        """
        return self._client.run(calls.rename_document(doctype, name, new_name, modified))

    def export(self, doctype: str, name: str) -> Document:
        """Return a document without its secrets. Raises: NotFound."""
        return self._client.run(calls.export_document(doctype, name))


class WebhookCalls:
    """`client.webhooks`: events and deliveries."""

    def __init__(self, client: CallRunner) -> None:
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
            key: the idempotency key: a Webhook receives each key once. By default the client
                generates one, so that its own retries emit the event once.

        Raises: Invalid for a reserved or malformed name, Forbidden without the role, TypeError or
            ValueError for data that JSON cannot express.
        """
        event = Event(name, data, reference) if key is None else Event(name, data, reference, key)
        (batch,) = EventBatches([event])
        (result,) = self._emit(batch)
        if isinstance(result, EventRefused):
            raise result.error
        return result

    def emit_many(self, events: Iterable[Event]) -> list[EmitResult]:
        """Emit events in requests of at most 1,000 and 4 MiB; return a result for each.

        A refused event does not prevent the others from being recorded.

        Raises: EmitInterrupted if a request fails permanently; it has the results so far. An error
            of the iterable, and TypeError or ValueError for an event that JSON cannot express, is
            raised as it is if no request was sent before, else as the cause of EmitInterrupted.
        """
        results: list[EmitResult] = []
        taken = EventBatches(events)
        sending: tuple[Event, ...] = ()
        try:
            for batch in taken:
                sending = batch.events
                results += self._emit(batch)
                sending = ()
        except Exception as error:
            if not results and not sending:
                raise
            raise EmitInterrupted(results, [*sending, *taken.waiting]) from error
        return results

    def _emit(self, batch: EventBatch) -> list[EmitResult]:
        if batch.body is None:
            return batch.too_large()
        try:
            return self._client.run(calls.emit_batch(batch))
        except FwClientError as error:
            refusal = batch.refusal(error)
            if refusal is None:
                raise
        if len(batch.events) == 1:
            return [EventRefused(batch.events[0].key, refusal)]
        first, second = batch.halves()
        return [*self._emit(first), *self._emit(second)]

    def replay(self, delivery: str) -> QueuedReplay:
        """Send a Sent or Failed delivery again. The client does not repeat this call.

        Raises: NotFound, Conflict for a delivery in progress.
        """
        return self._client.run(calls.replay(delivery))

    def replay_many(self, filters: Filters) -> BulkReplay:
        """Start a bulk replay of the matching deliveries, in batches.

        Raises: Conflict while another bulk replay runs.
        """
        return self._client.run(calls.replay_many(filters))

    def replay_progress(self, run: str | None = None) -> BulkReplay | None:
        """Return a run by its id; without one the current run, else the last; None before any.

        Raises: NotFound for an id that is not kept.
        """
        return self._client.run(calls.replay_progress(run))

    def replay_runs(self) -> tuple[BulkReplay, ...]:
        """Return the last 20 runs, the newest first."""
        return self._client.run(calls.replay_runs())

    def stop_replay(self) -> BulkReplay | None:
        """Stop the run after the deliveries in progress."""
        return self._client.run(calls.stop_replay())

    def explain(self, delivery: str) -> dict[str, Any]:
        """Return the attempts of a delivery, and the reason why it waits. Raises: NotFound."""
        return self._client.run(calls.explain(delivery))

    def attempts(
        self,
        *,
        webhook: str | None = None,
        result: str | None = None,
        response_status: int | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> AttemptInfoPage:
        """Return attempts of all deliveries, the newest first.

        Args:
            result: sent or failed.
            response_status: the status of the receiver's answer.
            error: a text that the error contains.
            since, until: the range of their ends, with a time zone.
            limit: from 1 to 500.
            before: the value of `next` from the previous page.

        Raises: BadCall for an invalid value.
        """
        conditions = calls.AttemptConditions(webhook, result, response_status, error, since, until)
        return self._client.run(calls.attempts(conditions, limit, before))

    def iterate_attempts(
        self,
        *,
        webhook: str | None = None,
        result: str | None = None,
        response_status: int | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page: int = 200,
    ) -> Iterator[AttemptInfo]:
        """Iterate over all matching attempts, filtered as by `attempts`, newest first.

        Attempts that end meanwhile are not included. With `response_status` or `error`, and for
        successes with `webhook`, the service searches only the newest 5,000; use `since` and
        `until` to reach older ones.
        """
        conditions = calls.AttemptConditions(webhook, result, response_status, error, since, until)
        current = self._client.run(calls.attempts(conditions, page, None))
        while True:
            yield from current.attempts
            if current.next is None:
                return
            current = self._client.run(calls.attempts(conditions, page, current.next))

    def test(self, webhook: str) -> TestEvent:
        """Send a test event now; the failure of a receiver is a result, not an error."""
        return self._client.run(calls.send_test_event(webhook))

    def pause(self, webhook: str, *, seconds: int | None = None) -> PausedWebhook:
        """Pause a Webhook: its deliveries wait. `seconds`: the duration; None: until resumed.

        Raises: NotFound, Invalid.
        """
        return self._client.run(calls.pause(webhook, seconds))

    def resume(self, webhook: str) -> PausedWebhook:
        """End the pause of a Webhook, if there is one. Raises: NotFound."""
        return self._client.run(calls.resume(webhook))

    def rotate(
        self,
        webhook: str,
        *,
        secret: str | None = None,
        overlap: int = 0,
        modified: str | None = None,
    ) -> RotatedSecret:
        """Replace the signing secret of a Webhook. The client does not repeat this call.

        Args:
            secret: the new secret; None: the service generates one.
            overlap: the hours for which the old secret also signs, 0 to 720.
            modified: the `modified` of the Webhook as it was read; if another version is stored,
                the call is refused. None: any version is accepted.

        Raises: NotFound, Invalid, Conflict.
        """
        return self._client.run(calls.rotate(webhook, secret, overlap, modified))

    def cancel(self, delivery: str) -> None:
        """End a Queued or Retrying delivery as Failed; nothing more is sent.

        The client does not repeat this call.

        Raises: NotFound, Conflict for a delivery that has ended or is being sent.
        """
        self._client.run(calls.cancel_delivery(delivery))

    def erase(self, delivery: str) -> datetime:
        """Erase the body of a Sent or Failed delivery; return the time of the first erasure.

        Raises: NotFound, Conflict for a delivery in progress.
        """
        return self._client.run(calls.erase(delivery))


class JobCalls:
    """`client.jobs`: waiting and failed jobs of apps and mails, for System Managers."""

    def __init__(self, client: CallRunner) -> None:
        self._client = client

    def list(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        function: str | None = None,
        user: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> tuple[JobInfo, ...]:
        """Return jobs, the newest first; a filter that is left out matches all.

        Args:
            queue: app or mail.
            state: ready, scheduled, leased or failed.
            limit: from 1 to 500.
            before: only jobs with a lower id: the last one of the previous page.
        """
        conditions = calls.JobConditions(queue, state, function, user)
        return self._client.run(calls.list_jobs(conditions, limit, before))

    def iterate(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        function: str | None = None,
        user: str | None = None,
        page: int = 200,
    ) -> Iterator[JobInfo]:
        """Iterate over all matching jobs, filtered as by `list`, newest first."""
        conditions = calls.JobConditions(queue, state, function, user)
        current = self._client.run(calls.list_jobs(conditions, page, None))
        while current:
            yield from current
            current = self._client.run(calls.list_jobs(conditions, page, current[-1].id))

    def retry(self, job: int) -> None:
        """Make a failed or scheduled job due now. Raises: NotFound, Conflict."""
        self._client.run(calls.retry_job(job))

    def cancel(self, job: int) -> None:
        """Delete a job; a mail is recorded as failed. Raises: NotFound, Conflict."""
        self._client.run(calls.cancel_job(job))

    def retry_matching(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        function: str | None = None,
        user: str | None = None,
    ) -> int:
        """Retry each matching job once, filtered as by `list`; return their number.

        An empty filter, perhaps of an unset variable, is refused. A request changes up to 500 jobs.
        The client does not repeat a request that fails.
        """
        conditions = calls.JobConditions(queue, state, function, user)
        return self._change_all(calls.retry_matching, conditions)

    def cancel_matching(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        function: str | None = None,
        user: str | None = None,
    ) -> int:
        """Cancel each matching job once, filtered as by `list`; return their number.

        An empty filter, perhaps of an unset variable, is refused. A request changes up to 500 jobs.
        The client does not repeat a request that fails.
        """
        conditions = calls.JobConditions(queue, state, function, user)
        return self._change_all(calls.cancel_matching, conditions)

    def _change_all(self, change: ChangeJobs, conditions: calls.JobConditions) -> int:
        total, before = self._client.run(change(conditions, None))
        while before is not None:
            changed, before = self._client.run(change(conditions, before))
            total += changed
        return total


class SessionCalls:
    """`client.sessions`: your sessions."""

    def __init__(self, client: CallRunner) -> None:
        self._client = client

    def list(self) -> tuple[SessionInfo, ...]:
        """Return your sessions; `current` is true for the client's session."""
        return self._client.run(calls.list_sessions())

    def revoke(self, session: str) -> None:
        """End a session by its `id`. Raises: NotFound."""
        self._client.run(calls.revoke_session(session))

    def revoke_others(self) -> int:
        """End all your sessions except the client's; return the number of ended sessions."""
        return self._client.run(calls.revoke_other_sessions())


class ApiKeyCalls:
    """`client.api_keys`: your API keys. These calls are refused with an API key."""

    def __init__(self, client: CallRunner) -> None:
        self._client = client

    def list(self) -> tuple[ApiKeyInfo, ...]:
        """Return your keys, without their secrets."""
        return self._client.run(calls.list_keys())

    def create(self, label: str, *, days: int | None = None) -> CreatedApiKey:
        """Create a key, valid for `days`. Its `key` is shown only once."""
        return self._client.run(calls.create_key(label, days))

    def revoke(self, name: str) -> None:
        """End a key. Raises: NotFound."""
        self._client.run(calls.revoke_key(name))

    def revoke_all(self) -> int:
        """End all your keys; return the number of ended keys."""
        return self._client.run(calls.revoke_all_keys())


class UserCalls:
    """`client.users`: the accounts, for System Managers."""

    def __init__(self, client: CallRunner) -> None:
        self._client = client

    def invite(
        self,
        email: str,
        *,
        name: str | None = None,
        full_name: str | None = None,
        roles: Sequence[str] | None = None,
    ) -> InvitedUser:
        """Create an account, and mail the link for setting a password. Raises: Duplicate."""
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
