"""The reference: JSON routes of Quart-Trio under Hypercorn, a process of its own."""

from __future__ import annotations

import socket
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart_trio import QuartTrio

BOOT: Final[dict[str, Any]] = {
    "site": {
        "name": "benchmark",
        "url": "http://127.0.0.1:8000",
        "csrfHeader": "X-FW-CSRF",
        "login": {},
    },
    "user": {
        "name": "user0",
        "email": "user0@x.test",
        "fullName": "",
        "language": "en",
        "roles": [],
    },
}
"""What an authenticated `/api/boot` returns."""

app = QuartTrio(__name__)


@app.route("/", methods=["GET", "POST"])
async def empty() -> dict[str, bool]:
    """Return next to nothing."""
    return {"ok": True}


@app.route("/api/boot")
async def boot() -> dict[str, Any]:
    """Return the same JSON as ours, without a look at the session."""
    return BOOT


def main() -> None:
    """Serve on a free port, printed on stdout, until killed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = Config()
        config.bind = [f"fd://{listening.fileno()}"]
        config.loglevel = "ERROR"
        print(listening.getsockname()[1], flush=True)
        trio.run(serve, app, config)


if __name__ == "__main__":
    main()
