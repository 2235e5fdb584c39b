"""`fw apply`, `fw diff` and `fw export`: the declared state of a site."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fw_cli.confirmation import confirm, yes_option
from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import as_json, counted, json_text, say, show_json, show_sections, spool

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.declared_state import Change, DeclaredState, DeclaredStates, StatePlan
    from fw_actors.ops.site import Site

_files = click.argument(
    "files", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path)
)
_prune = click.option("--prune", is_flag=True, help="Delete the Webhooks that no file declares.")
_SIGNS = {"create": "+", "change": "~", "delete": "-"}


@click.command(epilog=examples("fw diff site.toml", "fw diff --exit-code site.toml"))
@_files
@_prune
@click.option("--exit-code", is_flag=True, help="Exit 1 if there is a difference.")
@as_json
@click.pass_obj
def diff(
    context: CommandContext, files: tuple[Path, ...], prune: bool, exit_code: bool, as_json: bool
) -> None:
    """Show the changes that fw apply would make; the site is not changed.

    FILES are .toml or .json with webhooks, roles and users. Anything that they do not mention
    stays. A secret is the name of its variable, FW_SECRET_<NAME>. A plan that the site would refuse
    is an error.
    """
    state, states = _read_declarations(context, files), _states(context)
    plan = _check_plan(context, states, state, prune=prune)
    _show(plan, as_json=as_json)
    if plan.changes and exit_code:
        raise click.exceptions.Exit(1)


@click.command(
    epilog=examples(
        "fw apply site.toml",
        "fw apply base.toml production.toml --yes",
    )
)
@_files
@_prune
@yes_option
@as_json
@click.pass_obj
def apply(
    context: CommandContext, files: tuple[Path, ...], prune: bool, yes: bool, as_json: bool
) -> None:
    """Bring the site to the state that FILES declare, in one transaction; see fw diff.

    The plan is shown and confirmed first. A second run changes nothing.
    """
    from fw_cli.webhook_documents import NOT_IN_USE, in_use

    state, states = _read_declarations(context, files), _states(context)
    plan = _check_plan(context, states, state, prune=prune)
    if plan.changes and not yes:
        _show(plan, as_json=False, err=as_json)
        confirm(f"Apply {counted(len(plan.changes), 'change')}?", yes=False)
    elif not as_json:
        _show(plan, as_json=False)
    if plan.changes:
        context.write(lambda site, fw: states.apply(fw, state, plan, prune=prune))
    used = in_use(context) if any(c.doctype == "Webhook" for c in plan.changes) else None
    if as_json:
        show_json({**_as_json(plan), "inUse": used})
    elif plan.changes:
        say(f"applied {counted(len(plan.changes), 'change')}")
        if used is False:
            say(NOT_IN_USE)


@click.command(epilog=examples("fw export | tee site.json"))
@click.pass_obj
def export(context: CommandContext) -> None:
    """Print Webhooks, roles, users and their scopes as JSON for fw apply.

    It contains no secrets and no passwords, only the name of the variable for each secret.
    """
    from fw_actors.ops.declared_state import exported

    with ExitStack() as stack:
        sections = {name: stack.enter_context(spool()) for name in ("webhooks", "roles", "users")}

        def read(_site: Site, fw: Fw) -> None:
            for name, members in exported(fw).items():
                sections[name].fill(members)

        context.read(read)
        show_sections(sections, lists={"roles"})


def _states(context: CommandContext) -> DeclaredStates:
    from fw_actors.ops.declared_state import DeclaredStates

    return DeclaredStates(context.config.secrets.get)


def _check_plan(
    context: CommandContext, states: DeclaredStates, state: DeclaredState, *, prune: bool
) -> StatePlan:
    """Return the plan, which was tried in a transaction that is rolled back.

    Raises: ConfigurationError with everything in it that the site refuses.
    """

    async def use(site: Site) -> StatePlan:
        plan = await site.read(ADMINISTRATOR, lambda fw: states.plan(fw, state, prune=prune))
        if plan.changes:
            await site.rollback(ADMINISTRATOR, lambda fw: states.check(fw, state, plan))
        return plan

    return context.on_site(use)


def _read_declarations(context: CommandContext, files: Sequence[Path]) -> DeclaredState:
    """Return the merged declarations of the files. Raises: CommandFailed naming the file."""
    from fw_actors.errors import ValidationError
    from fw_actors.ops.declared_state import merged, state_of

    states = []
    for file in files:
        try:
            states.append(state_of(_decode_file(context.cwd / file)))
        except ValidationError as error:
            raise CommandFailed(f"{file}: {error}") from None
    return merged(states)


def _decode_file(file: Path) -> Any:
    import tomllib

    import msgspec

    ending = file.suffix.lower()
    if ending not in (".toml", ".json"):
        raise CommandFailed(f"{file}: the file must end in .toml or .json.")
    try:
        content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
        if ending == ".toml":
            return tomllib.loads(content.decode())
        decoded = msgspec.json.decode(content)
        # msgspec takes the last of two values.
        json.loads(content, object_pairs_hook=partial(_unique_keys, file))
        return decoded
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # of TOML, JSON and UTF-8
        kind = "TOML" if ending == ".toml" else "JSON"
        raise CommandFailed(f"{file} is not valid {kind}: {error}.") from None


def _unique_keys(file: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises: CommandFailed for a key that occurs twice, as in TOML."""
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise CommandFailed(f"{file}: the key {twice[:60]} occurs twice in one object.")
    return members


def _as_json(plan: StatePlan) -> dict[str, Any]:
    return {"changes": [change.as_json() for change in plan.changes], "notes": list(plan.notes)}


def _show(plan: StatePlan, *, as_json: bool, err: bool = False) -> None:
    """Print a plan, one line for each document."""
    from fw_actors.rules.safe_output import escaped

    if as_json:
        show_json(_as_json(plan))
        return
    lines = [_line(change) for change in plan.changes] or ["nothing to change"]
    for line in (*lines, *plan.notes):
        click.echo(escaped(line), err=err)


def _line(change: Change) -> str:
    if change.doctype == "User Permission":
        values = {each.field: each.old or each.new for each in change.fields}
        scope = f"{values['user']}: {values['allow']} {values['for_value']}"
        return f"{_SIGNS[change.kind]} User Permission {scope}"
    changed = []
    for each in change.fields:
        if each.field == "secret":
            changed.append("secret")
        elif change.kind == "create":
            changed.append(f"{each.field} {json_text(each.new)}")
        else:
            changed.append(f"{each.field} {json_text(each.old)} → {json_text(each.new)}")
    about = f": {', '.join(changed)}" if changed else ""
    return f"{_SIGNS[change.kind]} {change.doctype} {change.name}{about}"
