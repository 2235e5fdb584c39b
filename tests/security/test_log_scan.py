"""After a whole run no password, token, sid or key stands in log, store or output.

Source: pitfalls, Logs; spec, Records: "stored only as its SHA-256".
"""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.live_site import PASSWORD, LiveSite

OTHER = "another decent passphrase"
WRONG = "a wrong pass phrase in the wrong field"
CSRF = {"X-FW-CSRF": "1"}
SERVICES = "/api/method/core.services."


def tour(site: LiveSite) -> set[str]:
    """Use every door once, rightly and wrongly; the secrets that were on the way."""
    secrets = {PASSWORD, OTHER, WRONG}
    with httpx.Client(base_url=site.url, headers=CSRF, timeout=30) as client:

        def post(path: str, body: object, status: int = 200) -> dict[str, str]:
            reply = client.post(path, json=body)
            assert reply.status_code == status, reply.text
            told: dict[str, str] = reply.json()
            return told

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


def test_a_whole_run_leaves_no_secret_anywhere(tmp_path: Path) -> None:
    with LiveSite(tmp_path, apps=()) as site:
        site.add_manager()
        site.start(FW_LOG_LEVEL="debug")
        secrets = tour(site)
        site.end()
    log = (tmp_path / "serve.log").read_text()
    links = [line for line in log.splitlines() if "mail.sent" in line]
    assert links, "with the transport log a link is one line of it (interface §8)"
    rest = "\n".join(line for line in log.splitlines() if "mail.sent" not in line)
    assert [secret for secret in secrets if secret in rest] == []
    for file in (tmp_path / "data").iterdir():
        content = file.read_bytes()
        assert [secret for secret in secrets if secret.encode() in content] == [], file.name
