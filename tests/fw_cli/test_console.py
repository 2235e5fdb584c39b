"""`fw console`: the running service in the terminal, through its Unix socket (H-175)."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import trio
import trio.testing
from textual.pilot import Pilot
from textual.widgets import DataTable, TabbedContent

from fw_actors.actors.console import Console
from fw_actors.runtime import SystemClock, SystemEntropy, open_runtime
from fw_cli.console_client import NOT_RUNNING, ConsoleClient
from fw_cli.console_screen import ConsoleScreen
from fw_cli.errors import CommandFailed
from supervisors import open_supervisor
from supervisors.service.console_socket import CHECK_SECONDS, console_socket
from supervisors.service.site_files import path_in
from tests.fw_cli.conftest import CommandLine
from tests.live_site import LiveReceiver, LiveSite, eventually
from tests.mail_kit import RecordingLog

SECONDS = 120.0
STRANGER = 4321  # a user id
SUBSCRIBE = """
hook = {"event_type": "Custom", "custom_event": "console.fails", "secret": "s"}
fw.new_doc("Webhook", url="URL", **hook).insert()
"""

pytestmark = pytest.mark.timeout(300)  # several commands start and end, on a slow machine too


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    # Its path is longer than the kernel takes for a socket's.
    folder = tmp_path_factory.mktemp("console") / ("long" * 25)
    folder.mkdir()
    with LiveSite(folder) as site:
        site.start()
        yield site


async def no_metrics() -> bytes:
    return b""


def address_file(site: LiveSite) -> Path:
    return site.folder / "data" / "console.address"


def ask_console(site: LiveSite, *lines: bytes) -> list[dict[str, Any]]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        client.connect(str(path_in(address_file(site))))
        client.sendall(b"".join(line + b"\n" for line in lines))
        with client.makefile("rb") as answers:
            return [json.loads(answers.readline()) for _ in lines]


def test_console_reports_service_that_hangs(
    fw: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that runs `fw console --json` must not hang as well."""
    monkeypatch.setattr("fw_cli.console.ANSWER_SECONDS", 0.2)
    (fw.folder / "data").mkdir()
    path = fw.folder / "data" / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(path))
        listening.listen()
        (fw.folder / "data" / "console.address").write_text(os.path.relpath(path))
        assert "the service does not answer" in fw.refused("console", "--json")


def test_console_socket_and_folder_are_private_to_owner(site: LiveSite) -> None:
    path = path_in(address_file(site))
    assert path.is_socket()
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, address_file(site))]
    assert modes == [0o600, 0o700, 0o600]


def test_data_folder_contains_no_socket(site: LiveSite, tmp_path: Path) -> None:
    """shutil.copytree fails on a folder with a socket, and a kill would leave it there."""
    shutil.copytree(site.folder / "data", tmp_path / "copy")
    assert (tmp_path / "copy" / "fw.db").exists()


def test_next_start_deletes_socket_of_killed_service(tmp_path: Path) -> None:
    with LiveSite(tmp_path) as site:
        site.start()
        left = path_in(address_file(site))
        site.end(signal.SIGKILL)
        assert left.is_socket()
        site.start()
        assert not left.parent.exists()
        assert ask_console(site, b'{"do": "trace", "name": "mailer"}') == [{"ok": True}]


def socket_path(site: LiveSite) -> str:
    """Return the path of the console's socket; empty while there is none."""
    with suppress(FileNotFoundError):
        return address_file(site).read_text()
    return ""


@pytest.mark.parametrize("lost", ["folder", "address"])
def test_console_socket_is_made_again(tmp_path: Path, lost: str) -> None:
    """O-228: programs clean folders for temporary files, while the service runs for months."""
    with LiveSite(tmp_path) as site:
        site.start()
        first = path_in(address_file(site))
        if lost == "folder":
            shutil.rmtree(first.parent)
        else:
            address_file(site).unlink()
        eventually(lambda: socket_path(site) not in ("", str(first)), 30)
        assert ask_console(site, b'{"do": "trace", "name": "mailer"}') == [{"ok": True}]
        assert not first.exists()


def test_console_socket_is_in_runtime_directory_of_systemd(tmp_path: Path) -> None:
    """A unit has a private /tmp, which other processes cannot see."""
    with tempfile.TemporaryDirectory() as run, LiveSite(tmp_path) as site:
        site.start(RUNTIME_DIRECTORY=f"{run}:/nowhere")
        assert path_in(address_file(site)).parent.parent == Path(run)
        assert site.end() == 0


def test_service_runs_without_console_socket_and_logs_it(tmp_path: Path) -> None:
    with LiveSite(tmp_path) as site:
        site.start(RUNTIME_DIRECTORY=str(tmp_path / "missing"))
        assert not address_file(site).exists()
        assert site.end() == 0
    assert "console.no_socket" in (tmp_path / "serve.log").read_text()


async def test_console_socket_is_made_once_its_folder_is_usable(
    short_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """O-228: also if it could not be made at once, as while no descriptor is left."""
    run, console_log, log = short_path / "run", short_path / "console.address", RecordingLog()
    run.mkdir()
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_runtime(clock=clock, entropy=entropy) as runtime:
        child = console_socket(console_log, run, Mock(spec=Console), log, no_metrics)
        async with open_supervisor(runtime, "service", [child]):
            shutil.rmtree(run)
            for _ in range(3):
                mock_clock.jump(CHECK_SECONDS)
                await trio.testing.wait_all_tasks_blocked()
                assert [event for event, _ in log.entries] == ["console.no_socket"]
            run.mkdir()
            mock_clock.jump(CHECK_SECONDS)
            await trio.testing.wait_all_tasks_blocked()
            async with await trio.open_unix_socket(path_in(console_log)):
                pass


async def test_console_socket_stays_while_no_descriptor_is_left(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """O-228: then `fw doctor` needs it; a file that cannot be opened is not a removed one."""
    console_log, log = tmp_path / "console.address", RecordingLog()
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_runtime(clock=clock, entropy=entropy) as runtime:
        child = console_socket(console_log, None, Mock(spec=Console), log, no_metrics)
        async with open_supervisor(runtime, "service", [child]):
            path = path_in(console_log)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                mock_clock.jump(CHECK_SECONDS)
                await trio.testing.wait_all_tasks_blocked()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert log.entries == []
            assert path_in(console_log) == path


async def test_console_socket_refuses_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is identified by the kernel, independently of file modes, and logged."""
    monkeypatch.setattr("supervisors.service.console_socket.peer_user", lambda _: STRANGER)
    console_log, log = tmp_path / "console.address", RecordingLog()
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_runtime(clock=clock, entropy=entropy) as runtime:
        child = console_socket(console_log, None, Mock(spec=Console), log, no_metrics)
        async with (
            open_supervisor(runtime, "service", [child]),
            await trio.open_unix_socket(path_in(console_log)) as stream,
        ):
            assert await stream.receive_some() == b""
    assert log.entries == [("console.peer_rejected", {"user": STRANGER})]


def test_socket_answers_the_metrics_of_the_service(site: LiveSite) -> None:
    """The same text as over HTTP, for `fw doctor` (H-177)."""
    httpx.get(f"{site.url}/metrics")  # a request is counted after its response
    [found] = ask_console(site, b'{"do": "metrics"}')
    over_http = httpx.get(f"{site.url}/metrics").text
    names = [
        {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        for text in (found["metrics"], over_http)
    ]
    assert names[0] == names[1] >= {"fw_info", "fw_requests_total"}


def test_console_client_refuses_socket_of_other_user(
    site: LiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may meanwhile own the folder in which a killed service had its socket."""
    monkeypatch.setattr("fw_cli.console_client.peer_user", lambda _: STRANGER)

    async def ask() -> None:
        with pytest.raises(CommandFailed, match=NOT_RUNNING):
            await ConsoleClient(address_file(site)).ask("view")

    asyncio.run(ask())


def test_console_json_prints_view(site: LiveSite) -> None:
    view = json.loads(site.fw("console", "--json"))
    names = {node["name"] for node in view["tree"]}
    assert {"service", "dispatcher", "mailer", "deliveries", "lockouts", "web"} <= names
    assert view["store"] == {
        "queues": [], "locks": [], "inFlight": [], "upcoming": [], "failed": [],
        "failures": [], "receivers": [], "jobs": [], "senders": [],
        "staleWebhooks": [], "pausedWebhooks": [], "webhookLabels": {},
    }  # fmt: skip


def test_console_without_terminal_names_json_option(site: LiveSite) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fw_cli", "console"], cwd=site.folder, check=False,
        capture_output=True, text=True, env={**os.environ, "FW_CONFIG": "fw.json"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "--json" in done.stderr


def test_console_client_reports_service_not_running(tmp_path: Path) -> None:
    async def ask() -> None:
        with pytest.raises(CommandFailed, match=NOT_RUNNING):
            await ConsoleClient(tmp_path / "console.address").ask("view")

    asyncio.run(ask())


def test_console_client_acts_at_once_after_service_restart(tmp_path: Path) -> None:
    """The connection for acts is as old as the last act; the service may have been replaced."""
    address, served = tmp_path / "console.address", []
    address.write_text(str(tmp_path / "socket"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(await reader.readline())
        writer.write(b'{"ok": true}\n')
        writer.close()  # as a service that stops

    async def use() -> None:
        client = ConsoleClient(address)
        async with await asyncio.start_unix_server(answer, tmp_path / "socket"):
            for _ in range(2):
                await client.ask("trace", name="mailer")
                await asyncio.sleep(0.1)
            await client.close()

    asyncio.run(use())
    assert len(served) == 2


def test_console_connection_survives_refused_requests(site: LiveSite) -> None:
    answers = ask_console(
        site,
        b"no json",
        b'{"do": "\xff"}',
        b'{"do": "explode"}',
        b'{"do": "trace", "name": "nobody"}',
        b'{"do": "pause", "name": "https://x.test:443"}',
        b'{"do": "trace", "name": "mailer"}',
    )
    types = [answer.get("error", {}).get("type") for answer in answers]
    assert types == [
        "BadRequestError", "BadRequestError", "BadRequestError", "NotFoundError", "NotFoundError",
        None,
    ]  # fmt: skip


def test_console_act_is_audit_event_by_administrator(site: LiveSite) -> None:
    assert ask_console(site, b'{"do": "restart", "name": "sweeper"}') == [{"ok": True}]
    rows = site.prepare(
        "eval", 'fw.get_all("Audit Event", {"action": "console.restart"}, ["target", "actor"])'
    )
    assert json.loads(rows) == [{"target": "sweeper", "actor": "Administrator"}]


def failed_delivery(site: LiveSite, receiver: LiveReceiver) -> str:
    """Have a delivery fail; the events that one process emits are seen by the running one."""
    (site.folder / "subscribe.py").write_text(SUBSCRIBE.replace("URL", receiver.url))
    site.prepare("exec", str(site.folder / "subscribe.py"), "--commit")
    site.fw("eval", 'fw.webhooks.emit("console.fails", {})', "--commit")

    def failed_deliveries() -> list[str]:
        (answer,) = ask_console(site, b'{"do": "view"}')
        return [each["delivery"] for each in answer["view"]["store"]["failed"]]

    (delivery,) = eventually(failed_deliveries)
    return delivery


def lock_out(site: LiveSite, name: str) -> None:
    guess = {"usr": name, "pwd": "wrong"}
    for _ in range(5):
        httpx.post(f"{site.url}/api/login", json=guess, headers={"X-FW-CSRF": "1"}, timeout=60)


class NoticedScreen(ConsoleScreen):
    """The screen, and the notices that it showed."""

    def __init__(self, address: Path) -> None:
        super().__init__(address)
        self.notices: list[str] = []

    def notify(self, message: str, **given: Any) -> None:
        self.notices.append(message)
        super().notify(message, **given)


class ConsoleUser:
    """Uses the console's screen by its keys."""

    def __init__(self, screen: NoticedScreen, pilot: Pilot[None]) -> None:
        self.screen = screen
        self.pilot = pilot

    async def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            await self.pilot.pause(0.02)

    async def act(self, tab: str, row: str, key: str, *, confirmed: bool = False) -> None:
        """Choose a row of a tab, press its key, and wait until the act is done."""
        table = self.screen.query_one(f"#{tab}", DataTable)

        def rows() -> list[str]:
            return [str(key.value) for key in table.rows]

        await self.until(lambda: row in rows())
        self.screen.query_one(TabbedContent).active = f"tab-{tab}"
        await self.pilot.pause()
        table.focus()
        table.move_cursor(row=rows().index(row))
        before = len(self.screen.notices)
        await self.pilot.press(key)
        if confirmed:  # a "y" before the dialog is there would be lost
            await self.until(lambda: len(self.screen.screen_stack) == 2)
            await self.pilot.press("y")
        await self.until(lambda: len(self.screen.notices) > before)


def use(site: LiveSite, acts: Callable[[ConsoleUser], Awaitable[None]]) -> None:
    """Run `acts` with the console of `site`."""

    async def run() -> None:
        screen = NoticedScreen(address_file(site))
        async with screen.run_test(size=(140, 40)) as pilot, asyncio.timeout(SECONDS):
            await acts(ConsoleUser(screen, pilot))

    asyncio.run(run())


def audited(site: LiveSite, target: str) -> set[tuple[str, str]]:
    """Return the action and the actor of each Audit Event about `target`, but for its creation."""
    about = [["target", "=", target], ["action", "!=", "user.create"]]
    found = site.prepare("eval", f'fw.get_all("Audit Event", {about!r}, ["action", "actor"])')
    return {(each["action"], each["actor"]) for each in json.loads(found)}


@pytest.fixture(scope="module")
def refusing(site: LiveSite) -> Iterator[tuple[LiveReceiver, str]]:
    """A receiver, and a delivery that it has refused."""
    with LiveReceiver(400) as receiver:
        yield receiver, failed_delivery(site, receiver)


def test_console_key_replays_failed_delivery(
    site: LiveSite, refusing: tuple[LiveReceiver, str]
) -> None:
    """A replay is an Audit Event, too (O-80)."""
    receiver, delivery = refusing
    use(site, lambda user: user.act("failed", delivery, "s", confirmed=True))
    eventually(lambda: receiver.ids == [delivery, delivery])
    assert audited(site, delivery) == {("webhook.replay", "Administrator")}


def test_console_key_pauses_and_resumes_receiver(
    site: LiveSite, refusing: tuple[LiveReceiver, str]
) -> None:
    """Each act is an Audit Event (O-89)."""
    origin = refusing[0].url.removesuffix("/hook")

    async def acts(user: ConsoleUser) -> None:
        await user.act("receivers", origin, "p", confirmed=True)
        await user.until(lambda: user.screen.view["receivers"][0]["health"] == "paused")
        await user.act("receivers", origin, "p")

    use(site, acts)
    assert audited(site, origin) == {
        ("console.pause", "Administrator"),
        ("console.resume", "Administrator"),
    }


def test_console_key_unlocks_identifier(site: LiveSite) -> None:
    """The act is an Audit Event (O-89)."""
    site.add_manager()
    lock_out(site, "admin")

    async def acts(user: ConsoleUser) -> None:
        await user.until(lambda: user.screen.view and user.screen.view["store"]["locks"])
        (lock,) = user.screen.view["store"]["locks"]
        await user.act("locks", lock["key"], "u", confirmed=True)

    use(site, acts)
    assert audited(site, "admin") == {("console.unlock", "Administrator")}


def test_console_key_restarts_actor(site: LiveSite) -> None:
    def restarts(user: ConsoleUser) -> int:
        nodes = {node["path"]: node for node in user.screen.view["tree"]}
        return int(nodes["/service/mailer"]["restarts"])

    async def acts(user: ConsoleUser) -> None:
        await user.act("tree", "/service/mailer", "r", confirmed=True)
        await user.until(lambda: restarts(user) == 1)

    use(site, acts)


def test_console_key_traces_actor(site: LiveSite) -> None:
    async def acts(user: ConsoleUser) -> None:
        await user.act("tree", "/service/mailer", "t")
        await user.until(lambda: any(t["actor"] == "mailer" for t in user.screen.view["traces"]))

    use(site, acts)


def test_stop_deletes_console_socket_and_address(tmp_path: Path) -> None:
    with LiveSite(tmp_path) as site:
        site.start()
        path = path_in(address_file(site))
        assert site.end() == 0
        assert not address_file(site).exists()
        assert not path.parent.exists()
