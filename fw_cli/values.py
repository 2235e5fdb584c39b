"""Names of documents and events as arguments: shells complete them, and near misses are suggested.

Completion only reads, and does not open the site: it runs while the user types, so nothing may be
created or migrated, no app's code may run, and a store that does not answer quickly provides no
names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

C = TypeVar("C", bound=Callable[..., Any])

_MAX_COMPARED_NAMES: Final = 10_000
# Their ids are long and alike, so that each comparison takes longer.
_MAX_COMPARED_DELIVERIES: Final = 1_000
_ALIKE: Final = 0.6
_ALIKE_IDS: Final = 0.9  # two ids of the same hour have a third of their characters in common
_MAX_SUGGESTIONS: Final = 3
_MAX_SHOWN_CHARACTERS: Final = 140
MAX_NAMES: Final = 100
MAX_LISTED: Final = 10_000  # deliveries, attempts or Audit Events; over HTTP there are pages
_ANSWER_SECONDS: Final = 1.0
_BUILT_IN: Final = ("Administrator", "Guest")  # no account has these names
_MAX_CHARACTER: Final = "\U0010ffff"


class Utf8(click.ParamType[str]):
    """Text that the store can hold: Python decodes other bytes of an argument to surrogates."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it was given."""
        text = str(value)
        shown = text.encode("utf-8", "backslashreplace").decode()
        if shown != text:
            self.fail(f"'{shown[:_MAX_SHOWN_CHARACTERS]}' is not text in UTF-8.", param, ctx)
        return text


class DocumentName(Utf8):
    """The name of a document of a built-in DocType; the command looks it up."""

    def __init__(self, doctype: str) -> None:
        self.doctype = doctype

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the stored names that begin as typed; none if there is no usable site."""
        return [CompletionItem(name) for name in _stored(ctx, self.doctype, "name", incomplete)]


class EventName(Utf8):
    """The name of a custom event: nothing declares it, but Webhooks subscribe to it."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the subscribed events that begin as typed; none if there is no usable site."""
        events = _stored(ctx, "Webhook", "custom_event", incomplete)
        return [CompletionItem(event) for event in sorted(events)]


class AnyCase(click.Choice[str]):
    """One of the given words, in any letter case."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word as listed."""
        words = {str(word).lower(): str(word) for word in self.choices}
        return super().convert(words.get(str(value).lower(), value), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Return the words that begin as typed."""
        begun = incomplete.lower()
        return [CompletionItem(word) for word in self.choices if word.lower().startswith(begun)]


class WholeNumber(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            int(value)
        except ValueError:
            self.fail(f"{str(value)[:_MAX_SHOWN_CHARACTERS]!r} is not a whole number.", param, ctx)
        return super().convert(value, param, ctx)


UTF8: Final = Utf8()
WEBHOOK: Final = DocumentName("Webhook")
DELIVERY: Final = DocumentName("Webhook Delivery")
USER: Final = DocumentName("User")
ROLE: Final = DocumentName("Role")
KEY: Final = DocumentName("API Key")
EVENT: Final = EventName()


def _stored(ctx: click.Context, doctype: str, column: str, prefix: str) -> list[str]:
    """Return the values of a column that begin with `prefix`; none if there is no usable site."""
    context = ctx.find_object(CommandContext)
    if context is None:
        return []
    table = "doc_" + doctype.lower().replace(" ", "_")
    try:
        config = context.config
        if config.sqlite_file is not None:
            return values_in_file(config.sqlite_file, table, column, prefix)
        return values_in_database(config.deployment.database, table, column, prefix)
    except Exception:  # a traceback would be printed into the typed line
        return []


def values_in_file(path: Path, table: str, column: str, prefix: str) -> list[str]:
    """Return the values in an SQLite file that begin with `prefix`, each once, the highest first.

    At most `MAX_NAMES`; none without such a file or table.
    """
    if not path.is_file():
        return []
    try:
        opened = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_ANSWER_SECONDS
        )
        with closing(opened) as connection:
            rows = connection.execute(
                _statement(table, column, "?"), (prefix, prefix + _MAX_CHARACTER)
            )
            return [str(value) for (value,) in rows.fetchall()]
    except sqlite3.Error:
        return []


def values_in_database(url: str, table: str, column: str, prefix: str) -> list[str]:
    """Return the values in a PostgreSQL database, as `values_in_file`."""
    import psycopg  # few sites need its driver

    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
            connection.execute(f"SET statement_timeout = {int(_ANSWER_SECONDS * 1000)}")
            statement = _statement(table, column, "%s")
            rows = connection.execute(statement.encode(), (prefix, prefix + _MAX_CHARACTER))
            return [str(value) for (value,) in rows.fetchall()]
    except psycopg.Error:
        return []


def _statement(table: str, column: str, placeholder: str) -> str:
    """Return the look-up, which reads the index of names, if there is one, from the highest on.

    The names of deliveries are ordered by time, so the newest come first.
    """
    if not (table.isidentifier() and column.isidentifier()):
        raise ValueError(f"{table!r} and {column!r} are not the names of a table and a column")
    return (
        f"SELECT DISTINCT {column} FROM {table} "  # nosec B608
        f"WHERE {column} >= {placeholder} AND {column} <= {placeholder} "
        f"ORDER BY {column} DESC LIMIT {MAX_NAMES}"
    )


def require_known(fw: Fw, doctype: str, name: str) -> str:
    """Return the name of an existing document. Raises: CommandFailed suggesting the nearest."""
    if fw.exists(doctype, name) is None:
        deliveries = doctype == "Webhook Delivery"
        fields = ["name", "title"] if doctype == "Webhook" else ["name"]
        max_compared = _MAX_COMPARED_DELIVERIES if deliveries else _MAX_COMPARED_NAMES
        rows = fw.get_all(doctype, fields=fields, order_by="name desc", limit=max_compared)
        called = []
        for row in rows:  # a document with a title has one text, whichever of the two is alike
            title = row.get("title")
            text = f"{row['name']} ({title})" if title else row["name"]
            called += [(key, text) for key in (row["name"], title) if key]
        near = _suggestion(name, called, _ALIKE_IDS if deliveries else _ALIKE)
        raise CommandFailed(f"There is no {doctype} {name[:140]}.{near}")
    return name


def require_webhook(fw: Fw, name_or_title: str) -> str:
    """Return the name of the Webhook with this name, or else of the only one with this title.

    Raises: CommandFailed suggesting the nearest.
    """
    if fw.exists("Webhook", name_or_title) is None:
        titled = fw.get_all("Webhook", {"title": name_or_title}, ["name"], limit=2)
        if len(titled) == 1:
            return str(titled[0]["name"])
    return require_known(fw, "Webhook", name_or_title)


def require_webhook_on_record(fw: Fw, name: str) -> None:
    """Check that a Webhook exists, or has deliveries from before its deletion.

    Raises: CommandFailed suggesting the nearest.
    """
    if fw.exists("Webhook Delivery", {"webhook": name}) is None:
        require_known(fw, "Webhook", name)


def require_doctype_on_record(fw: Fw, doctype: str) -> None:
    """Check that a DocType exists, or has deliveries from before the removal of its app.

    Raises: CommandFailed suggesting the nearest.
    """
    if fw.exists("Webhook Delivery", {"reference_doctype": doctype}) is None:
        require_doctype(fw, doctype)


def require_doctype(fw: Fw, doctype: str) -> None:
    """Check that a DocType exists. Raises: CommandFailed suggesting the nearest."""
    metas = fw.documents.registry.metas
    if doctype not in metas:
        near = suggestion(doctype, [name for name, meta in metas.items() if not meta.child])
        raise CommandFailed(f"There is no DocType {doctype[:140]}.{near}")


def selection_options(act: str) -> Callable[[C], C]:
    """Add --webhook and --reference, by which a command selects many deliveries.

    `act` is what the command does to them, such as "Erase the deliveries".
    """

    def add(command: C) -> C:
        reference = click.option(
            "--reference",
            nargs=2,
            type=UTF8,
            metavar="DOCTYPE NAME",
            help=f"{act} about this document.",
        )
        webhook = click.option("--webhook", type=WEBHOOK, help=f"{act} of this Webhook.")
        return webhook(reference(command))

    return add


class DeliverySelection(NamedTuple):
    """The Webhook and the document, DocType and name, by which a command selects deliveries."""

    webhook: str | None
    reference: tuple[str, str] | None

    def followed(self, fw: Fw, delivery: str | None) -> DeliverySelection:
        """Return the selection under the present names, which are those of `delivery`.

        Args:
            delivery: one that the command has found by this selection; None: there is none yet.
        """
        fields = ["webhook", "reference_doctype", "reference_name"]
        rows = fw.get_all("Webhook Delivery", {"name": delivery}, fields) if delivery else []
        if not rows:  # the selection has found nothing, or the sweep has deleted the delivery
            return self
        webhook, *reference = (rows[0][field] for field in fields)
        return DeliverySelection(
            None if self.webhook is None else webhook,
            None if self.reference is None else (reference[0], reference[1]),
        )


def require_selection_on_record(
    context: CommandContext,
    delivery: str | None,
    webhook: str | None,
    reference: tuple[str, str] | None,
) -> None:
    """Check the delivery, or the Webhook and the DocType by which deliveries are selected.

    Raises: CommandFailed suggesting the nearest.
    """

    def check(_site: Site, fw: Fw) -> None:
        if delivery is not None:
            require_known(fw, "Webhook Delivery", delivery)
        if webhook is not None:
            require_webhook_on_record(fw, webhook)
        if reference is not None:
            require_doctype_on_record(fw, reference[0])

    if (delivery, webhook, reference) != (None, None, None):
        context.read(check)


def known_user(site: Site, fw: Fw, user: str) -> Any:
    """Return the User document of a name or e-mail in any spelling.

    Raises: CommandFailed suggesting the nearest names and addresses.
    """
    from fw_actors.access.users import find_user
    from fw_actors.errors import NotFoundError

    try:
        return find_user(fw, site.accounts, user)
    except NotFoundError as error:
        rows = fw.get_all("User", fields=["name", "email"], limit=_MAX_COMPARED_NAMES)
        identifiers = [row[field] for row in rows for field in ("name", "email")]
        raise CommandFailed(f"{error}{suggestion(user, identifiers)}") from None


def user_on_record(site: Site, fw: Fw, user: str, *, on_record: bool) -> str:
    """Return the name by which records name a user; a deleted one is `on_record` at most.

    Raises: CommandFailed suggesting the nearest names and addresses.
    """
    return user if on_record or user in _BUILT_IN else str(known_user(site, fw, user).name)


def suggestion(typed: str, candidates: list[str]) -> str:
    """Return a sentence with the candidates that resemble `typed`, after a space; empty if there
    is none."""
    return _suggestion(typed, [(each, each) for each in candidates])


def _suggestion(typed: str, candidates: list[tuple[str, str]], cutoff: float = _ALIKE) -> str:
    """Return a suggestion; each candidate is a name with the text that the sentence shows."""
    shown: dict[str, list[str]] = {}
    for name, text in candidates:
        shown.setdefault(name.lower(), []).append(text)
    near = get_close_matches(typed.lower(), shown, n=_MAX_SUGGESTIONS, cutoff=cutoff)
    texts = dict.fromkeys(text for each in near for text in shown[each])
    return f" Did you mean {' or '.join(list(texts)[:_MAX_SUGGESTIONS])}?" if near else ""
