"""The children that work on the queues `mail` and `app`, and the transport that carries mail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fw_actors.actors.app_jobs import AppJobs
from fw_actors.actors.mailer import Mailer
from fw_actors.documents.handle import Fw
from fw_actors.documents.permissions import ADMINISTRATOR
from fw_actors.mail import LogTransport, MethodTransport, SmtpTransport, Transport, load_method
from fw_actors.rules.delivery_outcome import Backoff
from fw_actors.services.letters import Letters
from fw_actors.services.links import Links
from supervisors.children import ChildSpec, actor_child
from supervisors.service.parts import GIVE_BACK_SECONDS, Parts
from supervisors.service.signals import DRAIN_SECONDS

MAILER: Final = "mailer"
APP_JOBS: Final = "app_jobs"
_SHUTDOWN_SECONDS: Final = DRAIN_SECONDS + GIVE_BACK_SECONDS


def mailing(parts: Parts) -> Sequence[ChildSpec]:
    """Return the Mailer and the runner of app jobs. Raises: ConfigurationError."""
    site, config = parts.site, parts.site.config
    backoff = Backoff(config.ops.backoff_seconds, config.ops.backoff_cap_seconds)
    links = Links(site.registry, config.auth, site.entropy, parts.url)
    letters = Letters(site.registry, links, config.site.name)
    transport = parts.transport or transport_of(parts)
    return (
        actor_child(
            MAILER,
            lambda: Mailer(site.store, letters, transport, backoff, config.scrubber),
            shutdown_seconds=_SHUTDOWN_SECONDS,
        ),
        actor_child(
            APP_JOBS,
            lambda: AppJobs(site.store, site.handle, backoff, site.errors.note, config.scrubber),
            shutdown_seconds=_SHUTDOWN_SECONDS,
        ),
    )


def transport_of(parts: Parts) -> Transport:
    """Return the transport that the deployment asks for. Raises: ConfigurationError."""
    mail = parts.site.config.mail
    if mail.transport == "smtp":
        return SmtpTransport(mail, parts.site.clock, parts.site.entropy)
    if mail.transport == "method" and mail.method is not None:

        async def run(fn: Callable[[Fw], None]) -> None:
            await parts.slow_reads.read(lambda tx: fn(parts.site.handle(tx, ADMINISTRATOR)))

        return MethodTransport(mail.method, load_method(mail.method), run)
    return LogTransport(parts.log)
