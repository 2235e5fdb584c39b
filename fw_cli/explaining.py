"""`fw webhooks explain`: why a delivery waits, and when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fw_cli.output import as_json, show_json
from fw_cli.surroundings import Surroundings

if TYPE_CHECKING:
    from fw_actors.rules.explanation import Waiting
    from fw_actors.services.site import Site


@click.command()
@click.argument("delivery")
@as_json
@click.pass_obj
def explain(surroundings: Surroundings, delivery: str, as_json: bool) -> None:
    """Say why DELIVERY waits, and when it goes.

    It waits for a place at its receiver, for the end of a backoff, or for an attempt under way;
    or it is final, its Webhook is disabled or deleted, or its worker has died.
    """
    from fw_actors.documents.times import iso
    from fw_actors.rules.explanation import explain as explained
    from fw_actors.services.explaining import waiting
    from supervisors.service.escaping import escaped

    async def use(site: Site) -> Waiting:
        return await site.store.read(lambda tx: waiting(tx, site.registry, delivery))

    facts = surroundings.on_site(use)
    told = explained(facts)
    goes_at = None if told.goes_at is None else iso(told.goes_at)
    if as_json:
        show_json(
            {
                "delivery": delivery,
                "status": facts.status.value,
                "reason": told.reason.value,
                "goesAt": goes_at,
                "attempts": facts.attempts,
                "maxAttempts": facts.max_attempts,
                "ahead": facts.ahead,
                "text": told.text,
            }
        )
        return
    click.echo(f"{delivery}: {facts.status.value}")
    click.echo(escaped(told.text))
    if goes_at is not None:
        click.echo(f"It goes at {goes_at}, when a service or a worker runs.")
