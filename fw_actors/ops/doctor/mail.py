"""Doctor section on mail: the transport, its availability, and failed messages."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
import trio

from fw_actors.config import Config, Mail
from fw_actors.errors import ConfigurationError
from fw_actors.mail import MailFault, load_method, probe
from fw_actors.ops.doctor.system import is_local
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.rules.findings import Finding, Section, ok, problem, warning
from fw_actors.runtime.clock import MS_PER_DAY

PROBE_SECONDS: Final = 10.0
_DEFAULT_SENDER: Final = "fw@localhost"
_LINK_LEVELS: Final = frozenset({"debug", "info"})  # the log levels that include `mail.sent`


@dataclass(frozen=True)
class MailFacts:
    """`fault` is the reason why the transport is unusable, empty if it works."""

    fault: str
    failed: int  # in the last 24 hours


async def mail_facts(site: Site) -> MailFacts:
    """Test the transport without sending a message, and count failed messages."""
    deliveries = site.registry.tables["Email Delivery"].table.c
    failed = await site.store.read(
        lambda tx: tx.scalar(
            sa.select(sa.func.count()).where(
                deliveries.status == DeliveryStatus.FAILED.value,
                deliveries.modified > tx.now - MS_PER_DAY,
            )
        )
    )
    return MailFacts(await _fault(site.config), failed)


def evaluate_mail(mail: Mail, facts: MailFacts, public_host: str | None) -> Section:
    """Evaluate the transport (O-133, O-134). `public_host` is the host of FW_PUBLIC_URL."""
    findings = (
        *_transport(mail, facts.fault, public_host),
        *_security(mail, usable=not facts.fault),
        _failed(facts),
    )
    return Section(
        "mail", "Mail", findings, {"transport": mail.transport, "failed24h": facts.failed}
    )


def _transport(mail: Mail, fault: str, public_host: str | None) -> Iterator[Finding]:
    if mail.transport == "log":
        live = "the mail transport is log: messages and their links go to the log"
        if fault:
            yield warning(f"{live}, but {fault}", "Set FW_LOG_LEVEL to info.")
        elif public_host is None or is_local(public_host):
            yield ok(live)
        else:
            yield warning(f"{live}, not to any mailbox", "Set FW_MAIL_TRANSPORT=smtp.")
        return
    name = mail.method if mail.transport == "method" else f"{mail.host}:{mail.port}"
    live = f"the mail transport is {mail.transport} ({name})"
    if fault and mail.transport == "smtp":
        yield problem(f"{live} and cannot be used: {fault}", "Check the variables FW_SMTP_*.")
    elif fault:
        yield problem(f"{live} and cannot be used: {fault}", "Check FW_MAIL_METHOD.")
    elif mail.transport == "smtp":
        signed_in = " and signing in" if mail.user and mail.password else ""
        yield ok(f"{live}; connecting{signed_in} succeeded")
    else:
        yield ok(live)
    if mail.sender == _DEFAULT_SENDER:
        yield warning(f"mail comes from {_DEFAULT_SENDER}", "Set FW_MAIL_FROM.")


def _security(mail: Mail, *, usable: bool) -> Iterator[Finding]:
    """`usable`: connecting and signing in succeeded, so a password went only to loopback."""
    if mail.transport != "smtp" or mail.security != "none" or is_local(mail.host):
        return
    if mail.user and mail.password:
        if usable:
            return
        yield warning(
            "FW_SMTP_SECURITY is none: the password is never sent in clear text to another "
            "machine, so no mail can be sent",
            "Set FW_SMTP_SECURITY to starttls or tls.",
        )
    else:
        yield warning(
            f"FW_SMTP_SECURITY is none: links travel to {mail.host} in clear text",
            "Set FW_SMTP_SECURITY to starttls or tls.",
        )


def _failed(facts: MailFacts) -> Finding:
    if facts.failed:
        return warning(
            f"messages that failed in the last 24 hours: {facts.failed}",
            "Email Delivery shows the reasons in its field error.",
        )
    return ok("no message failed in the last 24 hours")


async def _fault(config: Config) -> str:
    """Return the reason why the transport is unusable, or an empty text."""
    mail = config.mail
    if mail.transport == "log" and config.deployment.log_level not in _LINK_LEVELS:
        return f"FW_LOG_LEVEL={config.deployment.log_level} suppresses them"
    if mail.transport == "method" and mail.method is not None:
        try:
            load_method(mail.method)
        except ConfigurationError as error:
            return " ".join(error.problems)
    if mail.transport == "smtp":
        with trio.move_on_after(PROBE_SECONDS) as trying:
            try:
                await probe(mail, ssl.create_default_context())
            except MailFault as error:
                return str(error)
        if trying.cancelled_caught:
            return f"timeout: the mail server did not answer within {PROBE_SECONDS:g} s."
    return ""
