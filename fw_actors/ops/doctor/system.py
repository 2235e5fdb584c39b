"""Doctor sections on the clock, the database, the front end, and mail."""

from __future__ import annotations

import inspect
import shutil
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import sqlalchemy as sa
import trio

from fw_actors.config import Config, Deployment, Mail
from fw_actors.config.load import DEFAULT_SENDER
from fw_actors.documents.core import EmailDelivery, WebhookDelivery
from fw_actors.documents.tables import table_of
from fw_actors.errors import ConfigurationError
from fw_actors.mail import MailFault, load_method, probe
from fw_actors.ops.data_migrations import PendingMigration, pending
from fw_actors.ops.queued_jobs import app_functions
from fw_actors.ops.site import Site
from fw_actors.rules.delivery import DeliveryStatus
from fw_actors.rules.findings import Finding, Section, ok, problem, warning
from fw_actors.rules.receivers import FAILURES
from fw_actors.rules.safe_output import is_app_file
from fw_actors.runtime.clock import MS_PER_DAY, MS_PER_SECOND
from fw_actors.store import Tx
from fw_actors.store.backup import check_integrity
from fw_actors.store.schema import JOB, SESSION

TOLERATED_MS: Final = 5_000
_MIN_CLOCK_MS: Final = 1_735_689_600_000  # 2025: older than this program
_TIMES: Final = (SESSION.c.created, JOB.c.created, table_of(WebhookDelivery).table.c.creation)


@dataclass(frozen=True)
class ClockFacts:
    """Times in ms since the epoch; `latest` is the newest time of any row, 0 without one."""

    now: int
    latest: int


async def clock_facts(site: Site) -> ClockFacts:
    """Query the newest times in the store."""

    def read(tx: Tx) -> ClockFacts:
        newest = [tx.scalar(sa.select(sa.func.max(time))) for time in _TIMES]
        return ClockFacts(tx.now, max(time or 0 for time in newest))

    return await site.store.read(read)


def evaluate_clock(facts: ClockFacts) -> Section:
    """Evaluate the clock."""
    ahead = facts.latest - facts.now
    if facts.now < _MIN_CLOCK_MS:
        finding = problem("the clock is years behind", "Set the clock (timedatectl).")
    elif ahead > TOLERATED_MS:
        finding = warning(
            f"the newest row is {ahead / MS_PER_SECOND:.0f} s in the future: the clock was set "
            "back, or another machine's clock is ahead",
            "Synchronise the clocks of all machines of the site (timedatectl status). If they "
            "agree, a clock was ahead when the row was stored: the warning ends at that time.",
        )
    else:
        finding = ok(f"no row is more than {TOLERATED_MS // MS_PER_SECOND} s in the future")
    return Section("clock", "Clock", (finding,), {"now": facts.now, "newestRow": facts.latest})


@dataclass(frozen=True)
class AppFacts:
    """The data migrations that have not run, and the apps that declare and define nothing."""

    pending: Sequence[PendingMigration]
    empty: Sequence[str] = ()


async def app_facts(site: Site) -> AppFacts:
    """Query the data migrations of the site's apps, and what the apps declare."""
    registry = site.registry
    used = {
        *(meta.module for meta in registry.metas.values()),
        *(function.module for function in registry.functions.values()),
        *(each.module for steps in registry.migrations.values() for each in steps),
    }
    empty = [
        app
        for app in site.config.apps
        if not any(f"{module}.".startswith(f"{app}.") for module in used)
        and not any(map(_may_take_fw, app_functions([app])))  # jobs, or functions of mails
    ]
    return AppFacts(await site.store.read(lambda tx: pending(tx, registry)), empty)


def _may_take_fw(path: str) -> bool:
    """Return whether a function of an app may be a job or the function of mails.

    In an installed module it must name its first parameter `fw`, because every library has other
    functions.
    """
    module, _, name = path.rpartition(".")
    home = sys.modules[module]
    if is_app_file(getattr(home, "__file__", None) or ""):
        return True
    try:
        parameters = inspect.signature(getattr(home, name)).parameters
    except (TypeError, ValueError):
        return False
    return next(iter(parameters), "") == "fw"


def evaluate_apps(facts: AppFacts) -> Section:
    """Evaluate the apps and their data migrations."""
    findings = [
        warning(
            f"the app {app} declares nothing: no DocType, function or data migration",
            f"Import its modules in the file that {app} names, or remove it from apps in fw.json.",
        )
        for app in facts.empty
    ]
    findings += [
        warning(
            f"the data migration {each} " + ("has begun" if each.begun else "has not run"),
            "Make a backup, and run fw migrate.",
        )
        for each in facts.pending
    ]
    if not facts.pending:
        findings.append(ok("no data migration is pending"))
    names = [str(each) for each in facts.pending]
    return Section("apps", "Apps", tuple(findings), {"pending": names})


_MIB: Final = 1 << 20
LOW_DISK_BYTES: Final = 1 << 30
MIN_DISK_BYTES: Final = 100 * _MIB


@dataclass(frozen=True)
class DatabaseFacts:
    """`free_disk` is None for a database server; `checked` describes how it was checked.

    `connections` are those that the processes of the service may open, and `allowed` those that the
    server allows its account; 0 for SQLite.
    """

    kind: str
    place: str
    size: int  # bytes
    checked: str
    faults: tuple[str, ...] = ()
    free_disk: int | None = None  # bytes
    connections: int = 0
    allowed: int = 0


async def database_facts(site: Site) -> DatabaseFacts:
    """Check the database file, or query the server."""
    path = site.config.sqlite_file
    if path is None:
        from fw_actors.store.postgres import CONNECTIONS  # its library may not be installed

        facts = await site.store.read(_read_postgresql)
        return replace(facts, connections=CONNECTIONS * site.config.processes)
    integrity = await trio.to_thread.run_sync(check_integrity, path)
    return DatabaseFacts(
        kind="sqlite",
        place=str(path),
        size=integrity.size,
        checked="completely" if integrity.thorough else "except its indexes, because it is large",
        faults=integrity.faults,
        free_disk=shutil.disk_usage(path.parent).free,
    )


def evaluate_database(facts: DatabaseFacts) -> Section:
    """Evaluate the database."""
    shown = {
        "kind": facts.kind,
        "sizeBytes": facts.size,
        "freeDiskBytes": facts.free_disk,
        "intact": not facts.faults,
    }
    return Section("database", "Database", tuple(_findings(facts)), shown)


def not_answering(reason: str, file: Path | None = None) -> Section:
    """Return the section of a database that is locked, full or silent; `reason` says why, and
    `file` is that of SQLite."""
    finding = problem(
        f"the database does not answer: {reason}",
        "Free its disk, end the process that locks it (the log names a slow hook or job of an "
        "app), put its files back, start its server, or let it accept the connection: until then "
        "the service answers 503.",
    )
    disk: tuple[Finding, ...] = ()
    if file is not None:
        with suppress(OSError):
            disk = (_disk_finding(shutil.disk_usage(file.parent).free, 0),)
    return Section("database", "Database", (finding, *disk))


def _findings(facts: DatabaseFacts) -> Iterator[Finding]:
    size = f"{facts.size / _MIB:.1f} MiB"
    if facts.faults:
        yield problem(
            f"{facts.kind} {facts.place} is damaged: {'; '.join(facts.faults)}",
            "Stop the service, copy the file as it is, and restore a backup.",
        )
    else:
        yield ok(f"{facts.kind} {facts.place}: {size}, checked {facts.checked}")
    if facts.free_disk is not None:
        yield _disk_finding(facts.free_disk, facts.size)
    if facts.connections > facts.allowed:
        yield warning(
            f"the service may open {facts.connections} connections to the database, which allows "
            f"{facts.allowed}: requests beyond them get 503",
            "Raise max_connections of the server, or the limit of the account or the database; "
            "workers and other nodes need connections, too.",
        )


def _disk_finding(free_bytes: int, size: int) -> Finding:
    free = f"the disk of the database has {free_bytes / _MIB:.0f} MiB left"
    if free_bytes < MIN_DISK_BYTES:
        return problem(free, "Free disk space: with a full disk, every write is refused (503).")
    if free_bytes < max(LOW_DISK_BYTES, size):
        return warning(free, "Free disk space: a backup needs as much space as the database.")
    return ok(free)


_POSTGRESQL: Final = sa.text(
    "SELECT current_database(), pg_database_size(current_database()), version(), least("
    # What is reserved for superusers, and since version 16 for members of a role.
    " current_setting('max_connections')::int"
    " - current_setting('superuser_reserved_connections')::int"
    " - coalesce(current_setting('reserved_connections', true), '0')::int,"
    # -1 is no limit.
    " (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()),"
    " (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user))"
)


def _read_postgresql(tx: Tx) -> DatabaseFacts:
    row = tx.one(_POSTGRESQL)
    assert row is not None
    name, size, version, allowed = row
    checked = f"by its server ({str(version).split(',')[0].split(' on ')[0]})"
    return DatabaseFacts("postgresql", str(name), int(size), checked, allowed=int(allowed))


HTTPS: Final = "https://"


def evaluate_front(config: Config) -> Section:
    """Evaluate the configuration that browsers and proxies depend on (O-135, O-137)."""
    findings = (
        *_public_url(config.deployment),
        _cookie(config.auth.secure_cookie, config.deployment.public_url),
        *_proxy(config.deployment),
    )
    facts = {
        "publicUrl": config.deployment.public_url,
        "bind": f"{config.deployment.bind_host}:{config.deployment.bind_port}",
        "mode": config.deployment.mode,
    }
    return Section("web", "Web", findings, facts)


def is_local(host: str | None) -> bool:
    """Return whether a host names this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def _public_url(deployment: Deployment) -> Iterator[Finding]:
    url = deployment.public_url
    if url is None:
        yield warning(
            "FW_PUBLIC_URL is not set: links in mails begin with the bound address",
            "Set FW_PUBLIC_URL to the address that users enter, such as https://fw.example.org.",
        )
    elif not url.startswith(HTTPS) and not is_local(urlsplit(url).hostname):
        yield warning(
            f"users reach the site at {url}: passwords and cookies are sent in clear text",
            "Put a TLS proxy in front of the site and use an https URL.",
        )
    else:
        yield ok(f"links begin with {url}")


def _cookie(secure: bool | None, url: str | None) -> Finding:
    https = url is not None and url.startswith(HTTPS)
    if secure is True and url is not None and not https:
        return problem(
            "auth.secureCookie is true but the site is not https: browsers do not send the cookie "
            "back, so that no session stays valid",
            "Set auth.secureCookie to null, or serve the site over https.",
        )
    if secure is False and https:
        return warning(
            "auth.secureCookie is false but the site is https: the cookie may be sent in clear "
            "text",
            "Set auth.secureCookie to null.",
        )
    if secure is None and not https:
        return ok("the cookie is Secure if the request arrived over TLS")
    return ok("the cookie is not Secure" if secure is False else "the cookie is Secure")


def _proxy(deployment: Deployment) -> Iterator[Finding]:
    trust = deployment.trust_proxy
    networks = ", ".join(map(str, trust.networks))
    open_to_all = not is_local(deployment.bind_host)
    if trust.every_peer and open_to_all:
        yield warning(
            f"FW_TRUST_PROXY is on and {deployment.bind_host} is reachable by others: clients that "
            "connect directly can claim any address in X-Forwarded-For",
            "Set the proxy's network instead, such as FW_TRUST_PROXY=10.0.0.0/8, or bind to "
            "127.0.0.1.",
        )
    elif trust.every_peer:
        yield ok("a client's address is the right-most entry of X-Forwarded-For, from any peer")
    elif any(network.prefixlen == 0 for network in trust.networks):
        yield warning(
            f"FW_TRUST_PROXY trusts the entire internet ({networks})",
            "Set the proxy's own network.",
        )
    elif networks:
        yield ok(
            f"peers in {networks} are trusted: a client's address is the right-most entry of "
            "X-Forwarded-For outside these networks"
        )
    elif (deployment.public_url or "").startswith(HTTPS):
        yield warning(
            "the site is https, so it is behind a proxy, but FW_TRUST_PROXY is off: all "
            "clients count as one address, and the wrong passwords of one lock everybody out",
            "Set FW_TRUST_PROXY to the proxy's network, or to on if only the proxy can "
            "reach the service.",
        )
    else:
        yield ok("X-Forwarded-For is ignored; the client address is that of the TCP peer")


PROBE_SECONDS: Final = 10.0
_LINK_LEVELS: Final = frozenset({"debug", "info"})  # the log levels that include `mail.sent`
_MAILS: Final = table_of(EmailDelivery).table.c


@dataclass(frozen=True)
class MailFacts:
    """`fault` is the reason why the transport is unusable, empty if it works.

    `retrying` counts the messages with `FAILURES` or more failed attempts that get another one, and
    `last_error` is that of the one attempted last.
    """

    fault: str
    failed: int  # in the last 24 hours
    retrying: int = 0
    last_error: str = ""


async def mail_facts(site: Site) -> MailFacts:
    """Test the transport without sending a message, and count failed messages."""

    def read(tx: Tx) -> MailFacts:
        failed = sa.select(sa.func.count()).where(
            _MAILS.status == DeliveryStatus.FAILED.value,
            _MAILS.modified > tx.now - MS_PER_DAY,
        )
        is_retried = sa.and_(  # after one or two: a server that defers unknown senders
            _MAILS.status == DeliveryStatus.RETRYING.value, _MAILS.attempts >= FAILURES
        )
        last = sa.select(_MAILS.error).where(is_retried).order_by(_MAILS.modified.desc()).limit(1)
        return MailFacts(
            fault="",
            failed=tx.scalar(failed),
            retrying=tx.scalar(sa.select(sa.func.count()).where(is_retried)),
            last_error=tx.scalar(last) or "",
        )

    facts = await site.store.read(read)
    return replace(facts, fault=await _fault(site.config))


def evaluate_mail(mail: Mail, facts: MailFacts, public_host: str | None) -> Section:
    """Evaluate the transport (O-133, O-134). `public_host` is the host of FW_PUBLIC_URL."""
    findings = (
        *_transport(mail, facts.fault, public_host),
        *_security(mail, usable=not facts.fault),
        *_retrying(facts),
        _failed(facts),
    )
    shown = {
        "transport": mail.transport,
        "retrying": facts.retrying,
        "failed24h": facts.failed,
    }
    return Section("mail", "Mail", findings, shown)


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
    if mail.sender == DEFAULT_SENDER:
        yield warning(f"the sender of mails is {DEFAULT_SENDER}", "Set FW_MAIL_FROM.")


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
            f"FW_SMTP_SECURITY is none: links are sent to {mail.host} in clear text",
            "Set FW_SMTP_SECURITY to starttls or tls.",
        )


def _retrying(facts: MailFacts) -> Iterator[Finding]:
    """Report messages that the server does not accept, although it answers."""
    if facts.retrying:
        yield warning(
            f"messages that have failed {FAILURES} times or more and are tried again: "
            f"{facts.retrying}; the last attempt ended with {facts.last_error.rstrip('.')}",
            "Correct the cause: they are sent when the mail server accepts them. After ten "
            "attempts they have failed; fw jobs retry JOB sends one again.",
        )


def _failed(facts: MailFacts) -> Finding:
    if facts.failed:
        return warning(
            f"messages that failed in the last 24 hours: {facts.failed}",
            "fw jobs list --queue mail --state failed shows their errors; fw jobs retry JOB sends "
            "one again.",
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
