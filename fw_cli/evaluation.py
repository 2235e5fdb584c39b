"""`fw eval` and `fw exec`: Python on the site, as one expression or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import click

from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.examples import examples
from fw_cli.output import json_text
from fw_cli.values import USER

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_commit = click.option(
    "--commit", is_flag=True, help="Commit the writes; by default they are rolled back."
)
_as_user = click.option(
    "--user",
    default=ADMINISTRATOR,
    type=USER,
    show_default=True,
    help="The user whose permissions apply.",
)


@click.command(
    "eval",
    epilog=examples(
        'fw eval \'fw.get_all("User", fields=["name", "email"])\'',
        'fw eval \'fw.count("Webhook Delivery", {"status": "Failed"})\'',
        'fw eval \'fw.webhooks.emit("invoice.paid", {"number": 7})\' --commit',
    ),
)
@click.argument("expression")
@_commit
@_as_user
@click.pass_obj
def evaluate(context: CommandContext, expression: str, commit: bool, user: str) -> None:
    """Evaluate EXPRESSION, in which `fw` is the site, and print its value as JSON."""
    from fw_cli.scripts import compiled, shielded

    code = compiled(expression.strip(), "<expression>", "eval")

    @shielded("<expression>")
    def value(fw: Fw) -> str:
        # Convert inside the transaction: a document may need it, and a value that cannot be shown
        # must not be committed.
        result = eval(code, _names(fw))  # the purpose of `fw eval`  # nosec B307
        return json_text(result, _plain)

    click.echo(_run(context, user, value, commit=commit))


@click.command(
    "exec",
    epilog=examples(
        "fw exec import_customers.py             # dry run: everything is rolled back",
        "fw exec import_customers.py --commit",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_commit
@_as_user
@click.pass_obj
def execute(context: CommandContext, file: Path, commit: bool, user: str) -> None:
    """Run the Python FILE, in which `fw` is the site, in one transaction."""
    from fw_cli.scripts import compiled, shielded

    code = compiled(file.read_bytes(), str(file), "exec")

    @shielded(str(file))
    def run(fw: Fw) -> None:
        _execute(code, _names(fw, file))

    _run(context, user, run, commit=commit)


def _run(context: CommandContext, user: str, fn: Callable[[Fw], Any], *, commit: bool) -> Any:
    async def use(site: Site) -> Any:
        return await (site.write(user, fn) if commit else site.rollback(user, fn))

    return context.on_site(use)


def _execute(code: CodeType, names: dict[str, Any]) -> None:
    try:
        exec(code, names)  # the purpose of `fw exec`  # nosec B102
    except SystemExit as end:
        if end.code not in (None, 0):  # sys.exit() is a normal end of a script
            raise


def _names(fw: Fw, file: Path | None = None) -> dict[str, Any]:
    names: dict[str, Any] = {"fw": fw, "__name__": "__main__"}
    return names if file is None else {**names, "__file__": str(file)}


def _plain(value: Any) -> Any:
    """Return the JSON form of other values: a document's fields, or the repr."""
    as_dict = getattr(value, "as_dict", None)
    return as_dict() if callable(as_dict) and not isinstance(value, type) else repr(value)
