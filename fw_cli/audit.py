"""`fw audit`: the Audit Events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import as_json, json_text, show
from fw_cli.time_options import SINCE
from fw_cli.values import MAX_LISTED, USER, Utf8, WholeNumber, suggestion, user_on_record

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_COLUMNS: Final = {
    "creation": "Time",
    "action": "Action",
    "target": "Target",
    "actor": "Actor",
    "detail": "Detail",
}


class _Action(Utf8):
    """The action of an Audit Event, or a pattern such as `user.*`."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the actions that begin as typed."""
        from fw_actors.ops.audit import Action

        actions = sorted(str(each) for each in Action)
        return [CompletionItem(action) for action in actions if action.startswith(incomplete)]


@click.command(
    epilog=examples(
        "fw audit --since 24h",
        "fw audit --action user.* --target ann",
        "fw audit --actor Administrator --json",
    )
)
@click.option(
    "--action", type=_Action(), help="Only this action; user.* matches all actions on users."
)
@click.option("--actor", type=USER, help="Only actions of this user.")
@click.option("--target", help="Only events of this document.")
@click.option("--since", type=SINCE, help="Only since this time: 7d, 12h, 30m, or ISO 8601 (UTC).")
@click.option(
    "--limit", type=WholeNumber(1, MAX_LISTED), default=50, show_default=True,
    help="The maximum number of events.",
)  # fmt: skip
@as_json
@click.pass_obj
def audit(
    context: CommandContext,
    action: str | None,
    actor: str | None,
    target: str | None,
    since: Any,
    limit: int,
    as_json: bool,
) -> None:
    """Show the recorded changes of accounts, roles, keys and Webhooks, newest first.

    Administrator is the user of the command line, and of what the service does by itself.
    """
    filters: list[list[Any]] = [] if target is None else [["target", "=", target]]
    if action is not None:
        filters.append(_action_filter(action))

    def read(site: Site, fw: Fw) -> list[dict[str, Any]]:
        from fw_actors.documents.fields import iso

        if actor is not None:
            on_record = fw.exists("Audit Event", {"actor": actor}) is not None
            filters.append(["actor", "=", user_on_record(site, fw, actor, on_record=on_record)])
        if since is not None:
            filters.append(["creation", ">=", iso(since(site.clock.now()))])
        fields = [*_COLUMNS, "name", "request_id"]
        return fw.get_list(
            "Audit Event", filters, fields, order_by="creation desc, name desc", limit=limit
        )

    rows = context.read(read)
    if not as_json:
        rows = [{**row, "detail": _detail_text(row["detail"])} for row in rows]
    show(rows, _COLUMNS, json=as_json)


def _action_filter(action: str) -> list[str]:
    """Return the filter of an action, or of all of one kind. Raises: CommandFailed."""
    from fw_actors.ops.audit import Action

    subject, star, rest = action.partition("*")
    actions = [str(each) for each in Action]
    if star and not rest and any(each.startswith(subject) for each in actions):
        return ["action", "like", subject.replace("\\", "\\\\").replace("_", "\\_") + "%"]
    if not star and action in actions:
        return ["action", "=", action]
    kinds = sorted({f"{each.partition('.')[0]}.*" for each in actions if "." in each})
    near = suggestion(action, kinds if star else actions)
    raise CommandFailed(f"There is no action {action[:60]}.{near}")


def _detail_text(detail: Any) -> str:
    return "" if detail is None else json_text(detail)
