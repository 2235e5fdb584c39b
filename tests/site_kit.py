"""Sites for tests: a configuration made by hand, opened inline, so that MockClock rules it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

from fw_actors.access.sign_in import AttemptDependencies
from fw_actors.config import (
    Argon2,
    AuthPolicy,
    Config,
    Deployment,
    LoginPolicy,
    Mail,
    OpsPolicy,
    ProxyTrustPolicy,
    Secrets,
    SitePolicy,
    WebPolicy,
)
from fw_actors.hashing import Hasher
from fw_actors.ops.site import JobsRecorded, Site, open_site
from fw_actors.runtime import SeededEntropy, TrioClock
from fw_actors.webhooks.subscriptions import SharedSubscriptions

START_MS = 1_800_000_000_000
SECRET_KEY = "a key of the tests, forty characters long"
CHEAP = Argon2(memory_kib=64, time=1, parallelism=1)
_ELSEWHERE = "database.url"


def keep_database_at(folder: Path, url: str) -> None:
    """Have the sites of a test keep their data at `url` instead of in its folder."""
    (folder / _ELSEWHERE).write_text(url)


def database_of(folder: Path) -> str:
    """Return FW_DATABASE of a site whose data are in `folder`: a file, or where a test says."""
    elsewhere = folder / _ELSEWHERE
    return elsewhere.read_text() if elsewhere.exists() else f"sqlite:///{folder}/data/fw.db"


def make_config(folder: Path, *, apps: tuple[str, ...] = (), **changes: Any) -> Config:
    """Return the default configuration of a site in `folder`.

    `changes`: any field of the sections `auth`, `ops`, `deployment`, by its name; `secrets`.
    """
    auth: dict[str, Any] = {
        "session_days": 30, "api_key_days": 0, "min_password_length": 8, "max_login_attempts": 5,
        "lockout_minutes": 15, "reset_minutes": 60, "invite_hours": 72, "secure_cookie": None,
        "self_service_api_keys": True, "address_attempts": 50, "recovery_attempts": 20,
        "refuse_common_passwords": False, "session_idle_days": 0, "breached_passwords": None,
        "new_device_mail": False,
    }  # fmt: skip
    ops: dict[str, Any] = {
        "webhook_retention_days": 30, "audit_retention_days": 365, "scheduler": True,
        "delivery_concurrency": 512, "per_receiver_concurrency": 16, "backoff_seconds": 30.0,
        "backoff_cap_seconds": 3600.0, "honour_retry_after": False, "query_timeout_seconds": 5.0,
        "processes": 1, "receiver_notice": 24, "disable_after_days": 0,
        "payload_days": 0, "trace_context": False, "subscription_refresh": False,
    }  # fmt: skip
    deployment: dict[str, Any] = {
        "public_url": None, "trust_proxy": ProxyTrustPolicy(False, ()), "mode": "production",
        "bind_host": "127.0.0.1", "bind_port": 0, "database": database_of(folder),
        "webhooks_off": False, "log_format": "text", "log_level": "warning", "argon2": CHEAP,
        "clock_offset": 0.0,
    }  # fmt: skip
    secrets = changes.pop("secrets", {"key": SECRET_KEY})
    for name, value in changes.items():
        section = next(s for s in (auth, ops, deployment) if name in s)
        section[name] = value
    return Config(
        file=folder / "fw.json", folder=folder, site=SitePolicy("tests"), auth=AuthPolicy(**auth),
        login=LoginPolicy(None, None, None), web=WebPolicy(1000), ops=OpsPolicy(**ops), apps=apps,
        deployment=Deployment(**deployment), secrets=Secrets(secrets), warnings=(),
        mail=Mail("log", None, "fw@example.test", None, 25, None, None, "starttls"),
    )  # fmt: skip


_PROJECT: Final = Path(__file__).parents[1]
_TABLES: dict[tuple[Path, tuple[str, ...]], bytes] = {}
"""The file of a new site by the folder and names of its apps: making its tables takes longer than
what most tests do."""


async def _copy_tables(config: Config, file: Path) -> None:
    """Make the file of a new site, if its apps are the project's; others differ by test."""
    if config.apps and _PROJECT not in config.folder.parents:
        return
    key = (config.folder if config.apps else _PROJECT, config.apps)
    if key not in _TABLES:
        with TemporaryDirectory() as folder:
            database = f"sqlite:///{folder}/fw.db"
            new = make_config(config.folder, apps=config.apps, database=database)
            assert new.sqlite_file is not None
            entropy, clock = SeededEntropy(1), TrioClock(START_MS)
            async with open_site(new, clock=clock, entropy=entropy, inline=True, durable=False):
                pass
            _TABLES[key] = new.sqlite_file.read_bytes()
    _write(file, _TABLES[key])


def _write(file: Path, content: bytes) -> None:
    """Write a store's file with the modes that the service gives it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(content)


@asynccontextmanager
async def inline_site(
    folder: Path,
    seed: int = 1,
    recorded: JobsRecorded = lambda queue: None,
    shared: SharedSubscriptions | None = None,
    **changes: Any,
) -> AsyncIterator[Site]:
    """Open a site on trio's clock, without threads; `shared`: as one of several processes."""
    config = make_config(folder, **changes)
    if config.sqlite_file is not None and not config.sqlite_file.exists():
        await _copy_tables(config, config.sqlite_file)
    # A second site of a test continues at the time of the first one.
    clock = TrioClock(START_MS + round(trio.current_time() * 1000))
    entropy = SeededEntropy(seed)
    async with open_site(
        config,
        clock=clock,
        entropy=entropy,
        inline=True,
        durable=False,
        recorded=lambda store: recorded,
        shared=shared,
    ) as site:
        yield site


def dependencies_of(site: Site, hasher: Hasher) -> AttemptDependencies:
    """Return what sign-ins and password changes of a site need, with another hasher."""
    return AttemptDependencies(
        site.store,
        hasher,
        site.accounts,
        site.config.auth,
        site.clock,
        site.entropy,
        site.installation_key,
    )
