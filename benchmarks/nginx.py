"""Receivers that cost next to nothing: nginx on free ports of this machine, answering 204."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02
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
        location = /status {{ stub_status; }}
    }}
    server {{
{listening}
        location = /hook {{ return 204; }}
    }}
}}
"""


class ReceiverFailed(Exception):
    """Raised when there is no nginx, or it does not answer."""


class RequestsMiscounted(Exception):
    """Raised when the receiver counted other requests than were to be sent."""


@dataclass(frozen=True)
class Nginx:
    """A running nginx: where it tells its status, and the receivers that it plays."""

    port: int
    hooks: tuple[str, ...]

    @property
    def hook(self) -> str:
        """The URL of the first receiver."""
        return self.hooks[0]

    def requests(self) -> int:
        """Return how many requests it has answered, the questions for this number left out."""
        with urllib.request.urlopen(f"http://{_HOST}:{self.port}/status", timeout=5) as answer:
            status = answer.read().decode()
        return requests_in(status)


def counted(nginx: Nginx, posts: int, side: Callable[[str, int], Awaitable[float]]) -> float:
    """Call `counted_by_all` with the first receiver, as `side(url, posts)`.

    Raises: RequestsMiscounted.
    """
    return counted_by_all(nginx, posts, lambda urls, posts: side(urls[0], posts))


def counted_by_all(
    nginx: Nginx, posts: int, side: Callable[[Sequence[str], int], Awaitable[float]]
) -> float:
    """Run `side(urls, posts)`; believe its rate when nginx has counted as many requests.

    Raises: RequestsMiscounted.
    """
    before = nginx.requests()
    rate = trio.run(side, nginx.hooks, posts)
    seen = nginx.requests() - before - 1  # without the question for the number itself
    if seen != posts:
        raise RequestsMiscounted(f"{posts} requests were to be sent, the receiver counted {seen}.")
    return rate


def requests_in(status: str) -> int:
    """Return the number of requests in a page of `stub_status`."""
    match = re.search(r"server accepts handled requests\n \d+ \d+ (\d+)", status)
    if match is None:
        raise ReceiverFailed("nginx's status page has another form than expected.")
    return int(match[1])


@contextmanager
def running_nginx(
    folder: Path, receivers: int = 1, certificate: Path | None = None
) -> Iterator[Nginx]:
    """Run nginx with its files in `folder`, playing so many receivers; install it first when it
    is missing and that is allowed.

    Args:
        certificate: a file with chain and key; the receivers speak TLS then.

    Raises: ReceiverFailed.
    """
    binary = _binary() or _installed()
    port, *ports = _free_ports(1 + receivers)
    file = folder / "nginx.conf"
    file.write_text(configuration(folder, port, ports, certificate))
    scheme = "http" if certificate is None else "https"
    process = subprocess.Popen([binary, "-p", str(folder), "-c", str(file), "-e", "stderr"])
    try:
        _wait_for(process, port)
        yield Nginx(port, tuple(f"{scheme}://{_HOST}:{each}/hook" for each in ports))
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def configuration(
    folder: Path, port: int, ports: Sequence[int], certificate: Path | None = None
) -> str:
    """Return nginx's configuration: its own files in `folder`, no port below 1024, no log."""
    tls = "" if certificate is None else " ssl"
    lines = [f"listen {_HOST}:{each}{tls};" for each in ports]
    if certificate is not None:
        lines += [f"ssl_certificate {certificate};", f"ssl_certificate_key {certificate};"]
    listening = "\n".join(f"        {line}" for line in lines)
    return _CONFIGURATION.format(folder=folder, host=_HOST, port=port, listening=listening)


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


def _free_ports(count: int) -> list[int]:
    """All are held until the last is found, or one would be found twice."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server((_HOST, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection((_HOST, port), timeout=1):
                return
        except OSError:
            time.sleep(_POLL_SECONDS)
    raise ReceiverFailed("nginx did not start; what it said stands above.")
