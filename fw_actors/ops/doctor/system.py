"""Doctor sections on the clock, the database and the front end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import sqlalchemy as sa
import trio

from fw_actors.config import Config, Deployment
from fw_actors.ops.site import Site
from fw_actors.rules.findings import Finding, Section, ok, problem, warning
from fw_actors.store import Tx
from fw_actors.store.backup import examine_file
from fw_actors.store.schema import JOB, SESSION

TOLERATED_MS: Final = 5_000
_OLDEST_MS: Final = 1_735_689_600_000  # 2025: older than this program


@dataclass(frozen=True)
class ClockFacts:
    """Times in ms since the epoch; `latest` is the newest time of any row, 0 without one."""

    now: int
    latest: int


async def clock_facts(site: Site) -> ClockFacts:
    """Query the newest times in the store."""

    def ask(tx: Tx) -> ClockFacts:
        deliveries = site.registry.tables["Webhook Delivery"].table.c.creation
        times = (SESSION.c.created, JOB.c.created, deliveries)
        found = [tx.scalar(sa.select(sa.func.max(time))) for time in times]
        return ClockFacts(tx.now, max(time or 0 for time in found))

    return await site.store.read(ask)


def evaluate_clock(facts: ClockFacts) -> Section:
    """Evaluate the clock."""
    ahead = facts.latest - facts.now
    if facts.now < _OLDEST_MS:
        finding = problem("the clock is years behind", "Set the clock (timedatectl).")
    elif ahead > TOLERATED_MS:
        finding = warning(
            f"the newest row is {ahead / 1000:.0f} s in the future: the clock was set back, or "
            "another machine's clock is ahead",
            "Synchronise the clocks of all machines of the site (timedatectl status).",
        )
    else:
        finding = ok(f"no row is more than {TOLERATED_MS // 1000} s in the future")
    return Section("clock", "Clock", (finding,), {"now": facts.now, "newestRow": facts.latest})


_MIB: Final = 1 << 20
LOW_DISK_BYTES: Final = 1 << 30
MIN_DISK_BYTES: Final = 100 * _MIB


@dataclass(frozen=True)
class DatabaseFacts:
    """`free_disk` is None for a database server; `checked` describes how it was checked."""

    kind: str
    place: str
    size: int  # bytes
    checked: str
    faults: tuple[str, ...] = ()
    free_disk: int | None = None  # bytes


async def database_facts(site: Site) -> DatabaseFacts:
    """Check the database file, or query the server."""
    path = site.config.sqlite_file
    if path is None:
        return await site.store.read(_ask_postgresql)
    found = await trio.to_thread.run_sync(examine_file, path)
    return DatabaseFacts(
        kind="sqlite",
        place=str(path),
        size=found.size,
        checked="completely" if found.thorough else "except its indexes, because it is large",
        faults=found.faults,
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


def _findings(facts: DatabaseFacts) -> Iterator[Finding]:
    size = f"{facts.size / _MIB:.1f} MiB"
    if facts.faults:
        yield problem(
            f"{facts.kind} {facts.place} is damaged: {'; '.join(facts.faults)}",
            "Stop the service, copy the file as it is, and restore a backup.",
        )
    else:
        yield ok(f"{facts.kind} {facts.place}: {size}, checked {facts.checked}")
    if facts.free_disk is None:
        return
    free = f"the disk of the database has {facts.free_disk / _MIB:.0f} MiB left"
    if facts.free_disk < MIN_DISK_BYTES:
        yield problem(free, "Free disk space: soon every write is rejected with 503.")
    elif facts.free_disk < max(LOW_DISK_BYTES, facts.size):
        yield warning(free, "Free disk space: a backup needs as much as the database.")
    else:
        yield ok(free)


def _ask_postgresql(tx: Tx) -> DatabaseFacts:
    row = tx.one(
        sa.text("SELECT current_database(), pg_database_size(current_database()), version()")
    )
    assert row is not None
    name, size, version = row
    checked = f"by its server ({str(version).split(',')[0].split(' on ')[0]})"
    return DatabaseFacts("postgresql", str(name), int(size), checked)


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
            f"users reach the site at {url}: passwords and cookies travel in clear text",
            "Put a TLS proxy in front of the site and use an https URL.",
        )
    else:
        yield ok(f"links begin with {url}")


def _cookie(secure: bool | None, url: str | None) -> Finding:
    https = url is not None and url.startswith(HTTPS)
    if secure is True and url is not None and not https:
        return problem(
            "auth.secureCookie is true but the site is not https: browsers do not send the cookie "
            "back, so nobody stays signed in",
            "Set auth.secureCookie to null, or serve the site over https.",
        )
    if secure is False and https:
        return warning(
            "auth.secureCookie is false but the site is https: the cookie may travel in clear text",
            "Set auth.secureCookie to null.",
        )
    if secure is None and not https:
        return ok("the cookie is Secure when its request came over TLS")
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
            f"peers in {networks} are trusted: a client's address is the first entry of "
            "X-Forwarded-For, from the right, that is in none of them"
        )
    elif (deployment.public_url or "").startswith(HTTPS):
        yield warning(
            "the site is https, so it is behind a proxy, but FW_TRUST_PROXY is off: all "
            "clients count as one address, and 50 wrong passwords lock everybody out",
            "Set FW_TRUST_PROXY to the proxy's network, or to on if only the proxy can "
            "reach the service.",
        )
    else:
        yield ok("X-Forwarded-For is ignored: a client's address is the peer's")
