"""A real egress proxy: tinyproxy, which asks for credentials."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CREDENTIALS = "fw:hidden-word"
CONFIGURATION = """\
Port {port}
Listen 127.0.0.1
Timeout 60
LogFile "{folder}/log"
LogLevel Connect
MaxClients 20
BasicAuth fw hidden-word
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def tinyproxy(folder: Path) -> Iterator[int]:
    """Run a proxy that asks for credentials; yield its port."""
    port = free_port()
    file = folder / "tinyproxy.conf"
    file.write_text(CONFIGURATION.format(port=port, folder=folder))
    with subprocess.Popen(["tinyproxy", "-d", "-c", str(file)]) as process:
        try:
            for _ in range(500):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.01)
            yield port
        finally:
            process.kill()
