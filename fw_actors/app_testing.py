"""A plugin for pytest, beside pytest-trio, with which apps are tested. It must be named:

    pytest_plugins = ["fw_actors.app_testing"]        # in the first conftest.py

Its fixture `app_site` is a new site with the apps of `fw.json`, for one test, in virtual time: a
clock that jumps when all tasks wait. No service runs and nothing is sent; the effects of the
app are recorded in a store of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import trio

from fw_actors.access.users import add_user
from fw_actors.actors.queue_worker import JobFailed, transition_after_failure
from fw_actors.config import load
from fw_actors.config.model import SITE_KEY_VARIABLES
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.errors import FwError, ValidationError, refuse_coroutine
from fw_actors.ops import queued_jobs
from fw_actors.ops.site import Site, open_site
from fw_actors.rules.delivery import Backoff
from fw_actors.rules.safe_output import storable, text_of
from fw_actors.rules.signing import (
    DOCUMENT_EVENTS,
    UnusableEventNameError,
    validate_event_name,
)
from fw_actors.runtime import SeededEntropy, TrioClock
from fw_actors.runtime.clock import MS_PER_SECOND
from fw_actors.runtime.pytest_plugin import run_in_virtual_time
from fw_actors.runtime.testing import START_MS
from fw_actors.store import LeasedJob, Tx, jobs

T = TypeVar("T")

_CONFIG: Final = "fw_config"
_SECRETS: Final = "FW_SECRET_"
_LEASE_MS: Final = 60_000
_TOKEN: Final = "a test"
_RECEIVER: Final = "https://receiver.example.test/"
_DELIVERY: Final = "Webhook Delivery"


class AppSite:
    """A site for one test of an app, with helpers for its events and jobs."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def write(self, function: Callable[[Fw], T], user: str = ADMINISTRATOR) -> T:
        """Call `function` with `fw` as `user` in a transaction, and commit it.

        Raises: the errors of the function; nothing is written then.
        """
        value = await self.site.write(user, function)
        await self._write_error_logs()  # of the hooks `after_commit`
        return value

    async def read(self, function: Callable[[Fw], T], user: str = ADMINISTRATOR) -> T:
        """Call `function` with `fw` as `user`; it can only read."""
        return await self.site.read(user, function)

    async def add_user(self, name: str, *roles: str) -> None:
        """Make an account with these roles. Raises: ValidationError for an unknown role."""
        address = f"{name}@example.test"
        await self.write(lambda fw: add_user(fw, name, address, roles=roles))

    async def watch(self, what: str) -> None:
        """Make a Webhook for all events of a DocType, or for the custom event of this name.

        `events` returns what is recorded for it from now on.
        Raises: ValidationError if `what` is neither, or a DocType that no Webhook may watch.
        """
        if what in self.site.registry.metas:
            settings: dict[str, Any] = dict.fromkeys(DOCUMENT_EVENTS, 1)
            settings |= {"event_type": "Document", "webhook_doctype": what}
        else:
            try:
                validate_event_name(what)
            except UnusableEventNameError as error:
                problem = f"The site has no DocType {what}, and no event of this name: {error}"
                raise ValidationError(problem) from None
            settings = {"event_type": "Custom", "custom_event": what}
        webhook = {"url": _RECEIVER, "secret": "a secret of the tests", **settings}
        await self.write(lambda fw: fw.new_doc("Webhook", **webhook).insert())

    async def events(self) -> list[dict[str, Any]]:
        """Return the bodies that would be sent, oldest first: `type`, `timestamp` and `data`."""
        rows = await self.read(
            lambda fw: fw.get_all(_DELIVERY, fields=["payload"], order_by="creation, name")
        )
        return [json.loads(row["payload"]) for row in rows]

    async def run_jobs(self) -> int:
        """Run the jobs that `fw.enqueue` has recorded, and those that they record in turn.

        Returns: the number of jobs.
        Raises: the errors of a job, which is then not done, and is due again after the wait that
            the service would make.
        """
        done = 0
        while leased := await self.site.store.write(_lease_one):
            job = leased[0]
            try:
                await self.site.store.write(partial(self._run, job))
            except (Exception, SystemExit) as error:
                await self._fail(job, error)
                raise
            done += 1
        return done

    def _run(self, job: LeasedJob, tx: Tx) -> None:
        user = jobs.finish_as(tx, job.id, job.lease)
        handle = self.site.handle(tx, user or job.user, _request_id(job))
        function = queued_jobs.function_of(job)
        refuse_coroutine(job.function, function(handle, **queued_jobs.arguments_of(job)))

    async def _fail(self, job: LeasedJob, error: BaseException) -> None:
        """Record a failed attempt and its Error Log, as the service does."""
        text = storable(f"{type(error).__name__}: {text_of(error)}")[: jobs.ERROR_CHARACTERS]
        ops = self.site.config.ops
        backoff = Backoff(ops.backoff_seconds, ops.backoff_cap_seconds)

        def record(tx: Tx) -> None:
            due = transition_after_failure(JobFailed(text), job, tx.now, backoff).next_attempt
            if due is None:
                jobs.fail(tx, job.id, job.lease, text)
            else:
                jobs.retry(tx, job.id, job.lease, due, text)

        await self.site.store.write(record)
        if not isinstance(error, FwError):
            self.site.errors.note(job.function, error, _request_id(job))
            await self._write_error_logs()

    async def _write_error_logs(self) -> None:
        if self.site.errors.waits:
            await self.site.store.write(self.site.errors.flush)


def _secrets() -> dict[str, str]:
    """Return the variables that `fw.secret` reads, from the environment of pytest."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_SECRETS) and name not in SITE_KEY_VARIABLES
    }


def _request_id(job: LeasedJob) -> str:
    return f"job-{job.id}"


def _lease_one(tx: Tx) -> list[LeasedJob]:
    return jobs.claim(tx, queued_jobs.APP_QUEUE, "", 1, _LEASE_MS, _TOKEN)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting `fw_config`."""
    parser.addini(
        _CONFIG, "The fw.json whose apps are tested, from pytest's rootdir.", default="fw.json"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests with an `app_site` in virtual time."""
    for item in items:
        if "app_site" in getattr(item, "fixturenames", ()):
            run_in_virtual_time(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a plain test function with an `app_site`, before pytest fails in all tests after it."""
    takes_site = "app_site" in getattr(item, "fixturenames", ())
    if takes_site and not iscoroutinefunction(getattr(item, "obj", None)):
        pytest.fail("a test with app_site must be an async function: async def", pytrace=False)


@pytest.fixture
async def app_site(tmp_path: Path, pytestconfig: pytest.Config) -> AsyncIterator[AppSite]:
    """A new site with the apps of `fw.json`."""
    environ = {
        **_secrets(),
        "FW_CONFIG": str(pytestconfig.rootpath / pytestconfig.getini(_CONFIG)),
        "FW_DATABASE": f"sqlite:///{tmp_path}/fw.db",
        "FW_SECRET_KEY": "a key of the tests, forty characters long",
        "FW_ARGON2": "8,1,1",
        "FW_MAIL_TRANSPORT": "log",
    }
    config = load(environ, pytestconfig.rootpath)
    clock = TrioClock(START_MS + round(trio.current_time() * MS_PER_SECOND))
    opening = open_site(config, clock=clock, entropy=SeededEntropy(1), inline=True, durable=False)
    async with opening as site:
        yield AppSite(site)
