"""The notifications to systemd (sd_notify(3))."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from supervisors.service.process import READY, STOPPING, notify


@pytest.mark.parametrize("abstract", [False, True])
def test_the_state_arrives(tmp_path: Path, abstract: bool) -> None:
    address = f"@fw-test{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address[1:] if abstract else address)
        assert notify(address, READY)
        assert notify(address, STOPPING)
        assert [systemd.recv(100), systemd.recv(100)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize(
    "address", [None, "", "relative", "vsock:2:1", "/no/such/socket", "/" + "x" * 200, "@a\0b"]
)
def test_nobody_who_listens_is_no_error(address: str | None) -> None:
    assert not notify(address, READY)


def test_a_listener_who_does_not_read_does_not_hold_the_service_up(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        assert not all(notify(address, READY) for _ in range(10_000))
