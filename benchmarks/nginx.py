"""A receiver that costs next to nothing: nginx on a free port of this machine, answering 204."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02
_HOST: Final = "127.0.0.1"
_PATH: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"

# Connections stay open as long as the senders like, so that no round measures connecting.
_CONFIGURATION: Final = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {host}:{port};
        location = /hook {{ return 204; }}
        location = /status {{ stub_status; }}
    }}
}}
"""


class ReceiverFailed(Exception):
    """Raised when there is no nginx, or it does not answer."""


class Miscounted(Exception):
    """Raised when the receiver counted other requests than were to be sent."""


@dataclass(frozen=True)
class Nginx:
    """A running nginx."""

    port: int

    @property
    def hook(self) -> str:
        """The URL to post to."""
        return f"http://{_HOST}:{self.port}/hook"

    def requests(self) -> int:
        """Return how many requests it has answered, the questions for this number left out."""
        with urllib.request.urlopen(f"http://{_HOST}:{self.port}/status", timeout=5) as answer:
            status = answer.read().decode()
        return requests_in(status)


def counted(nginx: Nginx, posts: int, side: Callable[[str, int], Awaitable[float]]) -> float:
    """Run `side(url, posts)`; believe its rate when the receiver has counted as many requests.

    Raises: Miscounted.
    """
    before = nginx.requests()
    rate = trio.run(side, nginx.hook, posts)
    seen = nginx.requests() - before - 1  # without the question for the number itself
    if seen != posts:
        raise Miscounted(f"{posts} requests were to be sent, the receiver counted {seen}.")
    return rate


def requests_in(status: str) -> int:
    """Return the number of requests in a page of `stub_status`."""
    match = re.search(r"server accepts handled requests\n \d+ \d+ (\d+)", status)
    if match is None:
        raise ReceiverFailed("nginx's status page has another form than expected.")
    return int(match[1])


@contextmanager
def running_nginx(folder: Path) -> Iterator[Nginx]:
    """Run nginx with its files in `folder`; install it first when it is missing and that is
    allowed. Raises: ReceiverFailed."""
    binary = _binary() or _installed()
    port = _free_port()
    file = folder / "nginx.conf"
    file.write_text(configuration(folder, port))
    process = subprocess.Popen([binary, "-p", str(folder), "-c", str(file), "-e", "stderr"])
    try:
        _wait_for(process, port)
        yield Nginx(port)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def configuration(folder: Path, port: int) -> str:
    """Return nginx's configuration: its own files in `folder`, no port below 1024, no log."""
    return _CONFIGURATION.format(folder=folder, host=_HOST, port=port)


def _binary() -> str | None:
    return shutil.which("nginx", path=_PATH)


def _installed() -> str:
    """Install Debian's nginx. Raises: ReceiverFailed when that is not possible."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ReceiverFailed("nginx is missing; please install it (Debian: apt install nginx).")
    options = ["-qq", "-o", "DPkg::Lock::Timeout=300"]
    environment = {"DEBIAN_FRONTEND": "noninteractive", "PATH": f"{_PATH}:/sbin:/bin"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "nginx"]):
        subprocess.run(
            ["apt-get", *options, *command], env=environment, stdout=subprocess.DEVNULL, check=False
        )
    binary = _binary()
    if binary is None:
        raise ReceiverFailed("nginx is missing, and apt-get could not install it.")
    return binary


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection((_HOST, port), timeout=1):
                return
        except OSError:
            time.sleep(_LOOK_SECONDS)
    raise ReceiverFailed("nginx did not start; what it said stands above.")
