"""Links begin with the bound address if FW_PUBLIC_URL is not set (A-191)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisors.service import site_files
from supervisors.service.site_files import ServeLock, SitePaths, site_url
from tests.site_kit import make_config

WHERE: dict[str, Any] = {"bind_host": "127.0.0.1", "bind_port": 8123}


def test_site_url_is_the_public_url_if_set(tmp_path: Path) -> None:
    assert site_url(make_config(tmp_path, public_url="https://desk.example")) == (
        "https://desk.example"
    )


def test_site_url_is_the_bound_address_of_the_service(tmp_path: Path) -> None:
    paths = SitePaths(tmp_path)
    paths.prepare()
    site_files.write(paths.pid, site_files.own_pid_file("1.0", "http://127.0.0.1:45678"))
    with ServeLock(paths.lock) as lock:
        assert lock.acquire()
        assert site_url(make_config(tmp_path, **WHERE)) == "http://127.0.0.1:45678"
    # It was killed, and has left its file.
    assert site_url(make_config(tmp_path, **WHERE)) == "http://127.0.0.1:8123"


def test_site_url_ignores_a_starting_service(tmp_path: Path) -> None:
    paths = SitePaths(tmp_path)
    paths.prepare()
    site_files.write(paths.pid, site_files.own_pid_file("1.0"))
    assert site_url(make_config(tmp_path, **WHERE)) == "http://127.0.0.1:8123"


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]")],
)
def test_site_url_defaults_to_the_configured_address(tmp_path: Path, host: str, shown: str) -> None:
    config = make_config(tmp_path, bind_host=host, bind_port=8123)
    assert site_url(config) == f"http://{shown}:8123"
