"""The reference: an empty JSON route of Quart-Trio under Hypercorn, a process of its own."""

from __future__ import annotations

import socket

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart_trio import QuartTrio

app = QuartTrio(__name__)


@app.route("/", methods=["GET", "POST"])
async def empty() -> dict[str, bool]:
    """Answer."""
    return {"ok": True}


def main() -> None:
    """Serve on a free port, told on stdout, until killed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = Config()
        config.bind = [f"fd://{listening.fileno()}"]
        config.loglevel = "ERROR"
        print(listening.getsockname()[1], flush=True)
        trio.run(serve, app, config)


if __name__ == "__main__":
    main()
