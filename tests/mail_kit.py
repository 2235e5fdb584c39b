"""A site in virtual time that mails: the real store and Mailer, a transport in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from fw_actors.access.links import Links
from fw_actors.access.recovery import Invitation, LinkMail, LinkUse, Recovery, RecoveryThrottle
from fw_actors.actors.app_jobs import AppJobs
from fw_actors.actors.mailer import Mailer
from fw_actors.actors.queue_worker import Drain, WakeUp
from fw_actors.mail import LogTransport, MailMessage
from fw_actors.ops.mail_queue import MailComposer
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import Backoff
from fw_actors.runtime import Runtime, open_runtime
from supervisors import actor_child, open_supervisor
from tests.accounts_kit import SiteWithAccounts
from tests.site_kit import inline_site

URL = "https://desk.example"
OTHER = "another decent passphrase"
ADDRESS = "203.0.113.9"


@dataclass
class RecordingTransport:
    """A transport that records its messages. The first sends end as `outcomes` say: an exception
    is raised, a number is how many seconds the send takes. All others succeed."""

    outcomes: list[Exception | float] = field(default_factory=list)
    taken: list[tuple[float, MailMessage]] = field(default_factory=list)
    sending: int = 0
    peak: int = 0
    changed: trio.Event = field(default_factory=trio.Event)

    async def send(self, message: MailMessage) -> None:
        self.sending += 1
        self.peak = max(self.peak, self.sending)
        try:
            outcome = self.outcomes.pop(0) if self.outcomes else 0.0
            if isinstance(outcome, Exception):
                await trio.lowlevel.checkpoint()
                self._take(message)
                raise outcome
            await trio.sleep(outcome)
        finally:
            self.sending -= 1
        self._take(message)

    def _take(self, message: MailMessage) -> None:
        self.taken.append((trio.current_time(), message))
        self.changed.set()
        self.changed = trio.Event()

    async def wait(self, count: int) -> None:
        """Return once `count` messages were taken."""
        while len(self.taken) < count:
            await self.changed.wait()

    async def next_link(self, before: int, template: str = "recovery") -> str:
        """Return the link after the first `before` ones, once its message was taken."""
        while len(self.links(template)) <= before:
            await self.changed.wait()
        return self.links(template)[before]

    def links(self, template: str = "recovery") -> list[str]:
        """The links of the messages that were taken, in order."""
        return [str(m.link) for _, m in self.taken if m.template == template]

    @property
    def times(self) -> list[int]:
        """When messages came, in whole seconds of the clock."""
        return [round(at) for at, _ in self.taken]


@dataclass
class RecordingLog:
    """Remembers events."""

    entries: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    changed: trio.Event = field(default_factory=trio.Event)

    def info(self, event: str, **fields: object) -> None:
        self.entries.append((event, fields))
        self.changed.set()
        self.changed = trio.Event()

    debug = warning = error = info

    def of(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.entries if name == event]

    async def wait(self, event: str, count: int) -> None:
        """Return once there are so many of an event."""
        while len(self.of(event)) < count:
            await self.changed.wait()


@dataclass
class MailSite(SiteWithAccounts):
    """Everything that a test of links and mail asks for."""

    runtime: Runtime
    transport: RecordingTransport
    log: RecordingLog
    links: Links
    recovery: Recovery
    invitation: Invitation
    link_mail: LinkMail
    by_log: LinkMail

    async def deliveries(self) -> list[dict[str, Any]]:
        """All Email Deliveries, oldest first."""
        return await self.rows("SELECT * FROM doc_email_delivery ORDER BY creation, name")

    async def jobs(self) -> list[dict[str, Any]]:
        """All jobs, oldest first."""
        return await self.rows("SELECT * FROM fw_job ORDER BY id")

    async def recover(self, usr: str, address: str = ADDRESS) -> str:
        """Ask for a recovery and wait for the mail; its token."""
        before = len(self.transport.links())
        await self.recovery.request_link(usr, address)
        return token_of(await self.transport.next_link(before))

    def drain(self, seconds: float) -> None:
        """Ask the Mailer and the runner of app jobs to come to an end."""
        for name in ("mailer", "app_jobs"):
            self.runtime.ref(name).tell(Drain(seconds))


def token_of(link: str) -> str:
    """Return what stands behind `#token=`."""
    return link.partition("#token=")[2]


@asynccontextmanager
async def mail_site(
    folder: Path, transport: RecordingTransport | None = None, *, seed: int = 1, **changes: Any
) -> AsyncIterator[MailSite]:
    """Run a site's mail; `changes` as for `make_config`."""
    nudges: list[Callable[[], object]] = []

    def recorded(queue: str) -> None:
        for nudge in nudges:
            nudge()

    async with inline_site(folder, seed, recorded, **changes) as site:
        log = RecordingLog()
        async with open_runtime(clock=site.clock, entropy=site.entropy, log=log) as runtime:
            made = _made(site, runtime, transport or RecordingTransport(), log)
            backoff = Backoff(site.config.ops.backoff_seconds, site.config.ops.backoff_cap_seconds)
            composer = MailComposer(made.links, site.config.site.name)
            children = [
                actor_child(
                    "mailer",
                    lambda: Mailer(
                        site.store,
                        composer,
                        made.transport,
                        backoff,
                        site.config.scrubber,
                        tracer=site.tracer,
                    ),
                ),
                actor_child(
                    "app_jobs",
                    lambda: AppJobs(
                        site.store,
                        site.handle,
                        backoff,
                        site.errors.note,
                        site.config.scrubber,
                        tracer=site.tracer,
                    ),
                ),
            ]
            async with open_supervisor(runtime, "mailing", children):
                refs = [runtime.ref(name) for name in ("mailer", "app_jobs")]
                nudges += [partial(ref.tell, WakeUp()) for ref in refs]
                yield made
                nudges.clear()


def _made(
    site: Site, runtime: Runtime, transport: RecordingTransport, log: RecordingLog
) -> MailSite:
    links = Links(site.config.auth, site.entropy, URL)
    throttle = RecoveryThrottle(site.config.auth, site.entropy, site.installation_key)
    use = LinkUse(site.store, site.hasher, links, site.passwords, throttle, site.audit, site.handle)
    return MailSite(
        site,
        runtime,
        transport,
        log,
        links,
        Recovery(site.store, site.mail_queue, throttle, use, site.installation_key),
        Invitation(use, site.handle),
        LinkMail(links, site.mail_queue, None),
        LinkMail(links, site.mail_queue, LogTransport(log)),
    )
