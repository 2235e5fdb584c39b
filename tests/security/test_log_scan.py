"""After a whole run no password, token, sid or key stands in log, store or output.

Rules: O-101, A-180, A-150, A-260.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trio.testing

from fw_actors.rules.safe_output import Scrubber
from fw_actors.runtime import (
    Actor,
    ActorFailed,
    Request,
    SeededEntropy,
    TrioClock,
    handles,
    open_runtime,
)
from supervisors.children import actor_child
from supervisors.service.logs import configure
from supervisors.tree import open_supervisor
from tests.live_site import PASSWORD, LiveSite, eventually

OTHER = "another decent passphrase"
WRONG = "a wrong pass phrase in the wrong field"
CSRF = {"X-FW-CSRF": "1"}
SERVICES = "/api/method/core.services."


def use_all_entrances(site: LiveSite) -> set[str]:
    """Use each way in with right and wrong credentials; return the secrets that were sent."""
    secrets = {PASSWORD, OTHER, WRONG}
    with httpx.Client(base_url=site.url, headers=CSRF, timeout=30) as client:

        def post(path: str, body: object, status: int = 200) -> dict[str, str]:
            reply = client.post(path, json=body)
            assert reply.status_code == status, reply.text
            answer: dict[str, str] = reply.json()
            return answer

        post("/api/login", {"usr": "admin", "pwd": WRONG}, 401)
        post("/api/login", {"usr": WRONG, "pwd": "x"}, 401)
        post("/api/login", {"usr": "admin", "pwd": PASSWORD})
        secrets.add(client.cookies["sid"])
        key = post(SERVICES + "api_keys.createMyAPIKey", {"label": "x"})["key"]
        secrets.add(key.rpartition("_")[2])
        bearer = {"Authorization": f"Bearer {key}"}
        assert httpx.get(site.url + "/api/boot", headers=bearer).json()["user"]
        invited = post(SERVICES + "users.invite", {"email": "ida@example.test"})
        token = invited["link"].partition("#token=")[2]
        secrets.add(token)
        post("/api/auth/token", {"token": token})
        post("/api/auth/accept-invite", {"token": token, "password": "short"}, 422)
        post("/api/auth/accept-invite", {"token": token, "password": OTHER})
        post("/api/auth/accept-invite", {"token": token, "password": OTHER}, 400)
        change = {"current": WRONG, "password": OTHER}
        post(SERVICES + "profile.changeMyPassword", change, 401)
        client.post("/api/login", content=b'{"usr": "x", "pwd": "' + WRONG.encode())
        client.get(f"/api/boot?{token}={WRONG.replace(' ', '+')}")
        post("/api/logout", {})
    return secrets


def test_site_run_leaves_no_secret_in_log_or_store(tmp_path: Path) -> None:
    with LiveSite(tmp_path, apps=()) as site:
        site.add_manager()
        site.start(FW_LOG_LEVEL="debug")
        secrets = use_all_entrances(site)
        site.end()
    log = (tmp_path / "serve.log").read_text()
    links = [line for line in log.splitlines() if "mail.sent" in line]
    assert links, "with the transport log a link is one line of it (O-54)"
    rest = "\n".join(line for line in log.splitlines() if "mail.sent" not in line)
    assert [secret for secret in secrets if secret in rest] == []
    for file in (tmp_path / "data").iterdir():
        content = file.read_bytes()
        assert [secret for secret in secrets if secret.encode() in content] == [], file.name


# Secrets of the site that an app leaks must appear nowhere.

KEY = "a vault key of forty characters, or more"
STRIPE = "sk_live_51Habcd"
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----"
SMTP = "mail & password"
HIDDEN = (KEY, STRIPE, SMTP, *PEM.splitlines())
EVERY_TIME = ("fail", "refuse", "queue", "log", "thread")


@contextmanager
def leaking(folder: Path, style: str) -> Iterator[LiveSite]:
    """A running site whose app has leaked its secrets in every failure."""
    shutil.copy(Path(__file__).with_name("leaky_app.py"), folder / "leaky.py")
    (folder / "leaks.txt").write_text("\n".join(HIDDEN))
    environ = {
        "FW_SECRET_KEY": KEY, "FW_SECRET_STRIPE": STRIPE, "FW_SECRET_PEM": PEM, "FW_LOG": style,
        "FW_SMTP_USER": "fw", "FW_SMTP_PASSWORD": SMTP, "FW_LOG_LEVEL": "debug",
        "FW_MAIL_TRANSPORT": "method", "FW_MAIL_METHOD": "leaky.send",
    }  # fmt: skip
    with LiveSite(folder, apps=("leaky",), ops={"backoffSeconds": 0.1}) as site:
        site.add_manager()
        site.start(**environ)
        with site.client() as client:
            for name in EVERY_TIME:
                response = client.post(f"/api/method/leaky.{name}", json={})
                assert response.status_code == {"fail": 500, "refuse": 422}.get(name, 200), (
                    response.text
                )
                assert found_in(response.text) == []
            for where, status in (("hook", 500), ("after_commit", 201)):
                response = client.post("/api/resource/Leak", json={"where": where})
                assert response.status_code == status
            client.post("/api/auth/forgot-password", json={"usr": "admin"})
            eventually(lambda: len(failures(site)) == 3)
            eventually(lambda: "Leak.after_commit" in methods(client))
        yield site


def failures(site: LiveSite) -> list[str]:
    """The errors of jobs and mails that have failed at least once."""
    with contextlib.closing(sqlite3.connect(site.folder / "data" / "fw.db")) as database:
        rows = database.execute(
            "SELECT error FROM fw_job WHERE error <> '' AND queue = 'app'"
            " UNION ALL SELECT error FROM doc_email_delivery WHERE error <> ''"
        )
        return [error for (error,) in rows]


def methods(client: httpx.Client) -> str:
    return client.get("/api/resource/Error Log", params={"fields": '["method"]'}).text


def found_in(text: str | bytes) -> list[str]:
    """The secrets that stand in a text, plain or escaped."""
    raw = text.encode() if isinstance(text, str) else text
    forms = {form for secret in HIDDEN for form in (secret, json.dumps(secret)[1:-1])}
    halves = {secret[: len(secret) * 2 // 3] for secret in HIDDEN}
    return sorted(form for form in forms | halves if form.encode() in raw)


@pytest.mark.parametrize("style", ["text", "json"])
def test_secrets_leaked_by_app_are_scrubbed(tmp_path: Path, style: str) -> None:
    """Credentials are never stored in a column (D-202) nor shown (C-85)."""
    with leaking(tmp_path, style) as site:
        view = site.fw("console", "--json")
        assert found_in(view) == []
        site.fw("backup", "copy.db")
        site.end()
    log = (tmp_path / "serve.log").read_text()
    assert found_in(log) == []
    for text in ("web.request_failed", "job.failed", "thread.failed", "[scrubbed]"):
        assert text in log
    for file in [*(tmp_path / "data").iterdir(), tmp_path / "copy.db"]:
        content = file.read_bytes() if file.is_file() else b""
        assert found_in(content) == [], file.name
    assert b"upstream refused [scrubbed]" in (tmp_path / "copy.db").read_bytes()


@pytest.mark.parametrize(
    "command", [("eval", "fail()"), ("exec", "script.py"), ("eval", "fw.nothing(leaky.TOLD)")]
)
def test_failed_command_prints_no_secret(tmp_path: Path, command: tuple[str, str]) -> None:
    shutil.copy(Path(__file__).with_name("leaky_app.py"), tmp_path / "leaky.py")
    (tmp_path / "leaks.txt").write_text(f"{KEY}\n{STRIPE}\n{SMTP}")
    (tmp_path / "script.py").write_text("import leaky\nraise RuntimeError(leaky.TOLD)\n")
    site = LiveSite(tmp_path, apps=("leaky",))
    secrets = {"FW_SECRET_KEY": KEY, "FW_SECRET_STRIPE": STRIPE, "FW_SMTP_PASSWORD": SMTP}
    name, source = command
    source = source.replace("fail()", "__import__('leaky').fail.function(fw)")
    source = source.replace("leaky.TOLD", "__import__('leaky').TOLD")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fw_cli", name, source], cwd=tmp_path,
        env=site.environ(**secrets, FW_SMTP_USER="fw", FW_LOG_LEVEL="debug"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert found_in(done.stdout + done.stderr) == []


async def test_actor_failure_shows_no_secret(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The log line, the console's last error and the answer all omit the secret."""

    class Ask(Request[None], frozen=True):
        pass

    class Leaking(Actor):
        @handles(Ask)
        def fail(self, message: Ask) -> None:
            raise RuntimeError("x" * 180 + STRIPE)  # a cut first would leave a half of it

    stream = io.StringIO()
    scrubber = Scrubber([STRIPE])
    clock = TrioClock(0)
    log = configure(style="json", level="info", clock=clock, stream=stream, scrubber=scrubber)
    async with open_runtime(
        clock=clock, entropy=SeededEntropy(1), log=log, scrub=scrubber.scrub_known
    ) as runtime:
        child = actor_child("leaking", Leaking)
        async with open_supervisor(runtime, "root", [child]):
            with pytest.raises(ActorFailed) as refused:
                await runtime.ref("leaking").ask(Ask(), deadline=5)
            await trio.sleep(1)
            nodes = [node.last_error for node in runtime.snapshot().walk()]
    assert any(nodes)
    for text in (str(refused.value), stream.getvalue(), repr(nodes)):
        assert "RuntimeError" in text
        assert STRIPE[:10] not in text
