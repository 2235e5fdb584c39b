"""Routes for the jobs of apps and mails: list, retry, cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from fw_actors.documents.fields import iso
from fw_actors.ops.queued_jobs import ChangedJobs, JobFacts, JobFilter
from fw_actors.rules import JOBS_LISTED
from web.exchange import Exchange
from web.json_input import read_struct
from web.operations import BodyRule, Operation, Route
from web.response import Response, json_response
from web.response_schemas import ChangedJobsResponse, JobDetails, JobsResponse
from web.routes.operations import (
    SERVICES,
    GatewayRoutes,
    time_or_null,
    whole_number,
    write_route,
)

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw


class ListJobsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of jobs.list; omitted fields match all. `before` is the last id of a page."""

    queue: str = ""
    state: str = ""
    function: str = ""
    user: str = ""
    limit: int = JOBS_LISTED
    before: int | None = None


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of jobs.retry and jobs.cancel."""

    job: int


class MatchingJobsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of jobs.retryMatching and jobs.cancelMatching; omitted fields match all, and empty
    ones are refused. `before` is the `next` of the previous response."""

    queue: str | None = None
    state: str | None = None
    function: str | None = None
    user: str | None = None
    before: int | None = None


SENDS_EMPTY_FILTERS: Final = "fw-client/0.2.0"
"""The User-Agent of the client that sends an empty text for each filter that is left out."""
LISTING: Final = BodyRule(partial(read_struct, kind=ListJobsRequest), optional=True)
QUERY: Final = frozenset({"queue", "state", "function", "user", "limit", "before"})


class JobRoutes(GatewayRoutes):
    """The routes by which System Managers administer jobs of apps, and mails."""

    def routes(self) -> list[Route]:
        """Return the routes."""
        matching, many = MatchingJobsRequest, ChangedJobsResponse
        post = Operation(self.list, body=LISTING, response=JobsResponse)
        get = Operation(self.list, query=QUERY, response=JobsResponse)
        return [
            Route(SERVICES + "jobs.list", {"POST": post, "GET": get}),
            write_route("jobs.retry", self.retry, JobRequest),
            write_route("jobs.cancel", self.cancel, JobRequest),
            write_route("jobs.retryMatching", self.retry_many, matching, response=many),
            write_route("jobs.cancelMatching", self.cancel_many, matching, response=many),
        ]

    async def list(self, exchange: Exchange) -> Response:
        """List jobs of apps and mails, the newest first, at most 500."""
        body = exchange.body
        request = body if isinstance(body, ListJobsRequest) else _from_query(exchange.query)
        jobs = await self._read(
            exchange,
            lambda fw: self._gateway.jobs.listed(
                fw, _filter(request), request.limit, request.before
            ),
        )
        return json_response(JobsResponse([_details(job) for job in jobs]))

    async def retry(self, exchange: Exchange) -> Response:
        """Make a failed or scheduled job due now."""
        return await self._act(exchange, self._gateway.jobs.retry)

    async def cancel(self, exchange: Exchange) -> Response:
        """Delete a job; a mail is recorded as failed."""
        return await self._act(exchange, self._gateway.jobs.cancel)

    async def retry_many(self, exchange: Exchange) -> Response:
        """Retry up to 500 matching jobs; repeat with `before` as `next` until that is null."""
        return await self._act_on_many(exchange, self._gateway.jobs.retry_matching)

    async def cancel_many(self, exchange: Exchange) -> Response:
        """Cancel up to 500 matching jobs; repeat with `before` as `next` until that is null."""
        return await self._act_on_many(exchange, self._gateway.jobs.cancel_matching)

    async def _act(self, exchange: Exchange, action: Callable[[Fw, int], JobFacts]) -> Response:
        number = exchange.body.job
        await self._write(exchange, lambda fw: action(fw, number))
        return json_response({"ok": True})

    async def _act_on_many(
        self, exchange: Exchange, action: Callable[[Fw, JobFilter, int | None], ChangedJobs]
    ) -> Response:
        body: MatchingJobsRequest = exchange.body
        filters = JobFilter(body.queue, body.state, body.function, body.user)
        if exchange.user_agent == SENDS_EMPTY_FILTERS:
            filters = _filter(body)
        before = body.before
        changed = await self._write(exchange, lambda fw: action(fw, filters, before))
        return json_response(ChangedJobsResponse(*changed))


def _from_query(query: Mapping[str, str]) -> ListJobsRequest:
    texts = {name: query.get(name, "") for name in ("queue", "state", "function", "user")}
    limit = whole_number(query, "limit")
    return ListJobsRequest(
        **texts, limit=JOBS_LISTED if limit is None else limit, before=whole_number(query, "before")
    )


def _filter(body: ListJobsRequest | MatchingJobsRequest) -> JobFilter:
    """Return a filter in which an empty text matches all."""
    return JobFilter(
        body.queue or None, body.state or None, body.function or None, body.user or None
    )


def _details(job: JobFacts) -> JobDetails:
    return JobDetails(
        id=job.id,
        queue=job.queue,
        state=job.state.value,
        function=job.function,
        subject=job.subject or None,
        user=job.user or None,
        attempts=job.attempts,
        due=time_or_null(job.due),
        created=iso(job.created),
        error=job.error or None,
    )
