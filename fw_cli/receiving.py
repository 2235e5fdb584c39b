"""`fw webhooks verify` and `fw webhooks listen`: the receiver's side, on this machine."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fw_cli.context import CommandContext
from fw_cli.errors import CommandFailed
from fw_cli.examples import examples
from fw_cli.output import as_json, json_text, say, show_json
from fw_cli.secret_input import read_secret, secret_options
from fw_cli.values import WEBHOOK, WholeNumber, require_known

if TYPE_CHECKING:
    from fw_actors.documents.handle import Fw
    from fw_actors.ops.site import Site
    from fw_actors.rules.signing import SavedRequest, Verification

F = TypeVar("F", bound=Callable[..., Any])

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_MAX_LENGTH_DIGITS: Final = 20  # of a Content-Length; int() refuses some thousands
_READ_SECONDS: Final = 30
_MAX_SHOWN_CHARACTERS: Final = 2000
_STDIN: Final = "-"


def _webhook_option(command: F) -> F:
    return click.option(
        "--webhook", type=WEBHOOK, help="Verify with the secret of this Webhook of the site."
    )(command)


def _secret(
    context: CommandContext, webhook: str | None, *, from_stdin: bool, variable: str | None
) -> str | None:
    """Return the secret to verify with; None if no option names one."""
    if webhook is not None and (from_stdin or variable is not None):
        raise click.UsageError("--webhook excludes --secret-stdin and --secret-env.")
    if webhook is None and not from_stdin and variable is None:
        return None
    if webhook is None:
        return read_secret(context, from_stdin=from_stdin, variable=variable)

    def read(_site: Site, fw: Fw) -> str | None:
        secret: str | None = fw.get_doc("Webhook", require_known(fw, "Webhook", webhook)).vault(
            "secret"
        )
        return secret

    stored = context.read(read)
    if stored is None:
        raise CommandFailed(
            f"{webhook} has no signing secret; fw webhooks rotate-secret {webhook} creates one"
        )
    return stored


@click.command(
    epilog=examples(
        "fw webhooks verify request.txt --webhook erp",
        "fw webhooks verify request.txt --secret-env ERP --tolerance 300",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@_webhook_option
@secret_options
@click.option(
    "--tolerance", type=click.FloatRange(0), help="The maximum age in seconds; by default any."
)
@as_json
@click.pass_obj
def verify(
    context: CommandContext,
    file: str,
    webhook: str | None,
    secret_stdin: bool,
    secret_env: str | None,
    tolerance: float | None,
    as_json: bool,
) -> None:
    """Verify the request saved in FILE as its receiver must; - is stdin.

    FILE has header lines, an empty line and the body, as fw webhooks listen --save writes them; or
    JSON with headers and body. Exits 1 if a receiver must refuse the request, and says why.
    """
    if file == _STDIN and secret_stdin:
        raise click.UsageError("stdin cannot be both the request and the secret.")
    if tolerance is not None and math.isnan(tolerance):  # no range excludes NaN
        raise click.UsageError("--tolerance must be a number of seconds.")
    from fw_actors.rules.signing import (
        UnreadableRequest,
        UnusableSecretError,
        parse_saved,
        verify_request,
    )
    from fw_actors.runtime import SystemClock

    content = _read(context.cwd, file)
    secret = _secret(context, webhook, from_stdin=secret_stdin, variable=secret_env)
    if secret is None:
        raise click.UsageError("Give the secret with --webhook, --secret-stdin or --secret-env.")
    try:
        verification = verify_request(secret, parse_saved(content), SystemClock().now(), tolerance)
    except (UnreadableRequest, UnusableSecretError) as error:
        raise CommandFailed(str(error)) from None
    if as_json:
        show_json(_as_json(verification))
    elif verification.verified:
        say(
            f"{verification.delivery}: the signature is valid; signed {verification.age:,.0f} s ago"
        )
    if not verification.verified:
        raise CommandFailed(" ".join(verification.faults))


def _as_json(verification: Verification) -> dict[str, Any]:
    age = None if verification.age is None else round(verification.age, 1)
    return {
        "verified": verification.verified,
        "delivery": verification.delivery,
        "ageSeconds": age,
        "faults": list(verification.faults),
    }


def _read(folder: Path, file: str) -> bytes:
    try:
        if file == _STDIN:
            content = sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
        else:
            with (folder / file).open("rb") as opened:
                content = opened.read(MAX_BODY_BYTES + 1)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}.") from None
    if len(content) > MAX_BODY_BYTES:
        raise CommandFailed(f"{file} must have at most {MAX_BODY_BYTES // 1024**2} MiB.")
    return content


@click.command(
    epilog=examples(
        "fw webhooks listen --webhook erp                  # at http://127.0.0.1:9000/",
        "fw webhooks listen --port 0 --status 503 --save requests/",
    )
)
@click.option(
    "--port", type=WholeNumber(0, 65535), default=9000, show_default=True,
    help="The local port to listen on; 0 selects a free one.",
)  # fmt: skip
@_webhook_option
@secret_options
@click.option(
    "--status", type=WholeNumber(200, 599), default=204, show_default=True,
    help="The status of the response.",
)  # fmt: skip
@click.option(
    "--save", "folder", type=click.Path(file_okay=False, path_type=Path),
    help="Write each request into this folder, for fw webhooks verify.",
)  # fmt: skip
@click.option("--count", type=WholeNumber(1), help="End after this many requests.")
@as_json
@click.pass_obj
def listen(
    context: CommandContext,
    port: int,
    webhook: str | None,
    secret_stdin: bool,
    secret_env: str | None,
    status: int,
    folder: Path | None,
    count: int | None,
    as_json: bool,
) -> None:
    """Receive requests on this machine, verify and print them, until Ctrl-C.

    Without a secret nothing is verified. With --json each request is printed as a line of JSON.
    Exits 1 if a request could not be verified.
    """
    secret = _secret(context, webhook, from_stdin=secret_stdin, variable=secret_env)
    if folder is not None:
        shown_folder, folder = folder, context.cwd / folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"{shown_folder} cannot be created: {error.strerror}.") from None
    listener = _ReceivedRequests(secret, status, folder, count, as_json=as_json)
    try:
        server = _ReceivingServer(("127.0.0.1", port), listener.handler())
    except OSError as error:
        raise CommandFailed(f"cannot listen on port {port}: {error.strerror}") from None
    with server, _ended_by_signals(server):
        listener.server = server
        click.echo(f"listening at http://127.0.0.1:{server.server_port}/", err=True)
        server.serve_forever(poll_interval=0.1)
    if listener.refused:
        raise CommandFailed(
            f"{listener.refused} of {listener.received} requests could not be verified"
        )


@contextmanager
def _ended_by_signals(server: ThreadingHTTPServer) -> Iterator[None]:
    """Make SIGTERM end the server like Ctrl-C; both are its normal end."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        server.server_close()


class _ReceivingServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of the system, such as a full disk; a client may close its connection."""
        error = sys.exception()
        if isinstance(error, OSError) and not isinstance(error, ConnectionError):
            click.echo(f"a request failed: {error.strerror or error}", err=True)
        elif not isinstance(error, ConnectionError):
            super().handle_error(request, client_address)


class _ReceivedRequests:
    """Counts and keeps the received requests; handlers of several threads share it."""

    server: ThreadingHTTPServer

    def __init__(
        self, secret: str | None, status: int, folder: Path | None, count: int | None,
        *, as_json: bool,
    ) -> None:  # fmt: skip
        self._secret, self._status, self._folder = secret, status, folder
        self._count, self._as_json = count, as_json
        self._lock = Lock()
        self.received = self.refused = 0

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Return the class of handlers that pass their requests to this listener."""
        listener = self

        class ReceivingHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = _READ_SECONDS

            def do_POST(self) -> None:
                listener.attend(self)

            def log_message(self, format: str, *args: object) -> None:
                """Print no line of its own."""

        return ReceivingHandler

    def attend(self, handler: BaseHTTPRequestHandler) -> None:
        """Read, verify and print a request, and respond."""
        from fw_actors.rules.signing import SavedRequest

        length = handler.headers.get("content-length", "")
        is_number = length.isascii() and length.isdecimal()
        if not is_number or len(length) > _MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
            handler.close_connection = True
            handler.send_error(413 if is_number else 400 if length else 411)
            return
        body = handler.rfile.read(int(length))
        if len(body) < int(length):  # the client has closed the connection
            handler.close_connection = True
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            if self._count is not None and self.received >= self._count:
                handler.close_connection = True
                return
            try:
                self._take(SavedRequest(headers, body), handler)
            except BrokenPipeError:  # nobody reads the output any more
                self._count = self.received
            last = self.received == self._count
        handler.send_response(self._status)
        handler.send_header("content-length", "0")
        handler.end_headers()
        if last:
            handler.wfile.flush()
            handler.close_connection = True
            self.server.shutdown()  # called in another thread than the serving one

    def _take(self, request: SavedRequest, handler: BaseHTTPRequestHandler) -> None:
        from fw_actors.rules.signing import event_type_of, verify_request
        from fw_actors.runtime import SystemClock

        self.received += 1
        verification = None
        if self._secret is not None:
            verification = verify_request(self._secret, request, SystemClock().now())
            self.refused += not verification.verified
        saved = None if self._folder is None else _save(self._folder, self.received, request)
        event = event_type_of(request.body)
        if self._as_json:
            result = {
                "event": event,
                "path": handler.path,
                **({} if verification is None else _as_json(verification)),
                "headers": dict(request.headers),
                "body": request.body.decode("utf-8", "replace"),
                "file": None if saved is None else str(saved),
            }
            click.echo(json_text(result))
            return
        verdict = "not verified: no secret was given"
        if verification is not None:
            verdict = "verified" if verification.verified else " ".join(verification.faults)
        say(f"{request.headers.get('webhook-id', '-')} {event or '-'} {handler.path}: {verdict}")
        text = request.body.decode("utf-8", "replace")
        say(f"  {text[:_MAX_SHOWN_CHARACTERS]}{' …' if len(text) > _MAX_SHOWN_CHARACTERS else ''}")


def _save(folder: Path, number: int, request: SavedRequest) -> Path:
    """Write a request in the form that `fw webhooks verify` reads, for its owner only.

    Any program of this machine can send a request and so choose content and name: a file of the
    name, which may be a link to another file, is replaced and not written through.
    """
    name = "".join(c for c in request.headers.get("webhook-id", "") if c.isalnum() or c in "_-")
    head = "".join(f"{field}: {value}\r\n" for field, value in request.headers.items())
    path = folder / f"{number:04}-{name[:64] or 'request'}.txt"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(head.encode("latin-1", "replace") + b"\r\n" + request.body)
    return path
