"""Assembles the gateway, the lockouts, and the recovery and invitation links."""

from __future__ import annotations

from typing import Final

from fw_actors.access.administration import UserAdministration
from fw_actors.access.api_keys import KeyUse
from fw_actors.access.links import Links
from fw_actors.access.passwords import PasswordChanges
from fw_actors.access.recovery import Invitation, LinkMail, LinkUse, Recovery, RecoveryThrottle
from fw_actors.access.sign_in import AttemptDependencies, NewDeviceNotice, SignIn
from fw_actors.actors.gateway import Gateway
from fw_actors.actors.lockout import AttemptLog, LockoutActor
from fw_actors.mail import LogTransport, NewDevice, Notice, Template
from fw_actors.ops.site import Site
from fw_actors.runtime import KeyedPool
from fw_actors.store import Tx
from fw_actors.webhooks.diagnostics import Trial
from supervisors.children import ChildSpec, pool_child
from supervisors.service.metrics import Readings
from supervisors.service.parts import Parts
from supervisors.service.queues import DISPATCHER

MAX_LOCKOUTS: Final = 10_000  # identifiers with a sign-in in progress or just finished
_IDLE_SECONDS: Final = 30.0
PROBE: Final = "probe"
"""The StoreProbe that checks whether the store answers."""


def access(parts: Parts) -> tuple[ChildSpec, Gateway]:
    """Return the pool of lockouts, and the gateway over all parts."""
    site = parts.site
    dependencies = AttemptDependencies(
        site.store,
        site.hasher,
        site.accounts,
        site.config.auth,
        site.clock,
        site.entropy,
        site.installation_key,
        _new_device_notice(site),
    )
    sign_in, changes = SignIn(dependencies), PasswordChanges(dependencies, site.passwords)
    attempts = AttemptLog(parts.signed_in, parts.log)
    lockouts = KeyedPool(
        parts.runtime,
        "lockouts",
        make=lambda key: LockoutActor(key, sign_in, changes, attempts),
        capacity=MAX_LOCKOUTS,
        idle_seconds=_IDLE_SECONDS,
    )
    readings = Readings(parts)
    links = Links(site.registry, site.config.auth, site.entropy, parts.url)
    recovery, invitation = _link_uses(parts, links)
    gateway = Gateway(
        site,
        sign_in,
        changes,
        lockouts,
        attempts,
        KeyUse(site.store, site.api_keys, site.accounts, site.entropy, site.installation_key),
        recovery,
        invitation,
        _users(parts, links),
        Trial(site, parts.sender),
        readings,
        parts.runtime.ref(PROBE),
        parts.runtime.ref(DISPATCHER),
    )
    return pool_child("lockouts", lockouts), gateway


def _users(parts: Parts, links: Links) -> UserAdministration:
    site = parts.site
    by_log = LogTransport(parts.log) if site.config.mail.transport == "log" else None
    link_mail = LinkMail(links, site.outbox, by_log)
    return UserAdministration(
        site.accounts,
        link_mail,
        site.api_keys,
        site.audit,
        site.installation_key,
        site.config.auth.session_idle_days,
    )


def _link_uses(parts: Parts, links: Links) -> tuple[Recovery, Invitation]:
    site = parts.site
    throttle = RecoveryThrottle(site.config.auth, site.entropy, site.installation_key)
    link_use = LinkUse(
        site.store, site.hasher, links, site.passwords, throttle, site.audit, site.handle
    )
    recovery = Recovery(site.store, site.outbox, throttle, link_use, site.installation_key)
    return recovery, Invitation(link_use, site.handle)


def _new_device_notice(site: Site) -> NewDeviceNotice | None:
    if not site.config.auth.new_device_mail:
        return None

    def tell(tx: Tx, user: str, device: NewDevice) -> None:
        notice = Notice(new_device=device)
        site.outbox.to_user(tx, Template.NEW_DEVICE, user, owner=user, notice=notice)

    return tell
