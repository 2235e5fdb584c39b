"""`fw webhooks explain`: the reason why a delivery waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fw_cli.context import CommandContext
from fw_cli.output import as_json, say, show_json

if TYPE_CHECKING:
    from fw_actors.ops.site import Site
    from fw_actors.rules.explanation import Waiting


@click.command()
@click.argument("delivery")
@as_json
@click.pass_obj
def explain(context: CommandContext, delivery: str, as_json: bool) -> None:
    """Show why DELIVERY waits, and since or until when.

    It waits for its receiver, for the end of a backoff, or for an attempt in progress; or it is
    final, its Webhook is disabled or deleted, or the process that leased it has died.
    """
    from fw_actors.documents.special_fields import iso
    from fw_actors.rules.explanation import explain as explained
    from fw_actors.webhooks.diagnostics import waiting
    from fw_cli.service_state import service_state

    async def use(site: Site) -> Waiting:
        return await site.store.read(lambda tx: waiting(tx, site.registry, delivery))

    facts = context.on_site(use)
    explanation = explained(facts, service_state(context.config))
    due_at = None if explanation.due_at is None else iso(explanation.due_at)
    if as_json:
        show_json(
            {
                "delivery": delivery,
                "status": facts.status.value,
                "reason": explanation.reason.value,
                "dueAt": due_at,
                "attempts": facts.attempts,
                "maxAttempts": facts.max_attempts,
                "receiver": facts.receiver or None,
                "ahead": facts.ahead,
                "leased": facts.in_flight,
                "text": explanation.text,
            }
        )
        return
    say(f"{delivery}: {facts.status.value}")
    say(explanation.text)
    if explanation.due_at is not None:
        say(f"It is due {'since' if explanation.due_at <= facts.now else 'at'} {due_at}.")
