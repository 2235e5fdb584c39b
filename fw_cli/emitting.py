"""`fw webhooks emit`: one event from arguments, or many from a file of JSON lines."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from fw_actors.rules import LARGE_BODY_BYTES
from fw_cli.context import ADMINISTRATOR, CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import as_json, counted, say, show_json, show_refusals
from fw_cli.progress import progress
from fw_cli.values import EVENT, UTF8, suggestion

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site

_STDIN: Final = "-"
_LINES_PER_TRANSACTION: Final = 500
_BYTES_PER_TRANSACTION: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_DUPLICATE: Final = "DuplicateError"
_MAX_SHOWN_REFUSALS: Final = 1_000
_NO_JSON: Final = object()
_OFF: Final = "FW_WEBHOOKS is off: no delivery was queued."
OVERLOADED_ATTEMPTS: Final = 30


@dataclass
class Emission:
    """The result of a file: counts, and the first 1,000 lines that were refused, with their errors.

    `known` counts the events whose key a Webhook has received before. `lines`: the number of the
    last line whose event is emitted, skipped or refused, as are those of all lines before it.
    """

    emitted: int = 0
    deliveries: int = 0
    known: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    without_key: int = 0
    refusals: int = 0
    lines: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the output of `--json`; `refusals` only if not all are listed."""
        fields = asdict(self)
        del fields["lines"]
        if self.refusals == len(self.refused):
            del fields["refusals"]
        return fields


@click.command(
    epilog=examples(
        "fw webhooks emit invoice.paid --data '{\"number\": 7}' --key invoice-7",
        "fw webhooks emit --file events.jsonl",
        "fw webhooks emit --file - --json < events.jsonl",
    )
)
@click.argument("name", type=EVENT, required=False)
@click.option("--data", type=UTF8, help="The event's data, a JSON object.  [default: {}]")
@click.option("--key", help="An idempotency key: each Webhook receives it once.")
@click.option(
    "--file", "source", type=click.Path(dir_okay=False, allow_dash=True),
    help="Emit an event for each line, {name, data, reference?, key?}; - is stdin.",
)  # fmt: skip
@as_json
@click.pass_obj
def emit(
    context: CommandContext,
    name: str | None,
    data: str | None,
    key: str | None,
    source: str | None,
    as_json: bool,
) -> None:
    """Emit the custom event NAME, or the events of a file.

    A file is emitted 500 lines at a time, each part in one transaction; the lines of a pipe are
    emitted as they arrive. If it was interrupted, run it again: events whose key was emitted are
    skipped.
    """
    if (name is None) == (source is None):
        raise click.UsageError("Give the NAME of one event, or a file of events with --file.")
    if source is not None:
        if data is not None or key is not None:
            raise click.UsageError("--data and --key apply to one event; omit them with --file.")
        _emit_file(context, source, as_json=as_json)
        return
    from fw_actors.errors import BadRequestError

    try:
        payload = _read_json("{}" if data is None else data)
    except BadRequestError as refusal:
        raise CommandFailed(f"--data: {refusal.message}") from None
    if payload is _NO_JSON:
        raise CommandFailed("--data is not valid JSON.")
    if not isinstance(payload, dict):
        raise CommandFailed("--data must be an object.")

    result, reason = _emit_one(context, name or "", payload, key)
    if as_json:
        show_json(result)
    else:
        for line in result["deliveries"] or [reason]:
            say(line)


def _emit_one(
    context: CommandContext, event: str, data: dict[str, Any], key: str | None
) -> tuple[dict[str, list[str]], str]:
    """Emit an event; return its result, and why there are no deliveries, if there are none."""

    async def use(site: Site) -> tuple[dict[str, list[str]], str]:
        result = await site.write(ADMINISTRATOR, lambda fw: fw.webhooks.emit(event, data, key=key))
        if result["deliveries"]:
            return result, ""
        if _is_off(context):
            return result, _OFF
        near = await site.read(ADMINISTRATOR, partial(_near, event))
        return result, f"No Webhook subscribes to it.{near}"

    return context.on_site(use)


def _is_off(context: CommandContext) -> bool:
    """Return whether events become no deliveries, whatever Webhooks there are."""
    return context.config.deployment.webhooks_off


def _near(event: str, fw: Fw) -> str:
    """Return the sentence that offers a similar event to which a Webhook subscribes, or nothing."""
    rows = fw.get_all(
        "Webhook", {"event_type": "Custom", "enabled": 1}, ["custom_event"], limit=1000
    )
    return suggestion(event, [row["custom_event"] for row in rows])


def _emit_file(context: CommandContext, source: str, *, as_json: bool) -> None:
    with ExitStack() as stack:
        size, descriptor = 0, 0
        if source != _STDIN:
            try:
                file = stack.enter_context(Path(context.cwd, source).open("rb", buffering=0))
            except OSError as error:
                raise CommandFailed(f"{source} cannot be read: {error.strerror}.") from None
            descriptor = file.fileno()
        status = os.fstat(descriptor)
        is_stream = not stat.S_ISREG(status.st_mode)
        if source != _STDIN:
            size = status.st_size
        advance = stack.enter_context(progress("emitting"))
        result = Emission()
        lines = _EventLines(result, is_stream=is_stream)

        async def use(site: Site) -> None:
            is_open = True
            while is_open:
                chunk = await _read_chunk(descriptor)
                is_open = bool(chunk)
                for batch in lines.feed(chunk):
                    await _emit_batch(site, batch.events, result)
                    result.lines = batch.last_line
                    advance(batch.read, max(size, batch.read) if size else None)  # None: stdin

        try:
            context.on_site(use)
        except BaseException:
            done = counted(result.emitted, "event")
            click.echo(f"Interrupted after line {result.lines:,}: {done} emitted.", err=True)
            raise
    result.refused.sort(key=lambda refusal: refusal["line"])
    if as_json:
        show_json(result.as_json())
    else:
        _show(result, off=_is_off(context))
    if result.refusals:
        count = result.refusals
        refused = "1 event was refused" if count == 1 else f"{count:,} events were refused"
        raise CommandFailed(f"{refused}; the others were emitted.")


async def _read_chunk(descriptor: int) -> bytes:
    """Return the next bytes of a file, or those that a stream has; nothing at its end.

    In a thread: while a stream has nothing, the program's subscriptions are kept up to date (B-49).
    The descriptor is read without a Python file, whose lock an abandoned read would hold at exit.
    """
    import trio

    return await trio.to_thread.run_sync(os.read, descriptor, _CHUNK_BYTES, abandon_on_cancel=True)


class _Batch(NamedTuple):
    """The events of some lines, with their line numbers; the number of the last line; and how many
    bytes of the file were read."""

    events: list[tuple[int, dict[str, Any]]]
    last_line: int
    read: int


class _EventLines:
    """Divides a file of events into batches for one transaction each."""

    def __init__(self, result: Emission, *, is_stream: bool) -> None:
        """`result` gets the refused lines. The lines of a stream are a batch as soon as the stream
        has no more at the moment: the next ones may take hours."""
        self._result, self._is_stream = result, is_stream
        self._rest = b""  # the beginning of the next line
        self._is_too_long = False  # the next line is, and its beginning is dropped
        self._number = self._read = self._begun = 0
        self._events: list[tuple[int, dict[str, Any]]] = []

    def feed(self, chunk: bytes) -> Iterator[_Batch]:
        """Yield the batches that are complete with `chunk`; no bytes are the end of the file."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._read += len(line) + 1
            self._add(line)
            is_long = self._read - self._begun >= _BYTES_PER_TRANSACTION
            if is_long or len(self._events) == _LINES_PER_TRANSACTION:
                yield self._batch()
        if not chunk and (rest or self._is_too_long):
            self._read += len(rest)
            self._add(rest)
            rest = b""
        if len(rest) > LARGE_BODY_BYTES:
            self._read += len(rest)
            self._is_too_long, rest = True, b""
        self._rest = rest
        if not chunk or self._is_stream:
            yield self._batch()

    def _batch(self) -> _Batch:
        events, self._events, self._begun = self._events, [], self._read
        return _Batch(events, self._number, self._read)

    def _add(self, line: bytes) -> None:
        from fw_actors.errors import BadRequestError

        self._number += 1
        if self._number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if self._is_too_long or len(line) > LARGE_BODY_BYTES:
            self._is_too_long = False
            self._refuse(f"A line must have at most {LARGE_BODY_BYTES // 1024} KiB.")
        elif line.strip():
            try:
                event = _read_json(line)
            except BadRequestError as refusal:
                self._refuse(refusal.message)
            else:
                if isinstance(event, dict):
                    self._events.append((self._number, event))
                else:
                    self._refuse("A line must be a JSON object.")

    def _refuse(self, message: str) -> None:
        _refuse(self._result, self._number, message)


async def _emit_batch(
    site: Site, batch: list[tuple[int, dict[str, Any]]], result: Emission
) -> None:
    from fw_actors.errors import ValidationError

    if not batch:
        return
    events = [event for _, event in batch]
    try:
        results = await _emit_when_possible(site, events)
    except ValidationError:  # too many Webhooks receive them
        if len(batch) == 1:
            raise
        middle = len(batch) // 2
        await _emit_batch(site, batch[:middle], result)
        await _emit_batch(site, batch[middle:], result)
        return
    for (number, event), each in zip(batch, results, strict=True):
        error = each.get("error")
        if error is None:
            result.emitted += 1
            result.deliveries += len(each["deliveries"])
            result.without_key += event.get("key") is None
        elif error["type"] == _DUPLICATE:
            result.known += 1
        else:
            _refuse(result, number, error["message"])


async def _emit_when_possible(site: Site, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Emit events, again for up to half a minute while other processes keep the store busy."""
    import trio

    from fw_actors.errors import OverloadedError

    for _ in range(OVERLOADED_ATTEMPTS):
        try:
            return await site.write(ADMINISTRATOR, lambda fw: fw.webhooks.emit_many(events))
        except OverloadedError as busy:
            await trio.sleep(busy.retry_after)
    return await site.write(ADMINISTRATOR, lambda fw: fw.webhooks.emit_many(events))


def _refuse(result: Emission, number: int, message: str) -> None:
    result.refusals += 1
    if len(result.refused) < _MAX_SHOWN_REFUSALS:
        result.refused.append({"line": number, "error": message})


def _read_json(text: str | bytes) -> Any:
    """Return the value; `_NO_JSON` if it is none. Raises: BadRequestError for a duplicate key."""
    import msgspec

    from web.json_input import DECODER

    try:
        value = msgspec.json.decode(text)
        # msgspec takes the last of two values; HTTP refuses such a body.
        DECODER.decode(text if isinstance(text, str) else text.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NO_JSON
    return value


def _show(result: Emission, *, off: bool) -> None:
    deliveries = "1 delivery" if result.deliveries == 1 else f"{result.deliveries:,} deliveries"
    say(f"Emitted {counted(result.emitted, 'event')}, {deliveries}.")
    if off and result.emitted:
        say(_OFF)
    if result.known:
        say(f"Skipped {counted(result.known, 'event')} whose key was emitted before.")
    if result.without_key:
        say(
            f"Without a key: {counted(result.without_key, 'event')}; a second run emits them again."
        )
    show_refusals(result.refused, result.refusals)
