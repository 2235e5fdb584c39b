"""Checks each part of a site and reports problems with their remedies (O-130).

In each module thin functions collect `facts`, and pure functions evaluate them.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fw_actors.ops.doctor.access import (
    evaluate_configuration,
    evaluate_secrets,
    evaluate_sign_in,
    not_opened,
    sign_in_facts,
)
from fw_actors.ops.doctor.delivery import (
    evaluate_queues,
    evaluate_webhooks,
    queue_facts,
    webhook_facts,
)
from fw_actors.ops.doctor.system import (
    app_facts,
    clock_facts,
    database_facts,
    evaluate_apps,
    evaluate_clock,
    evaluate_database,
    evaluate_front,
    evaluate_mail,
    mail_facts,
    not_answering,
)
from fw_actors.ops.site import Site
from fw_actors.ops.stored_secrets import secret_facts
from fw_actors.rules.findings import Section, ServiceState

__all__ = ["evaluate_configuration", "evaluate_front", "examine", "not_answering", "not_opened"]


async def examine(site: Site, service: ServiceState) -> list[Section]:
    """Check an open site; its configuration is evaluated without opening it.

    Changes nothing in the store, and sends nothing. `service` is the state of the service on this
    machine; the advice about waiting work depends on it.

    Raises: OverloadedError if the store does not answer.
    """
    config = site.config
    public_host = urlsplit(config.deployment.public_url or "").hostname
    return [
        evaluate_sign_in(await sign_in_facts(site), config.login, config.deployment.argon2),
        evaluate_mail(config.mail, await mail_facts(site), public_host),
        evaluate_webhooks(await webhook_facts(site), service),
        evaluate_secrets(await secret_facts(site)),
        evaluate_queues(await queue_facts(site), service),
        evaluate_database(await database_facts(site)),
        evaluate_clock(await clock_facts(site)),
        evaluate_apps(await app_facts(site)),
    ]
