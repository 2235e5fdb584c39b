"""The validated, frozen configuration of a site.

Policy comes from `fw.json` (its names in snake_case), deployment facts from the environment, both
by `load`. Values that are secret or may hold one never show in a `repr` (C-86).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from fw_actors.config.policy import MAX_PROCESSES
from fw_actors.rules.outgoing import EgressProxy, OutgoingPolicy
from fw_actors.rules.safe_output import Scrubber

VAULT_KEY: Final = "key"
"""The name of FW_SECRET_KEY among the secrets."""
SITE_KEY_VARIABLES: Final = ("FW_SECRET_KEY", "FW_SECRET_KEY_FILE")
"""The variables of the site's own key, which are not integration secrets."""
_SQLITE: Final = "sqlite:///"
_DATABASE_SECRETS: Final = ("password", "sslpassword")  # of libpq's parameters

Mode = Literal["production", "development"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
TransportKind = Literal["log", "smtp", "method"]
Security = Literal["starttls", "tls", "none"]


@dataclass(frozen=True)
class SitePolicy:
    """Section `site`."""

    name: str


@dataclass(frozen=True)
class AuthPolicy:
    """Section `auth`: sessions, passwords, lockout and links (A-10)."""

    session_days: int
    api_key_days: int  # 0: a key never expires
    min_password_length: int  # in runes
    max_login_attempts: int
    lockout_minutes: int
    reset_minutes: int
    invite_hours: int
    secure_cookie: bool | None  # None: decided per request
    self_service_api_keys: bool
    address_attempts: int  # failed sign-ins of an address in 15 minutes
    recovery_attempts: int  # recovery requests of an address in 15 minutes
    refuse_common_passwords: bool
    session_idle_days: int  # 0: a session has no idle end
    new_device_mail: bool = False
    breached_passwords: str | None = None  # a file of hashes, relative to the site


@dataclass(frozen=True)
class LoginPolicy:
    """Section `login`, environment values first: the public content of the sign-in page."""

    notice: str | None
    demo_user: str | None
    demo_password: str | None


@dataclass(frozen=True)
class WebPolicy:
    """Section `web`."""

    max_requests: int  # served at once
    hsts_include_sub_domains: bool = False


@dataclass(frozen=True)
class OutgoingSettings:
    """Group `ops.outgoing`: the allowed destinations of deliveries, and the proxy on the way.

    Networks are text, as in the file.
    """

    private: Literal["allow", "deny"] = "allow"
    allow: tuple[str, ...] = ()
    proxy: str | None = None
    proxy_except: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpsPolicy:
    """Section `ops`: delivery and housekeeping."""

    webhook_retention_days: int  # 0: kept for ever
    audit_retention_days: int  # likewise
    scheduler: bool
    delivery_concurrency: int
    per_receiver_concurrency: int
    backoff_seconds: float
    backoff_cap_seconds: float
    honour_retry_after: bool
    query_timeout_seconds: float
    processes: int | Literal["auto"] = 1
    subscription_refresh: bool = False
    receiver_notice: float = 24  # hours of nothing but failures; 0: off
    disable_after_days: float = 0  # likewise
    payload_days: int = 0  # bodies of finished deliveries; 0: as long as their records
    outgoing: OutgoingSettings = OutgoingSettings()
    trace_context: bool = False


@dataclass(frozen=True)
class Argon2:
    """FW_ARGON2: the cost of a password hash (RFC 9106)."""

    memory_kib: int
    time: int
    parallelism: int


MAX_ARGON2: Final = Argon2(1 << 20, 16, 16)  # no hash, configured or stored, costs more than this


@dataclass(frozen=True)
class ProxyTrustPolicy:
    """FW_TRUST_PROXY: `every_peer` is `on`, `networks` a list, none of both `off`."""

    every_peer: bool = False
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @property
    def is_off(self) -> bool:
        """Whether no proxy is trusted."""
        return not self.every_peer and not self.networks


@dataclass(frozen=True)
class Deployment:
    """Facts that differ between one deployment and the next."""

    public_url: str | None  # without a slash at the end
    trust_proxy: ProxyTrustPolicy
    mode: Mode
    bind_host: str  # IPv6 without brackets
    bind_port: int  # 0: a free one
    database: str = field(repr=False)  # sqlite:///path, relative to the site, or postgresql://…
    webhooks_off: bool
    log_format: LogFormat
    log_level: LogLevel
    argon2: Argon2
    clock_offset: float  # seconds added to the wall clock; 0 outside development mode
    proxy_credentials: str | None = field(default=None, repr=False)  # user:password


@dataclass(frozen=True)
class Mail:
    """The settings of the mail transport."""

    transport: TransportKind
    method: str | None  # module.function, with transport method
    sender: str
    host: str | None  # set with transport smtp
    port: int
    user: str | None
    password: str | None = field(repr=False)
    security: Security


@dataclass(frozen=True)
class ProcessPlace:
    """The place of a process in its service: process `number`, from 1, of `count`."""

    number: int = 1
    count: int = 1

    @property
    def is_alone(self) -> bool:
        """Whether the service has no other process."""
        return self.count == 1

    def share(self, total: int) -> int:
        """Return this process's part of a limit of the whole service, at least 1.

        The parts of all processes add up to `total`, unless there are more processes than that.
        """
        part, rest = divmod(total, self.count)
        if self.number <= rest:
            part += 1
        return max(1, part)


@dataclass(frozen=True)
class ClientCertificate:
    """FW_CLIENT_CERT_<NAME> and FW_CLIENT_KEY_<NAME>: a chain in PEM, and its key.

    Without the latter the key is in the file of the chain.
    """

    name: str
    chain: Path
    key: Path


class Secrets:
    """FW_SECRET_KEY and FW_SECRET_<NAME>; no `repr` shows them (C-86)."""

    __slots__ = ("_values", "key_file")

    def __init__(self, values: Mapping[str, str], key_file: Path | None = None) -> None:
        """`values`: by the name in lower case, without the prefix; `key` is FW_SECRET_KEY's.

        `key_file`: the file that the key was read from; None if the environment has it.
        """
        self._values = dict(values)
        self.key_file = key_file

    @property
    def key(self) -> str | None:
        """The key that encrypts Vault fields; None if it is unset or empty."""
        return self._values.get(VAULT_KEY) or None

    def get(self, name: str) -> str | None:
        """Return an integration secret by its name in lower case; None if it is unset or empty.

        The site's own key is not an integration secret: for `key` the result is None (C-83).
        """
        return None if name == VAULT_KEY else self._values.get(name) or None

    def hidden(self) -> tuple[str, ...]:
        """All values, which no log may contain."""
        return tuple(value for value in self._values.values() if value)

    def names_of_short(self, characters: int) -> tuple[str, ...]:
        """Return the variables of integration secrets of fewer `characters`, in order."""
        return tuple(
            f"FW_SECRET_{name.upper()}"
            for name, value in sorted(self._values.items())
            if name != VAULT_KEY and 0 < len(value.strip()) < characters
        )

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._values)}>"


@dataclass(frozen=True)
class Config:
    """A site's whole configuration. `warnings` are sentences for `fw doctor`."""

    file: Path  # absolute
    folder: Path  # the site: the folder of `file`; relative paths are relative to it
    site: SitePolicy
    auth: AuthPolicy
    login: LoginPolicy
    web: WebPolicy
    ops: OpsPolicy
    apps: tuple[str, ...]
    deployment: Deployment
    mail: Mail
    secrets: Secrets
    warnings: tuple[str, ...]
    client_certificates: Mapping[str, ClientCertificate] = field(default_factory=dict)
    """By name, as Webhooks name them."""
    place: ProcessPlace = ProcessPlace()
    """The process for which `for_process` made this configuration."""

    @property
    def processes(self) -> int:
        """The number of processes of the service: `ops.processes`; with `auto` one per core.

        `auto` does not exceed the limits that the processes share, since each needs a part.
        """
        if self.ops.processes != "auto":
            return self.ops.processes
        return min(len(os.sched_getaffinity(0)), MAX_PROCESSES, *self._shared_limits().values())

    @property
    def outgoing(self) -> OutgoingPolicy:
        """The policy for the addresses of receivers."""
        settings = self.ops.outgoing
        networks = tuple(map(ip_network, settings.allow))
        return OutgoingPolicy(settings.private, networks, self.deployment.bind_port)

    @property
    def egress_proxy(self) -> EgressProxy | None:
        """The proxy for deliveries; None: send directly."""
        settings = self.ops.outgoing
        if settings.proxy is None:
            return None
        url = urlsplit(settings.proxy)
        assert url.hostname is not None
        assert url.port is not None
        credentials = self.deployment.proxy_credentials
        return EgressProxy(url.hostname, url.port, credentials, settings.proxy_except)

    def for_process(self, place: ProcessPlace) -> Config:
        """Return the configuration of one process of the service, with its parts of the limits."""
        ops, web = self.ops, self.web
        return replace(
            self,
            place=place,
            ops=replace(
                ops,
                delivery_concurrency=place.share(ops.delivery_concurrency),
                per_receiver_concurrency=place.share(ops.per_receiver_concurrency),
            ),
            web=replace(web, max_requests=place.share(web.max_requests)),
        )

    def problems_of_processes(self) -> list[str]:
        """Return a sentence for each limit that `ops.processes` exceeds."""
        processes = self.ops.processes
        if processes == "auto":
            return []
        return [
            f"ops.processes must not exceed {name}, which the processes share: "
            f"{processes} is more than {limit}"
            for name, limit in self._shared_limits().items()
            if processes > limit
        ]

    def _shared_limits(self) -> dict[str, int]:
        return {
            "ops.deliveryConcurrency": self.ops.delivery_concurrency,
            "ops.perReceiverConcurrency": self.ops.per_receiver_concurrency,
            "web.maxRequests": self.web.max_requests,
        }

    @property
    def sqlite_file(self) -> Path | None:
        """The database's file; None if the database is on a server."""
        path = self.deployment.database.removeprefix(_SQLITE)
        return None if path == self.deployment.database else self.folder / path

    def hidden(self) -> tuple[str, ...]:
        """All secrets of the configuration, which no log, column or message may contain.

        These are FW_SECRET_KEY, every FW_SECRET_<NAME>, and the passwords of SMTP, of the database
        and of the proxy, but not the demo account's, which the sign-in page shows.
        """
        mail = (self.mail.password,) if self.mail.password else ()
        database = _passwords_in(self.deployment.database)
        return (*self.secrets.hidden(), *mail, *database, *self._proxy_passwords())

    def names_of_short_secrets(self, characters: int) -> tuple[str, ...]:
        """Return the variables whose secret has fewer than `characters`; the Vault key has its own
        rule.
        """
        further = {
            "FW_DATABASE": (*_passwords_in(self.deployment.database),),
            "FW_SMTP_PASSWORD": (self.mail.password or "",),
            "FW_OUTGOING_PROXY_AUTH": self._proxy_passwords(),
        }
        short = (
            name
            for name, values in further.items()
            if any(0 < len(value.strip()) < characters for value in values)
        )
        return (*short, *self.secrets.names_of_short(characters))

    def _proxy_passwords(self) -> tuple[str, ...]:
        password = (self.deployment.proxy_credentials or "").partition(":")[2]
        return (password,) if password else ()

    @cached_property
    def scrubber(self) -> Scrubber:
        """Removes the values of `hidden` from texts; shared by all parts of the process."""
        return Scrubber(self.hidden())


def _passwords_in(url: str) -> Iterator[str]:
    """Yield the passwords in a database URL, encoded and decoded."""
    if url.startswith(_SQLITE):
        return
    password = urlsplit(url).password
    if password:
        yield password
        yield unquote(password)
    # As libpq reads them: a plus is no space, and a # begins no fragment.
    for parameter in url.partition("?")[2].split("&"):
        name, _, value = parameter.partition("=")
        if value and unquote(name) in _DATABASE_SECRETS:
            yield value
            yield unquote(value)
