"""The story of `fw demo`: an event and its deliveries to a healthy and a failing receiver."""

from __future__ import annotations

import base64
import logging
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
import trio
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fw_actors.rules.delivery import wait_seconds
from fw_actors.runtime import SystemClock, SystemEntropy
from fw_cli.demo_receiver import DemoPost, DemoReceiver
from fw_cli.demo_site import BACKOFF_SECONDS, PASSWORD, USER, Client, make_site, make_user
from fw_cli.errors import CommandFailed

if TYPE_CHECKING:
    from supervisors.service.tree import RunningService

T = TypeVar("T")

MAX_STORY_SECONDS: Final = 60.0
REFRESH_SECONDS: Final = 0.2
_REMOVALS: Final = 3
FAILURES: Final = (503, 503, 503, 204)
_COLOURS: Final = {"Sent": "green", "Retrying": "yellow", "Failed": "red", "Queued": "cyan"}


def show_demo(*, keep: bool = False) -> None:
    """Run the demo and show it. Raises: CommandFailed if its outcome is not as expected.

    `keep`: leave the site running until SIGINT or SIGTERM, with the way to sign in printed. The
    first signal ends the demo in good order, a second one at once; the site is deleted either way.
    """
    # The story shows what happens.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if not trio.run(_demo, keep):
        raise CommandFailed("the demo failed: see the table above")


@dataclass
class Story:
    """The events so far, and their display."""

    began: float
    console: Console
    lines: list[Text] = field(default_factory=list)
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    receivers: dict[str, str] = field(default_factory=dict)  # webhook → receiver
    live: bool = False

    def tell(self, text: str, style: str = "") -> None:
        """Add a line; print it at once if the output is not a terminal."""
        line = Text(f"{trio.current_time() - self.began:6.2f} s  {text}", style)
        self.lines.append(line)
        if not self.live:
            self.console.print(line)

    def posted(self, post: DemoPost) -> None:
        """Add the lines of a POST that a receiver got."""
        signature = "signature good" if post.verified else "SIGNATURE WRONG"
        style = "green" if post.status < 300 else "yellow"
        self.tell(f"{post.receiver} receiver: POST {post.delivery}, {signature}", style)
        self.tell(f"{post.receiver} receiver: answers {post.status}", style)

    def picture(self) -> Group:
        """Return everything for the live display."""
        return Group(*self.lines, Text(), self.table())

    def table(self) -> Table:
        """Return the recorded deliveries as a table that fits 80 columns."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading in ("Delivery", "Receiver", "Status", "Attempts", "Next attempt"):
            table.add_column(heading, no_wrap=True)
        for row in self.deliveries:
            status = Text(row["status"], _COLOURS[row["status"]])
            receiver = self.receivers.get(row["webhook"], "")
            table.add_row(
                row["name"], receiver, status, str(row["attempts"]),
                _in_seconds(row["next_attempt"]),
            )  # fmt: skip
        return table

    @property
    def over(self) -> bool:
        """Whether every delivery has its outcome."""
        final = [row["status"] in ("Sent", "Failed") for row in self.deliveries]
        return bool(final) and all(final)


async def _demo(keep: bool) -> bool:
    from supervisors.service.tree import open_service

    console = Console()
    story = Story(trio.current_time(), console, live=console.is_terminal)
    entropy = SystemEntropy()
    secret = "whsec_" + base64.b64encode(entropy.bytes(32)).decode()
    receivers = (
        DemoReceiver("healthy", secret, (204,), story.posted),
        DemoReceiver("failing", secret, FAILURES, story.posted),
    )
    with (
        # Outermost: a signal while the service closes must not prevent the deletion of the folder.
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
        tempfile.TemporaryDirectory(prefix="fw-demo-") as folder,
    ):
        async with trio.open_nursery() as watching:
            ending = trio.Event()
            watching.start_soon(_watch, signals, Path(folder), ending)
            with trio.move_on_after(MAX_STORY_SECONDS) as limit:
                config = make_site(Path(folder), entropy)
                async with trio.open_nursery() as nursery:
                    for receiver in receivers:
                        await nursery.start(receiver.serve)
                    async with open_service(config, log=structlog.get_logger()) as service:
                        async with _until(ending):
                            await _run_story(service, secret, receivers, story)
                        if keep and _is_as_expected(story, receivers) and not ending.is_set():
                            limit.deadline = inf
                            _print_use(console, service.url)
                            await ending.wait()
                    nursery.cancel_scope.cancel()
            watching.cancel_scope.cancel()
    if ending.is_set() and not story.over:
        raise KeyboardInterrupt
    return _is_as_expected(story, receivers)


async def _watch(signals: AsyncIterator[int], folder: Path, ending: trio.Event) -> None:
    """Set `ending` at the first signal; at a second one delete the site and end by that signal."""
    from supervisors.service.console_socket import remove_socket
    from supervisors.service.site_files import SitePaths

    async for number in signals:
        if ending.is_set():
            remove_socket(SitePaths(folder).console)  # its socket is in another folder
            for _ in range(_REMOVALS):  # the service's threads may still create files
                shutil.rmtree(folder, ignore_errors=True)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        ending.set()


@asynccontextmanager
async def _until(ending: trio.Event) -> AsyncIterator[None]:
    """Run the block, and cancel it when `ending` is set."""
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await ending.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        yield
        nursery.cancel_scope.cancel()


async def _run_story(
    service: RunningService, secret: str, receivers: tuple[DemoReceiver, ...], story: Story
) -> None:
    """Run the story; show it live on a terminal."""
    console = story.console
    if story.live:
        with Live(get_renderable=story.picture, console=console, refresh_per_second=8):
            await _act(service, secret, receivers, story)
    else:
        await _act(service, secret, receivers, story)
        console.print(Text(), story.table(), sep="")


def _is_as_expected(story: Story, receivers: tuple[DemoReceiver, ...]) -> bool:
    verified = all(post.verified for receiver in receivers for post in receiver.posts)
    return verified and story.over and all(row["status"] == "Sent" for row in story.deliveries)


def _print_use(console: Console, url: str) -> None:
    """Print how to use the site that keeps running."""
    lines = (
        "",
        f"The site runs at {url}: sign in as {USER}, with the password {PASSWORD!r}.",
        f"Its console: {url}/app/console",
        "Ctrl+C ends it and deletes it.",
    )
    # Plain text: a URL must be neither wrapped nor interpreted as markup.
    console.print(Text("\n".join(lines)), soft_wrap=True)
    console.file.flush()


async def _act(
    service: RunningService, secret: str, receivers: tuple[DemoReceiver, ...], story: Story
) -> None:
    story.tell(f"service ready at {service.url}")
    await make_user(service.site)
    client = Client(service.url)
    await _in_thread(client.sign_in)
    story.tell(f"signed in as {USER} (argon2id, session cookie)")
    for receiver in receivers:
        await _subscribe(client, receiver, secret, story)
    note = await _in_thread(
        partial(client.insert, "Note", {"title": "Hello, world", "text": "An event."})
    )
    story.tell(f"Note {note} saved: doc.on_insert is sent to both receivers")
    while not story.over:
        await trio.sleep(REFRESH_SECONDS)
        story.deliveries = await _in_thread(client.deliveries)
    attempts = max(row["attempts"] for row in story.deliveries)
    waits = ", ".join(f"{wait_seconds(n, BACKOFF_SECONDS):g} s" for n in range(1, attempts))
    story.tell(f"both are Sent, the failing one at attempt {attempts}, after {waits}")


async def _subscribe(client: Client, receiver: DemoReceiver, secret: str, story: Story) -> None:
    fields = {
        "url": receiver.url,
        "event_type": "Document",
        "webhook_doctype": "Note",
        "on_insert": 1,
        "secret": secret,
    }
    webhook = await _in_thread(partial(client.insert, "Webhook", fields))
    story.receivers[webhook] = receiver.name
    story.tell(f"Webhook {webhook} made: Note → {receiver.url}")


async def _in_thread(call: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(call)


def _in_seconds(instant: str | None) -> str:
    if instant is None:
        return ""
    left = datetime.fromisoformat(instant).timestamp() - SystemClock().now() / 1000
    return f"in {max(0.0, left):.1f} s"
