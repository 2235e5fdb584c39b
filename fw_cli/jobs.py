"""`fw jobs`: the jobs in the queues: counts, and lists, retries and cancels of apps' and mails'."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fw_actors.rules import JOBS_LISTED, MAX_JOBS_LISTED
from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.lazy import FullHelpGroup
from fw_cli.output import as_json, counted, say, show, show_json
from fw_cli.values import USER, UTF8, AnyCase, WholeNumber, suggestion, user_on_record

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.queued_jobs import ChangedJobs, JobFacts, JobFilter
    from fw_actors.ops.site import Site
    from fw_actors.store.jobs import QueueStats

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS: Final = {
    "queue": "Queue",
    "ready": "Ready",
    "scheduled": "Scheduled",
    "leased": "Leased",
    "failed": "Failed",
    "oldestSeconds": "Oldest (s)",
}
_JOB_COLUMNS: Final = {
    "id": "Job",
    "queue": "Queue",
    "state": "State",
    "function": "Function",
    "user": "User",
    "attempts": "Attempts",
    "due": "Due",
    "created": "Created",
    "error": "Error",
}
_QUEUES: Final = ("app", "mail")
_STATES: Final = ("ready", "scheduled", "leased", "failed")
_NUMBER: Final = WholeNumber(1, 2**63 - 1)  # of a job, as stored


@click.group(cls=FullHelpGroup)
def jobs() -> None:
    """Jobs: counts; list, retry and cancel jobs of apps and mails."""


@jobs.command()
@as_json
@click.pass_obj
def stats(context: CommandContext, as_json: bool) -> None:
    """Count the jobs of each queue: webhook, mail, and app for fw.enqueue.

    Ready jobs are due, scheduled ones wait for their next attempt, leased ones are in progress,
    failed ones are kept without further attempts. Oldest is the wait of the oldest ready job.
    """

    async def read(site: Site) -> list[QueueStats]:
        from fw_actors.ops.console_facts import queues

        return await site.store.read(queues)

    # The keys of `_COLUMNS` are in the order of the fields.
    rows = [dict(zip(_COLUMNS, counted, strict=True)) for counted in context.on_site(read)]
    show(rows, _COLUMNS, json=as_json)


def _filters(command: F) -> F:
    """Add the options that select jobs."""
    options = (
        click.option("--queue", type=AnyCase(_QUEUES), help="Only jobs of this queue."),
        click.option("--state", type=AnyCase(_STATES), help="Only jobs in this state."),
        click.option(
            "--function", type=UTF8, help="Only jobs of this function, or mails of this template."
        ),
        click.option("--user", type=USER, help="Only jobs of this user."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _job_filter(context: CommandContext, options: dict[str, str | None]) -> JobFilter:
    """Return the options as a filter.

    A user is found by name or e-mail. Raises: CommandFailed for a user or a function that neither
    exists nor has jobs.
    """
    from fw_actors.ops.queued_jobs import JobFilter

    for name, value in options.items():
        if value == "":  # of an unset variable of a script; as a filter it would select all jobs
            raise CommandFailed(f"--{name} must not be empty")
    filters = JobFilter(**{name: value for name, value in options.items() if value is not None})
    if not filters.user and not filters.function:
        return filters
    return context.on_site(partial(_on_record, filters))


async def _on_record(filters: JobFilter, site: Site) -> JobFilter:
    import msgspec

    from fw_actors.ops.queued_jobs import JobFilter

    def has_jobs(fw: Fw, of: JobFilter) -> bool:
        return bool(site.jobs.listed(fw, of, 1))

    def user(name: str, fw: Fw) -> str:  # a deleted user may have jobs
        return user_on_record(site, fw, name, on_record=has_jobs(fw, JobFilter(user=name)))

    if filters.user:
        name = await site.read(ADMINISTRATOR, partial(user, filters.user))
        filters = msgspec.structs.replace(filters, user=name)
    if filters.function:
        of_function = JobFilter(function=filters.function)
        if not await site.read(ADMINISTRATOR, lambda fw: has_jobs(fw, of_function)):
            await _require_function(site, filters.function)
    return filters


async def _require_function(site: Site, name: str) -> None:
    """Check that an app has a function, or mails a template. Raises: CommandFailed."""
    from fw_actors.mail import Template
    from fw_actors.ops.queued_jobs import app_functions, is_app_function

    apps = site.config.apps
    if name in list(Template) or is_app_function(apps, name):
        return
    queued = await site.read(ADMINISTRATOR, site.jobs.functions)
    near = suggestion(name, [*Template, *queued, *app_functions(apps)])
    raise CommandFailed(f"There is no function or mail template {name[:140]}.{near}")


@jobs.command("list", epilog=examples("fw jobs list --state failed", "fw jobs list --queue mail"))
@_filters
@click.option(
    "--limit", type=WholeNumber(1, MAX_JOBS_LISTED), default=JOBS_LISTED, show_default=True,
    help="The maximum number of jobs.",
)  # fmt: skip
@as_json
@click.pass_obj
def list_jobs(context: CommandContext, /, limit: int, as_json: bool, **options: str | None) -> None:
    """List the jobs of apps and mails, the newest first.

    Deliveries are listed by fw webhooks list. The values of arguments are not shown.
    """
    filters = _job_filter(context, options)
    listed = context.read(lambda site, fw: site.jobs.listed(fw, filters, limit))
    show([_row(job) for job in listed], _JOB_COLUMNS, json=as_json)


def _row(job: JobFacts) -> dict[str, Any]:
    import msgspec

    from fw_actors.documents.fields import iso

    row: dict[str, Any] = msgspec.to_builtins(job)
    due = None if job.due is None else iso(job.due)
    return {**row, "due": due, "created": iso(job.created), "error": job.error or None}


@jobs.command(epilog=examples("fw jobs retry 4711", "fw jobs retry --queue mail --state failed"))
@click.argument("job", type=_NUMBER, required=False)
@_filters
@as_json
@click.pass_obj
def retry(
    context: CommandContext, /, job: int | None, as_json: bool, **options: str | None
) -> None:
    """Make JOB due now, or all that the options select; failed ones get all attempts again.

    Jobs that are due or in progress are left as they are.
    """
    _one_or_many(job, options)
    if job is not None:
        context.write(lambda site, fw: site.jobs.retry(fw, job))
        _show_result({"retried": 1}, f"retried job {job}", as_json=as_json)
        return
    filters = _job_filter(context, options)
    done = _repeated(
        context, lambda site, fw, before: site.jobs.retry_matching(fw, filters, before)
    )
    _show_result({"retried": done}, f"retried {counted(done, 'job')}", as_json=as_json)


@jobs.command(epilog=examples("fw jobs cancel 4711", "fw jobs cancel --function shop.sync --yes"))
@click.argument("job", type=_NUMBER, required=False)
@_filters
@yes_option
@as_json
@click.pass_obj
def cancel(
    context: CommandContext, /, job: int | None, yes: bool, as_json: bool, **options: str | None
) -> None:
    """Delete JOB, or all that the options select; a mail is then recorded as failed.

    Jobs in progress are left as they are.
    """
    _one_or_many(job, options)
    if job is not None:
        facts = context.read(lambda site, fw: site.jobs.job(fw, job))
        confirm(f"Cancel job {job}, {facts.function} of {facts.user}?", yes=yes)
        context.write(lambda site, fw: site.jobs.cancel(fw, job))
        _show_result({"cancelled": 1}, f"cancelled job {job}", as_json=as_json)
        return
    filters = _job_filter(context, options)
    confirm("Cancel all jobs that the options select?", yes=yes)
    done = _repeated(
        context, lambda site, fw, before: site.jobs.cancel_matching(fw, filters, before)
    )
    _show_result({"cancelled": done}, f"cancelled {counted(done, 'job')}", as_json=as_json)


def _one_or_many(job: int | None, options: dict[str, str | None]) -> None:
    if (job is None) == all(value is None for value in options.values()):
        raise click.UsageError("Give one JOB, or select many with the options.")


def _repeated(context: CommandContext, act: Callable[[Site, Fw, int | None], ChangedJobs]) -> int:
    """Act once on each matching job, in transactions of 500 jobs each; return their number."""

    async def use(site: Site) -> int:
        total, before = 0, None

        def once(fw: Fw) -> ChangedJobs:
            return act(site, fw, before)

        while True:
            done, before = await site.write(ADMINISTRATOR, once)
            total += done
            if before is None:
                return total

    return context.on_site(use)


def _show_result(result: dict[str, int], sentence: str, *, as_json: bool) -> None:
    if as_json:
        show_json(result)
    else:
        say(sentence)
