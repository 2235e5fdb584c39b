"""A real nginx for tests, in a folder of its own."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.live_site import eventually

_CONFIGURATION = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {servers}
}}
"""


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def nginx(folder: Path, servers: str, *ports: int) -> Iterator[None]:
    """Run nginx with the `server` blocks given, until it listens at `ports` and for the block."""
    file = folder / "nginx.conf"
    file.write_text(_CONFIGURATION.format(folder=folder, servers=servers))
    command = ["/usr/sbin/nginx", "-p", str(folder), "-c", str(file), "-e", "stderr"]
    process = subprocess.Popen(command)
    try:
        eventually(lambda: all(map(_listens, ports)))
        yield
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    try:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
            return True
    except OSError:
        return False
