"""The suite `flows`: the number of functions, files and hand-overs that a request passes.

Two flows of the real service (`fw serve` on SQLite, real sockets, a real receiver), each repeated
until it is warm: a sign-in, and a Note from its POST until the outcome of its delivery is stored.
The figures measure how much a reader of a flow has to hold together; they do not measure speed.

Calls are those of functions in the product's own packages, in the order of time, in all threads.
A hand-over is a call by another task or thread than the call before. Callbacks that trio runs for
other threads belong to no task of their own.

`--flows-of FOLDER` counts another checkout, `--flows-trace` prints the calls in order.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby, pairwise
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from benchmarks.rows import BenchmarkRow, Effort

ROOT: Final = Path(__file__).parents[1]
WARM: Final = 5  # so many of each before the first that counts
LEAST_RECORDED: Final = 30  # of each: few of them have no timer or other thread among their calls
READY_SECONDS: Final = 60.0
OUTCOME_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.01
SETTLE_SECONDS: Final = 0.05  # the rest of a flow after its client has the response
PASSWORD: Final = "correct horse battery staple"
BEFORE: Final = "c3497b0"  # the commit before modules were merged, by this same counter
LIMIT: Final = "the limit"
ENTRY_QUEUE: Final = "<TrioToken.run_sync_soon task>"  # in which trio runs callbacks of threads

References = dict[str, tuple[float, str]]
LOGIN: Final[References] = {
    "calls": (374, BEFORE),
    "functions": (223, BEFORE),
    "files": (36, LIMIT),
    "folders": (10, BEFORE),
    "changes of file": (110, LIMIT),
    "changes of folder": (79, BEFORE),
    "changes of thread": (8, BEFORE),
    "hand-overs": (8, LIMIT),
    "deepest stack": (17, BEFORE),
}
NOTE: Final[References] = {
    "calls": (640, BEFORE),
    "functions": (379, BEFORE),
    "files": (60, LIMIT),
    "folders": (11, BEFORE),
    "changes of file": (230, LIMIT),
    "changes of folder": (170, BEFORE),
    "changes of thread": (10, BEFORE),
    "hand-overs": (18, BEFORE),
    "deepest stack": (21, BEFORE),
}


@dataclass(frozen=True)
class RecordedCall:
    """One call of an own function."""

    file: str
    function: str
    thread: int
    task: int
    owner: str
    depth: int

    @property
    def folder(self) -> PurePosixPath:
        """The folder of the file."""
        return PurePosixPath(self.file).parent


@dataclass(frozen=True)
class Flow:
    """The calls of one flow, in the order of time, whatever thread and task made them."""

    calls: Sequence[RecordedCall]

    def figures(self) -> dict[str, int]:
        """Return the figures by name."""
        calls = self.calls
        return {
            "calls": len(calls),
            "functions": len({(c.file, c.function) for c in calls}),
            "files": len({c.file for c in calls}),
            "folders": len({c.folder for c in calls}),
            "changes of file": _changes([c.file for c in calls]),
            "changes of folder": _changes([c.folder for c in calls]),
            "changes of thread": _changes([c.thread for c in calls]),
            "hand-overs": _changes([(c.thread, c.task) for c in calls if c.owner != ENTRY_QUEUE]),
            "deepest stack": max((c.depth for c in calls), default=0),
        }

    def trace(self) -> Iterator[str]:
        """Yield a line for each stretch within one file, and one for each task or thread."""
        numbers: dict[tuple[int, int], int] = {}
        by_owner = groupby(self.calls, key=lambda call: (call.thread, call.task, call.owner))
        for (thread, task, owner), calls in by_owner:
            number = numbers.setdefault((thread, task), len(numbers) + 1)
            yield f"{number}. {'task' if task else 'thread'} {owner}"
            for file, within in groupby(calls, key=lambda call: call.file):
                yield f"   {file}: {', '.join(call.function for call in within)}"

    def stretches(self) -> list[tuple[str, int]]:
        """Return each file with its number of stretches, in descending order."""
        return Counter(file for file, _ in groupby(call.file for call in self.calls)).most_common()


def _changes(places: Sequence[object]) -> int:
    return sum(one != other for one, other in pairwise(places))


class RecordedService:
    """A service that runs under the recorder."""

    def __init__(self, url: str, database: Path, control: socket.socket) -> None:
        self._authority = url.partition("//")[2]
        self._database = database
        self._lines = control.makefile("rw")
        self._client = http.client.HTTPConnection(self._authority, timeout=30)
        self._cookie = ""

    def login(self) -> Flow:
        """Sign in over the kept connection, as a client without a session."""
        return self._recorded(self._sign_in)

    def note(self, title: str) -> Flow:
        """Make a Note that one Webhook watches; the flow ends with the stored outcome."""
        before = self._sent()

        def work() -> None:
            self.call("POST", "/api/resource/Note", {"title": title})
            end = time.monotonic() + OUTCOME_SECONDS
            while self._sent() == before:
                assert time.monotonic() < end, "the delivery has no outcome"
                time.sleep(POLL_SECONDS)

        return self._recorded(work)

    def sign_in(self) -> None:
        """Sign in and keep the session."""
        self._cookie = self._sign_in()

    def call(self, method: str, path: str, body: object) -> Any:
        """Call the API by the session that is kept."""
        return self._call(method, path, body, {"Cookie": self._cookie})[0]

    def _sign_in(self) -> str:
        _, headers = self._call("POST", "/api/login", {"usr": "admin", "pwd": PASSWORD}, {})
        return str(headers["set-cookie"]).partition(";")[0]

    def _call(
        self, method: str, path: str, body: object, headers: dict[str, str]
    ) -> tuple[Any, http.client.HTTPMessage]:
        headers |= {"Content-Type": "application/json", "X-FW-CSRF": "1"}
        self._client.request(method, path, json.dumps(body), headers)
        response = self._client.getresponse()
        answer = json.loads(response.read())
        assert response.status < http.client.BAD_REQUEST, answer
        return answer, response.headers

    def _recorded(self, work: Callable[[], object]) -> Flow:
        self._command("begin")
        work()
        time.sleep(SETTLE_SECONDS)
        return Flow([RecordedCall(*each) for each in self._command("end")])

    def _command(self, word: str) -> Any:
        self._lines.write(f"{word}\n")
        self._lines.flush()
        return json.loads(self._lines.readline())

    def _sent(self) -> int:
        with closing(sqlite3.connect(self._database)) as database:
            text = "SELECT count(*) FROM doc_webhook_delivery WHERE status = 'Sent'"
            return int(database.execute(text).fetchone()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._lines.close()


class _Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@contextmanager
def receiver() -> Iterator[str]:
    """Run a receiver that answers 204; give its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def recording(checkout: Path) -> Iterator[RecordedService]:
    """Serve a new site by the code of `checkout`, under the recorder."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        policy = {"site": {"name": "flows"}, "auth": {"addressAttempts": 1_000_000}}
        (folder / "fw.json").write_text(json.dumps(policy | {"apps": ["examples.notes"]}))
        environ = {k: v for k, v in os.environ.items() if not k.startswith("FW_")}
        environ |= {"FW_BIND": "127.0.0.1:0", "FW_SECRET_KEY": "k" * 40}
        # A hash of milliseconds, so that fewer timers of others fall into a sign-in.
        environ |= {"FW_ARGON2": "64,1,1", "FW_LOG_LEVEL": "info", "PYTHONPATH": str(checkout)}
        fw = [sys.executable, "-P", "-m", "fw_cli"]
        role = ["--role", "System Manager", "--password-stdin"]
        subprocess.run(
            [*fw, "user", "add", "admin", "--email", "a@x.test", *role],
            cwd=folder, env=environ, input=PASSWORD, text=True, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        near, far = socket.socketpair()
        recorder = Path(__file__).with_name("flow_recorder.py")
        with near, (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", str(recorder), str(far.fileno())],
                cwd=folder, env=environ, pass_fds=[far.fileno()], text=True,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
            far.close()
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith("ready "), (folder / "log").read_text()
                with RecordedService(line.split()[1], folder / "data" / "fw.db", near) as running:
                    yield running
            finally:
                process.kill()
                process.communicate()


def flows(checkout: Path, rounds: int) -> dict[str, list[Flow]]:
    """Record both flows `rounds` times, and at least `LEAST_RECORDED` times, warm."""
    with receiver() as url, recording(checkout) as running:
        running.sign_in()
        running.call("POST", "/api/resource/Webhook", {
            "url": url, "event_type": "Document", "webhook_doctype": "Note", "on_insert": 1,
            "secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        })  # fmt: skip
        for number in range(WARM):
            running.login()
            running.note(f"warm {number}")
        recorded = max(rounds, LEAST_RECORDED)
        return {
            "login": [running.login() for _ in range(recorded)],
            "note": [running.note(f"round {number}") for number in range(recorded)],
        }


def least_disturbed(found: Sequence[Flow]) -> Flow:
    """Return the flow with the fewest changes: timers that run beside a flow only add to it."""
    return min(found, key=lambda flow: flow.figures()["changes of file"])


def rows(effort: Effort, checkout: Path = ROOT, *, trace: bool = False) -> list[BenchmarkRow]:
    """Count both flows of `checkout`; with `trace`, tell their calls in the order of time."""
    found = []
    for name, recorded in flows(checkout, effort.rounds).items():
        flow = least_disturbed(recorded)
        for each, ours in flow.figures().items():
            reference, named = (LOGIN if name == "login" else NOTE)[each]
            row = BenchmarkRow(
                "flows", f"{name}/{each}", "", ours, reference, named, reference / ours
            )
            found.append(row)
        if trace:
            stretches = [f"   {count:3} {file}" for file, count in flow.stretches()]
            effort.tell("\n".join([f"-- {name}", *flow.trace(), "stretches by file:", *stretches]))
    return found
