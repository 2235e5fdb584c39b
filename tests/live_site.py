"""A real site for tests: its own folder, `fw serve` as a process, clients over HTTP, a receiver."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from supervisors.service import site_files
from supervisors.service.console_socket import remove_socket
from supervisors.service.site_files import SitePaths
from tests.app_modules import apps_as_they_were
from tests.commands import run_command
from tests.fork_server import ForkedProcess, fork_fw
from tests.site_kit import database_of

ROOT: Final = Path(__file__).parent.parent
PASSWORD: Final = "correct horse battery staple"
SECRET: Final = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
READY_SECONDS: Final = 120.0
EVENTUALLY_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.02
CHEAP_HASH: Final = "8,1,1"  # FW_ARGON2; most tests sign in, and few are about hashes
USUAL_HASH: Final = "19456,2,1"
NO_TLS: Final = httpx.create_ssl_context(verify=False)
"""`verify` of clients over plain HTTP: loading the trusted certificates takes 20 ms for each."""
T = TypeVar("T")


@dataclass
class LiveSite:
    """One site folder; at most one `fw serve` at a time. `argon2`: the cost of its hashes."""

    folder: Path
    ops: dict[str, Any] = field(default_factory=dict)
    apps: tuple[str, ...] = ("examples.notes",)
    url: str = ""
    process: ForkedProcess | None = None
    argon2: str = CHEAP_HASH

    def __post_init__(self) -> None:
        policy = {"site": {"name": "live"}, "ops": self.ops, "apps": list(self.apps)}
        (self.folder / "fw.json").write_text(json.dumps(policy))

    def fw(self, *args: str, stdin: str = "", **environ: str) -> str:
        """Run a command as a process to its end; return what it printed."""
        with contextlib.ExitStack() as stack:
            given, printed, said = (stack.enter_context(tempfile.TemporaryFile()) for _ in "123")
            given.write(stdin.encode())
            given.seek(0)
            streams = {"stdin": given.fileno(), "stderr": said.fileno()}
            done = self.begin(*args, stdout=printed.fileno(), **streams, environ=environ)
            code = done.wait(120)
            for stream in (printed, said):
                stream.seek(0)
            assert code == 0, said.read().decode()
            return printed.read().decode()

    def begin(
        self, *args: str, environ: Mapping[str, str] = MappingProxyType({}), **streams: int
    ) -> ForkedProcess:
        """Start a process of `fw`; `streams` are descriptors, see `fork_fw`."""
        whole = self.environ(**environ)
        return fork_fw(*args, folder=self.folder, environ=whole, **streams)

    def prepare(self, *args: str, stdin: str = "", **environ: str) -> str:
        """Run a command for its effect; return what it printed.

        It runs in this process, which takes a tenth of the time of one of its own.
        """
        with apps_as_they_were(self.folder):
            done = run_command(self.folder, self.environ(**environ), *args, stdin=stdin)
        assert done.exit_code == 0, done.output
        return done.stdout

    def add_manager(self, name: str = "admin") -> None:
        """Make a System Manager."""
        role = ("--role", "System Manager", "--password-stdin")
        self.prepare("user", "add", name, "--email", f"{name}@example.test", *role, stdin=PASSWORD)

    def start(self, **environ: str) -> None:
        """Start `fw serve` and wait until it is ready."""
        read, write = os.pipe()
        with (self.folder / "serve.log").open("a") as log:
            streams = {"stdout": write, "stderr": log.fileno()}
            self.process = self.begin("serve", environ=environ, **streams)
        os.close(write)
        with open(read, encoding="utf-8") as stdout:
            readable, _, _ = select.select([stdout], [], [], READY_SECONDS)
            line = stdout.readline() if readable else ""
        assert line.startswith("ready "), (self.folder / "serve.log").read_text()
        self.url = line.split()[1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; return the exit code."""
        process = self.process
        assert process is not None
        process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        process = self.process
        assert process is not None
        code = process.wait(30)
        self.process = None
        return code

    def processes(self) -> set[int]:
        """Return the processes of a service of several, ready or not."""
        record = site_files.read(SitePaths(self.folder).pid)
        return {each.pid for each in record.serving if each.pid} if record else set()

    def children(self) -> set[int]:
        """Return the processes that `fw serve` has started: with `processes` the fork server."""
        assert self.process is not None
        files = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return {int(child) for file in files for child in file.read_text().split()}

    @contextlib.contextmanager
    def client(self, name: str = "admin") -> Iterator[httpx.Client]:
        """A signed-in client."""
        with httpx.Client(
            base_url=self.url, headers={"X-FW-CSRF": "1"}, timeout=30, verify=NO_TLS
        ) as client:
            answer = client.post("/api/login", json={"usr": name, "pwd": PASSWORD})
            assert answer.status_code == 200, answer.text
            yield client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.end(signal.SIGKILL)
            remove_socket(self.folder / "data" / "console.address")

    def command(self, *args: str) -> list[str]:
        """Return the command line of a process with an interpreter of its own."""
        return [sys.executable, "-P", "-m", "fw_cli", *args]

    def environ(self, **environ: str) -> dict[str, str]:
        """Return the environment of the processes of this site."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FW_")}
        own = {"FW_BIND": "127.0.0.1:0", "FW_SECRET_KEY": "k" * 40, "PYTHONPATH": str(ROOT)}
        own |= {"FW_ARGON2": self.argon2, "FW_DATABASE": database_of(self.folder)}
        return kept | own | environ


@dataclass(frozen=True)
class ReceivedPost:
    """One POST that a receiver got."""

    headers: dict[str, str]
    body: bytes


class _QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # connections that are not accepted yet

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a sender that was killed."""


class LiveReceiver:
    """A receiver in threads of its own; answers `answers` in turn, the last one for ever.

    An answer is a status, or None to hang until `release`, or the test is over; then it is 204.
    `body` comes with each but a 204.
    """

    body = b""

    def __init__(self, *answers: int | None) -> None:
        self.answers = answers or (204,)
        self.got: list[ReceivedPost] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class ScriptedPostHandler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {key.lower(): value for key, value in self.headers.items()}
                status = outer._take(ReceivedPost(headers, body))
                if status is None:
                    outer._over.wait()
                    status = 204
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    body = b"" if status == 204 else outer.body
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = _QuietServer(("127.0.0.1", 0), ScriptedPostHandler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def release(self) -> None:
        """Answer those that hang."""
        self._over.set()

    @property
    def ids(self) -> list[str]:
        """The `webhook-id` of each POST, in order."""
        return [got.headers["webhook-id"] for got in list(self.got)]

    def _take(self, got: ReceivedPost) -> int | None:
        with self._lock:
            answer = self.answers[min(len(self.got), len(self.answers) - 1)]
            self.got.append(got)
            return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


def eventually(probe: Callable[[], T], seconds: float = EVENTUALLY_SECONDS) -> T:
    """Call `probe` until its result is true, and return that."""
    end = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < end, f"still {found!r} after {seconds} s"
        time.sleep(_POLL_SECONDS)
    return found
